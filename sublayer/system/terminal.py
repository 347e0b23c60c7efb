"""How wide the terminal is that results are printed on."""

import shutil

_NARROWEST = 40


def terminal_width() -> int:
    """Return the columns of the terminal, or 80 where there is none; what can be read at least."""
    return max(_NARROWEST, shutil.get_terminal_size().columns)
