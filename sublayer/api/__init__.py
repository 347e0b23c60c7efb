"""Public functions, a function for each command, and their results."""
