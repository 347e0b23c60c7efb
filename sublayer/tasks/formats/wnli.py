"""WNLI's pairs as pronouns: where the hypothesis has a noun, the premise has a pronoun.

Source: T5's ``wnli_simple``, whose authors checked it on the development and test sets by hand.
"""

import re
from dataclasses import dataclass

_PRONOUNS = ("he", "she", "they", "it", "her", "his", "their", "them", "him")
_ARTICLES = ("a", "an", "the")
_END = re.compile(r"[.,?!]$")


@dataclass(frozen=True, slots=True)
class Pronoun:
    """A premise with its pronoun marked, and the noun that the hypothesis has instead."""

    text: str
    referent: str


def as_pronoun(premise: str, hypothesis: str) -> Pronoun:
    """Find the pronoun of the premise whose neighbours the hypothesis shares most.

    The first of equals. Where none has a noun in its place, nothing is marked and the referent is
    the whole hypothesis; T5 fails there.
    """
    words = premise.split()
    clean = [_END.sub("", word.lower()) for word in words]
    spoken = " ".join(_END.sub("", word.lower()) for word in hypothesis.split())
    best = None
    for place, word in enumerate(clean):
        if word not in _PRONOUNS:
            continue
        before, after = _shared_before(clean[:place], spoken), _shared(clean[place + 1 :], spoken)
        n_shared = len(before) + len(after)
        if best is None or n_shared > best[0]:
            best = n_shared, place, before, after
    noun = None
    if best is not None and best[0]:
        _, place, before, after = best
        noun = _between(before, after, spoken)
    if noun is None:
        return Pronoun(premise, hypothesis)
    referent = _as_written(noun, hypothesis)
    return Pronoun(_marked(words, place), referent)


def _shared(words: list[str], text: str) -> list[str]:
    n_shared = 0
    while n_shared < len(words) and " ".join(words[: n_shared + 1]) in text:
        n_shared += 1
    return words[:n_shared]


def _shared_before(words: list[str], text: str) -> list[str]:
    backwards = " ".join(reversed(text.split(" ")))
    return _shared(words[::-1], backwards)[::-1]


def _between(before: list[str], after: list[str], text: str) -> str | None:
    left, right = ([re.escape(word) for word in words] for words in (before, after))
    patterns = [*left, "(.+)", *right], ["^(.+)", *right], [*left, "(.+)$"]
    for pattern in patterns:
        match = re.search(" ".join(pattern), text)
        if match:
            return match[1]
    return None


def _as_written(noun: str, hypothesis: str) -> str:
    words = noun.split(" ")
    # The match may begin too early: an article that follows begins the noun.
    articles = [words.index(article) for article in _ARTICLES if article in words]
    words = words[max(articles, default=0) :]
    pattern = " ".join(rf"{re.escape(word)}[.,?!]?" for word in words)
    match = re.search(pattern, " ".join(hypothesis.split()), re.IGNORECASE)
    assert match, "the noun was found in the hypothesis"
    written = _END.sub("", match[0])
    # A noun is never possessive, even where its pronoun is.
    for possessive in ("'s", "'"):
        if written.endswith(possessive):
            return written.removesuffix(possessive)
    return written


def _marked(words: list[str], place: int) -> str:
    word = words[place]
    marked = f"*{word[:-1]}* {word[-1]}" if _END.search(word) else f"*{word}*"
    return " ".join([*words[:place], marked, *words[place + 1 :]])
