"""Training: the loop, its step, optimizers, distribution, checkpoints and log."""
