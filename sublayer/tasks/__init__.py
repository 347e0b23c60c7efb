"""Tasks: what they ask, how their files are read, written for a model, and scored; no tensors."""
