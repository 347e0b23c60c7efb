"""Settings of a recipe: a module for each table, how they merge, and what is derived from them."""
