"""Tokenizers: their interface, a module a kind, loading and training by name."""
