"""Training data of masked models: segments, pairs of them, masks and batches."""
