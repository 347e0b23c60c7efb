"""Verdicts of comparisons: how far seeds and items spread, intervals that hold together, power."""
