"""One scorecard: scores of any models on tasks, probes, texts and pairs, side by side."""
