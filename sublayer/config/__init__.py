"""What a recipe may say: a file per table, how settings merge, and what is derived from them."""
