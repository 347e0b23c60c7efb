"""GPT-1's vocabulary and text rules: as published, and as transformers has them."""
