"""What a recipe may say: one file per table, how layers of settings merge, and what is derived from them."""
