"""The terminal: its width, and whether it can redraw a line."""

import os
import shutil
from typing import TextIO

_NARROWEST = 40


def terminal_width() -> int:
    """Return the columns of the terminal, or 80 where there is none; what can be read at least."""
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def is_live(stream: TextIO) -> bool:
    """Return whether a stream is a terminal on which lines can be drawn again."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
