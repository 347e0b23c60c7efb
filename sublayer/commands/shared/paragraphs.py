"""Text for people that wraps: names with what is said of them, within the terminal's width."""

import shutil
import textwrap
from collections.abc import Sequence

_NARROWEST, _WIDEST = 40, 100
_WIDEST_NAME = 24
"""Characters of a name, beyond which what is said of it begins on the next line."""


def page_width() -> int:
    """Return the columns of the terminal, or 80, within what can be read."""
    return max(_NARROWEST, min(shutil.get_terminal_size().columns, _WIDEST))


def paragraph(text: str, *, indent: str = "") -> str:
    """Wrap a text to the terminal; every line begins with ``indent``."""
    return _wrapped(text, indent, indent)


def entries(rows: Sequence[tuple[str, str]], *, indent: str = "  ") -> str:
    """Format names, each with a text beside it that wraps in a column of its own."""
    widest = min(_WIDEST_NAME, max((len(name) for name, _ in rows), default=0))
    column = indent + " " * (widest + 2)
    lines = []
    for name, text in rows:
        if len(name) > widest:
            lines += [f"{indent}{name}", _wrapped(text, column, column)]
        else:
            lines.append(_wrapped(text, f"{indent}{name:<{widest}}  ", column))
    return "\n".join(lines)


def _wrapped(text: str, first: str, others: str) -> str:
    wrapper = textwrap.TextWrapper(
        page_width(), initial_indent=first, subsequent_indent=others, break_on_hyphens=False
    )
    return wrapper.fill(text) or first.rstrip()
