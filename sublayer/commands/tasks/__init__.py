"""``sublayer tasks``: the tasks that there are, what was found of each, and its rows."""
