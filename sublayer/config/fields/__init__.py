"""The fields of a recipe: what there is, when each applies, how they are said in words."""
