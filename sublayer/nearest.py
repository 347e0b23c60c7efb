"""Find the word that was probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST_WORD = 80
"""Characters of the longest word that is compared; a longer one takes long, and is no slip."""


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that the word was probably meant to be, if any is near.

    Near is a ratio of difflib's of at least 0.6, which is its default.
    """
    if len(word) > LONGEST_WORD:
        return None
    matches = get_close_matches(word, list(choices), n=1, cutoff=0.6)
    if not matches:
        return None
    return matches[0]


def nearest_hint(word: str, choices: Iterable[str]) -> str:
    """Format the choice that was probably meant, for the end of a message; empty for none."""
    near = nearest(word, choices)
    return f": did you mean {near}?" if near else ""
