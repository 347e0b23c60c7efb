"""``[optimizer]``: how weights change, and what is kept for that; a table for each kind."""
