"""Examples of tasks as tokens: encoding, storage, splits, packing, windows of passages, spans."""
