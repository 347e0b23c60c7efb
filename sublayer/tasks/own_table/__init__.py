"""Tables of one's own as tasks."""
