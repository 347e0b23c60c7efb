"""Pronouns marked by stars: ``Bob asked Tom if *he* can lend some money.``"""

import re

from sublayer.errors import DataError


def mark_word(text: str, pronoun: str, index: int) -> str:
    """Put stars around a pronoun, given by its place among the words that spaces separate.

    Punctuation that sticks to it is moved off: ``him,"`` becomes ``*him* ,"``. Where another word
    stands in the place, the pronoun's nearest occurrence is meant. Both repair by rule the two
    texts that T5's ``wsc_simple`` repairs by hand; unlike there, a pronoun may be the first or the
    last word.

    Raises DataError where the text has no such word.
    """
    words = text.split(" ")
    n_words = len(pronoun.split(" "))
    pattern = re.compile(rf"(\W*){re.escape(pronoun)}(\W*)")
    matches = {}
    for place in range(len(words) - n_words + 1):
        match = pattern.fullmatch(" ".join(words[place : place + n_words]))
        if match:
            matches[place] = match
    if not matches:
        raise DataError(f"{pronoun!r} is no word of {text!r}")
    place = min(matches, key=lambda place: abs(place - index))
    before, after = matches[place].groups()
    parts = [part for part in (before, f"*{pronoun}*", after) if part]
    return " ".join([*words[:place], *parts, *words[place + n_words :]])


def mark_first(text: str, pronoun: str) -> str:
    """Put stars around the first occurrence of a pronoun between a space and a space, full stop or
    comma; without one, around the first that is a whole word, whatever its capitals.

    Source: T5's ``definite_pronoun_resolution_simple``, but for the second rule, which is ours:
    there, such a text stays unmarked. Raises DataError where the text has no such word.
    """
    word = re.escape(pronoun)
    match = re.search(rf"(?<= ){word}(?=[ .,])", text)
    match = match or re.search(rf"\b{word}\b", text, re.IGNORECASE)
    if match is None:
        raise DataError(f"{pronoun!r} is no word of {text!r}")
    return f"{text[: match.start()]}*{match[0]}*{text[match.end() :]}"
