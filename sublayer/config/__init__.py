"""Settings of a recipe: a module for each table, merging, and values derived from them."""
