"""``sublayer inspect``: its options, and what each kind of inspection measures and prints."""
