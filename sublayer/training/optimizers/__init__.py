"""The optimizers of the papers."""
