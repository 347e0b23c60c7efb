"""Models: compositions of residual sub-layers, from token ids to logits."""
