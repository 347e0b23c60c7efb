"""``sublayer predict``: its options, rows in and rows with their answers out."""
