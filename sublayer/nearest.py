"""The nearest valid word to a misspelled one."""

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

LONGEST_WORD = 80
"""Characters of the longest compared word; a longer one is slow to compare, and no typo."""


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that the word probably means, if any is near.

    Near is a ratio of difflib's of at least 0.6 where the word is a part of the choice or has the
    same letters, and of 0.65 where both begin alike: ``width`` is no slip for ``watch``.
    """
    if len(word) > LONGEST_WORD:
        return None
    for choice in get_close_matches(word, list(choices), n=5, cutoff=0.6):
        typed, meant = word.lower(), choice.lower()
        is_part = len(typed) > 3 and typed in meant
        if is_part or sorted(typed) == sorted(meant):
            return choice
        if typed[:1] == meant[:1] and SequenceMatcher(None, meant, typed).ratio() >= 0.65:
            return choice
    return None


def nearest_hint(word: str, choices: Iterable[str]) -> str:
    """Format the probable choice for the end of a message; empty for none."""
    near = nearest(word, choices)
    return f": did you mean {near}?" if near else ""
