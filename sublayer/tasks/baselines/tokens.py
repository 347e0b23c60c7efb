"""Texts as words, as the baselines read them."""

import re
from functools import cache
from unicodedata import category

from sublayer.tasks.scripts import UNSPACED

_TOKEN = re.compile(r"\w+|[^\w\s]")


def split_words(text: str) -> list[str]:
    """Return words and marks in lower case: "Don't go." is don ' t go . of them.

    Vowel signs and accents belong to their words; each character of a script without spaces between
    words is one.
    """
    pattern = _TOKEN if text.isascii() else _token_of_any_script()
    return pattern.findall(text.lower())


@cache
def _token_of_any_script() -> re.Pattern[str]:
    signs = "".join(each for each in map(chr, range(0x300, 0x10000)) if category(each)[0] == "M")
    return re.compile(rf"[{UNSPACED}]|(?:(?![{UNSPACED}])[\w{signs}])+|[^\w\s]")


class Words:
    """Splits texts, each of which is split once: a passage stands in many examples."""

    def __init__(self) -> None:
        self._split: dict[str, list[str]] = {}

    def of(self, text: str) -> list[str]:
        """Return the words of a text."""
        words = self._split.get(text)
        if words is None:
            words = self._split[text] = split_words(text)
        return words
