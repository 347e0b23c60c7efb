"""Files: atomic writing, limited and checked reading, checkpoints."""
