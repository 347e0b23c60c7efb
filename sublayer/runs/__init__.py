"""A run: its folder, its record, its session, from beginning to end."""
