"""Texts and their translations: sources, filters and batches."""
