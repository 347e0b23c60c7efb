"""Counts of things, and lists of names, in words."""

from collections.abc import Sequence

_HISSING = ("s", "x", "sh", "tch")


def count(number: float, unit: str, form: str = ",") -> str:
    """Format a number of things, such as ``1 step`` and ``2,000 steps``.

    ``unit`` is the singular noun; ``form`` is the number's format, which also decides the plural.
    """
    text = format(number, form)
    if text == "1":
        return f"1 {unit}"
    return f"{text} {unit}{'es' if unit.endswith(_HISSING) else 's'}"


def with_article(noun: str) -> str:
    """Return a noun after its indefinite article, as in ``an encoder`` and ``an lstm``."""
    return f"{'an' if noun[0] in 'aeiou' or noun == 'lstm' else 'a'} {noun}"


def enumerate_names(names: Sequence[str], conjunction: str = "and") -> str:
    """Join names by commas, the last by a conjunction."""
    if not names:
        return ""
    *others, last = names
    if not others:
        return last
    return f"{', '.join(others)} {conjunction} {last}"
