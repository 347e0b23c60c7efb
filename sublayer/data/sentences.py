"""The sentences of a document: by line, by rules for prose, or by spaCy; each without a line break or blank ends."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from sublayer.config.data import SentenceRule
from sublayer.data.characters import character_start
from sublayer.data.gutenberg import body_range
from sublayer.data.piece import Piece, chunks_of, not_utf8
from sublayer.data.records import extra_module
from sublayer.data.sentence_ends import split_sentences
from sublayer.data.text import Text

VERSION = 1
"""Changes whenever equal text would be cut into other sentences."""

_BLANK = re.compile(r"\n[^\S\n]*\n\s*")
_NUMBER_WORDS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
    "|eighteen|nineteen|twenty|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|last"
)
_PARTS = "chapter|letter|volume|book|part|act|scene|section|canto|stave|chap\\.?|vol\\.?"
_NUMBERED = rf"(?:{_PARTS})\s+(?:[ivxlcdm]+|\d+|{_NUMBER_WORDS})"
_HEADING_LINE = re.compile(rf"{_NUMBERED}[.:]?", re.IGNORECASE)
_HEADING = re.compile(rf"{_NUMBERED}(?:\.|:| ?[—–-]|$)", re.IGNORECASE)
_HEADING_CHARACTERS = 120


TextUnit = SentenceRule | Literal["pair"]
"""What a document is cut into: nothing, sentences by a rule, or the two lines of a pair."""


def sentences_of(piece: Piece, rule: TextUnit) -> Iterator[list[str]]:
    """Give the sentences of a piece of a document, a list for each few megabytes of it.

    A byte-order mark is dropped, and a Project Gutenberg header and licence where both are marked.
    Raises DataError, with file and line, where the text is not UTF-8.
    """
    text = piece.document.read()
    if rule == "pair":
        yield text[:].decode().split("\n")[:2]
        return
    first, last = body_range(text)
    stop = last if piece.stop is None else min(piece.stop, last)
    split = RULES[rule]
    cut = _after_line if rule == "lines" else _after_paragraph
    for start, chunk in chunks_of(text, max(piece.start, first), stop, cut):
        try:
            decoded = chunk.decode("utf-8")
        except UnicodeDecodeError as error:
            name, position = piece.document.name, start + error.start
            raise not_utf8(name, text, position, "which data.sentences needs; mend or convert the file") from error
        yield split(decoded)


def sentence_cut(text: Text, near: int, least: int) -> int:
    """Give the last place up to ``near`` where a document may be cut in two.

    After a blank line, else after a line, else between characters, whichever there is after ``least``.
    """
    if near >= len(text):
        return len(text)
    for mark in (b"\n\n", b"\n\r\n", b"\n", b"\r"):
        place = text.rfind(mark, least, near)
        if place >= 0 and place + len(mark) > least:
            return place + len(mark)
    return character_start(text, near)


def rule_identity(rule: TextUnit) -> list[Any]:
    """Say which rule cuts sentences, for a key: JSON."""
    return [rule, VERSION, _spacy_version() if rule == "spacy" else None]


def by_line(text: str) -> list[str]:
    """Take each line that is not blank as a sentence."""
    return [line for line in map(str.strip, _unix(text).split("\n")) if line]


def by_prose(text: str) -> list[str]:
    """Split each paragraph, which ends at a blank line, at its sentence ends, its lines joined by a space.

    A paragraph that begins as a chapter heading does, and is short, is one sentence; so is a line that is nothing
    but ``Chapter 1``.
    """
    return [sentence for each in _paragraphs(text) for sentence in _whole_or_split(each)]


def by_spacy(text: str) -> list[str]:
    """Split each paragraph, its lines joined by a space, with the rule-based sentencizer of spaCy.

    Source: ``spacy.blank("en")`` with ``sentencizer``, which needs no model. Raises DataError where it is missing.
    """
    pipeline = _pipeline()
    found: list[str] = []
    for each in _paragraphs(text):
        found.extend(sentence.text.strip() for sentence in pipeline(each).sents)
    return [sentence for sentence in found if sentence]


RULES: dict[SentenceRule, Callable[[str], list[str]]] = {"lines": by_line, "prose": by_prose, "spacy": by_spacy}
"""The sentences of decoded text, by each value of ``data.sentences`` but none."""


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in _BLANK.split(_unix(text)):
        yield from _unheaded(paragraph.split("\n"))


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _unheaded(lines: list[str]) -> Iterator[str]:
    held: list[str] = []
    for line in lines:
        words = line.split()
        # The pattern is tried on few lines: most are longer than it can match.
        if 0 < len(words) <= 3 and words[0][0].isupper() and _HEADING_LINE.fullmatch(" ".join(words)):
            if held:
                yield " ".join(held)
            yield " ".join(words)
            held = []
        else:
            held.extend(words)
    if held:
        yield " ".join(held)


def _whole_or_split(paragraph: str) -> list[str]:
    if len(paragraph) <= _HEADING_CHARACTERS and paragraph[0].isupper() and _HEADING.match(paragraph):
        return [paragraph]
    return split_sentences(paragraph)


def _after_line(text: bytes, near: int) -> int:
    return max(text.rfind(b"\n", 0, near), text.rfind(b"\r", 0, near - 1)) + 1


def _after_paragraph(text: bytes, near: int) -> int:
    places = [text.rfind(mark, 0, near) + len(mark) for mark in (b"\n\n", b"\n\r\n") if mark in text[:near]]
    return max(places, default=0)


@cache
def _pipeline() -> Any:
    pipeline = extra_module("spacy", "data.sentences = spacy", "spacy").blank("en")
    pipeline.add_pipe("sentencizer")
    pipeline.max_length = 1 << 40
    return pipeline


def _spacy_version() -> str | None:
    try:
        return version("spacy")
    except PackageNotFoundError:
        return None
