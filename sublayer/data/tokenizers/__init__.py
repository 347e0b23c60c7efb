"""Tokenizers: their interface, those without merges, and loading and training by name."""
