"""Text as documents: files, records, sentences, and the division into splits."""
