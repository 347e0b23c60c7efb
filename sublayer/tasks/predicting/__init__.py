"""Rows that ask, and their answers in words: found in files, read, written beside the rows."""
