"""One scorecard: what any models score on tasks, probes, texts and pairs, side by side."""
