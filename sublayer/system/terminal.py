"""The terminal: its width, text that wraps within it, and whether it can redraw a line."""

import os
import shutil
import textwrap
from collections.abc import Sequence
from typing import TextIO

_NARROWEST = 40
_WIDEST = 100
_WIDEST_NAME = 24
"""Characters of a name, beyond which what is said of it begins on the next line."""
_NOTE = "note: "
_NO_BREAK = "\N{NO-BREAK SPACE}"


def terminal_width() -> int:
    """Return the columns of the terminal, or 80 where there is none; what can be read at least."""
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def is_live(stream: TextIO) -> bool:
    """Return whether a stream is a terminal on which lines can be drawn again."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def page_width() -> int:
    """Return the columns of the terminal, or 80, within what can be read."""
    return min(terminal_width(), _WIDEST)


def paragraph(text: str, *, indent: str = "") -> str:
    """Wrap a text to the terminal; every line begins with ``indent``."""
    return hanging(text, indent, indent)


def noted(text: str) -> str:
    """Wrap a note, its lines below one another behind the word ``note``."""
    return hanging(text, _NOTE, " " * len(_NOTE))


def entries(rows: Sequence[tuple[str, str]], *, indent: str = "  ") -> str:
    """Format names, each with a text beside it that wraps in a column of its own."""
    widest = min(_WIDEST_NAME, max((len(name) for name, _ in rows), default=0))
    column = indent + " " * (widest + 2)
    lines = []
    for name, text in rows:
        if len(name) > widest:
            lines += [f"{indent}{name}", hanging(text, column, column)]
        else:
            lines.append(hanging(text, f"{indent}{name:<{widest}}  ", column))
    return "\n".join(lines)


def hanging(text: str, first: str, others: str) -> str:
    """Wrap a text to the terminal, its first line behind ``first``, the others behind ``others``.

    A word that is longer than a line, such as a path, stays whole, and a setting is broken nowhere
    but within its value.
    """
    wrapper = textwrap.TextWrapper(
        page_width(),
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=False,
    )
    wrapped = wrapper.fill(text.replace(" = ", f"{_NO_BREAK}={_NO_BREAK}"))
    return wrapped.replace(_NO_BREAK, " ") or first.rstrip()
