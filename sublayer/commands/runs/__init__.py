"""``sublayer runs``: what was run, read from the folders without loading a model."""
