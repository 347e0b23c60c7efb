"""Tasks: their questions, reading of their files, wording for a model, and scores; no tensors."""
