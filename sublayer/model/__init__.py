"""Models: one composition of residual sub-layers, from token ids to logits."""
