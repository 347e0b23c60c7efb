"""``sublayer completion``: the shell's completion, its scripts and what it is answered."""
