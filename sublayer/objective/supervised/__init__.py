"""Answers tasks, and is scored by their metrics."""
