"""Models that answer tasks, in and out: labels, numbers and spans of transformers' classes."""
