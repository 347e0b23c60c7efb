"""Corpora by name, fetched from their publishers and checked."""
