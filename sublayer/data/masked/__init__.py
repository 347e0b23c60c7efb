"""Training data of masked models: segments, pairs, masks and batches."""
