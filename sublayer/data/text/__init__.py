"""Texts as documents: files, records, sentences, and their division into splits."""
