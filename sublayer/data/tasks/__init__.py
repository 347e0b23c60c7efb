"""Examples of tasks as tokens: stored, divided, packed; where tokens stand, windows, spans."""
