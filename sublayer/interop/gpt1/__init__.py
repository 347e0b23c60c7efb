"""GPT-1's config and weights."""
