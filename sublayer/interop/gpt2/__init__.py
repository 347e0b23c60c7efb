"""GPT-2's config and weights."""
