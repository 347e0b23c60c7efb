"""The tasks, a file for each suite that publishes them: rows of the table, and readers."""
