"""Files as the program writes and reads them: atomic, limited and checked; checkpoints."""
