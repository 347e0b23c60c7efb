"""``sublayer finetune``: its options, how its scores are printed."""
