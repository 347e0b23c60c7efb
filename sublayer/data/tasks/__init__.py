"""Examples of tasks as tokens: stored, divided, packed; token positions, windows, spans."""
