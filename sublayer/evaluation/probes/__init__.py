"""Zero-shot probes: tasks answered by what a model predicts, with nothing trained."""
