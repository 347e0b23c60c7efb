"""Examples of tasks as tokens: where each token stands in its text, windows, spans."""
