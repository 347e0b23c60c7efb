"""``sublayer translate``: its options, lines in and lines out."""
