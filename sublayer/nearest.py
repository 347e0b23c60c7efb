"""Find the word that was probably meant."""

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

LONGEST_WORD = 80
"""Characters of the longest word that is compared; a longer one takes long, and is no slip."""


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that the word was probably meant to be, if any is near.

    Near is a ratio of difflib's of at least 0.6 where the word is a part of the choice or has the
    same letters, and of 0.65 where both begin alike: ``width`` is no slip for ``watch``.
    """
    if len(word) > LONGEST_WORD:
        return None
    matches = get_close_matches(word, list(choices), n=5, cutoff=0.6)
    return next((choice for choice in matches if _is_slip(word.lower(), choice.lower())), None)


def _is_slip(word: str, choice: str) -> bool:
    is_part = len(word) > 3 and word in choice
    if is_part or sorted(word) == sorted(choice):
        return True
    return word[:1] == choice[:1] and SequenceMatcher(None, choice, word).ratio() >= 0.65


def nearest_hint(word: str, choices: Iterable[str]) -> str:
    """Format the choice that was probably meant, for the end of a message; empty for none."""
    near = nearest(word, choices)
    return f": did you mean {near}?" if near else ""
