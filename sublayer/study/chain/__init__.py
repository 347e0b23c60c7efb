"""Chains: what a study's arms go through after they are pre-trained, and what they score there."""
