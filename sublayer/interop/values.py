"""Rules for values of another system's config: each returns a value, or says what it is not."""

from collections.abc import Callable, Collection
from typing import Any

LARGEST_EPS = 1.0
"""The most that a norm may add to the variance."""

Rule = Callable[[Any], Any]
"""Reads a value of a file. Raises ValueError, in words that follow the value, where it is none."""

_SHOWN = 60
"""Characters of a value in a line of error."""
_MOST_BITS = 128
"""Bits of a number that is written out in one."""


class Unsayable(ValueError):
    """A value that has a meaning, which no recipe can say."""


def whole(most: int) -> Rule:
    """Build the rule of whole numbers from 1 to ``most``."""

    def rule(value: Any) -> int:
        if type(value) is not int or value < 1:
            raise ValueError("is not a whole number of at least 1")
        if value > most:
            raise ValueError(f"is more than {most:,}")
        return value

    return rule


def token_id(value: Any) -> int:
    """Return the id of a token, a whole number from 0, whether or not a vocabulary has it."""
    if type(value) is not int or value < 0:
        raise ValueError("is not the id of a token")
    return value


def share(value: Any) -> float:
    """Return a probability of dropping, from 0 to less than 1."""
    if type(value) not in (int, float) or not 0 <= value < 1:
        raise ValueError("is not a number of at least 0 and less than 1")
    return float(value)


def positive(most: float) -> Rule:
    """Build the rule of numbers greater than 0 and at most ``most``."""

    def rule(value: Any) -> float:
        if type(value) not in (int, float) or not 0 < value < float("inf"):
            raise ValueError("is not a number greater than 0")
        if value > most:
            raise ValueError(f"is more than {most:g}")
        return float(value)

    return rule


def flag(value: Any) -> bool:
    """Return a truth value; 0 and 1 are none."""
    if type(value) is not bool:
        raise ValueError("is not true or false")
    return value


def one_of(names: Collection[str]) -> Rule:
    """Build the rule of a name among some."""

    def rule(value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError(f"is not one of {', '.join(names)}")
        return value

    return rule


def only(*allowed: Any) -> Rule:
    """Build the rule of the values of a field that change nothing; a number is no truth value.

    The rule raises Unsayable for any other value.
    """

    def rule(value: Any) -> Any:
        for each in allowed:
            if type(value) is type(each) and value == each:
                return value
        choices = " or ".join(map(repr, allowed))
        raise Unsayable(f"only {choices}")

    return rule


def optional(inner: Rule) -> Rule:
    """Build the rule of a field that may also be null."""
    return lambda value: None if value is None else inner(value)


def format_value(value: Any) -> str:
    """Format a value for a line of error, cut where it is long."""
    # Python refuses to write out numbers of very many digits.
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"a number of {value.bit_length():,} bits"
    text = repr(value)
    if len(text) <= _SHOWN:
        return text
    return f"{text[: _SHOWN - 4]} ..."
