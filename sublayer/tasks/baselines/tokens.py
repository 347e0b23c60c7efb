"""Texts as words, as the baselines read them."""

import re

_TOKEN = re.compile(r"\w+|[^\w\s]")


def split_words(text: str) -> list[str]:
    """Return words and marks in lower case: "Don't go." is don ' t go . of them."""
    return _TOKEN.findall(text.lower())


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
