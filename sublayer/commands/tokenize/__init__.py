"""``sublayer tokenize``: its options, what it prints."""
