"""``sublayer evaluate``: its options, the text that is scored."""
