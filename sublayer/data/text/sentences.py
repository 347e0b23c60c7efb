"""Sentence splitting: by lines, by rules of prose, or by spaCy; a sentence is one stripped line.

A sentence may end after ``.``, ``?``, ``!``, an ellipsis, or a run of them, and after the Greek
question mark, together with closing quotes and brackets, if whitespace follows. It continues if

- the next word begins in lower case: ``"What?" he said``;
- the full stop belongs to an abbreviation that precedes a name or word (Mr., St., e.g.) or a number
  (No., p., vol.), or to one that ends a sentence only before a capital (etc., Jr., Inc.);
- it belongs to an initial (J. Smith, W. H. Auden; "I" is one after another name or initial);
- it belongs to several initials (U.S., Ph.D., p.m.), unless the next word often begins a sentence
  and seldom a name (The, She, After);
- only the number of a list or a heading precedes it: ``2.``, ``IV.``, ``(b).``;
- the next characters are neither a word nor a number nor an opening quote or bracket.

A full stop within a word or a number (3.14, U.S.A, a.m) has no whitespace after it, so it never
ends a sentence. The marks of other scripts (``OTHER_ENDS``: 。 ！ ？ । ؟ ۔ ። ...) end a sentence,
together with closing quotes and brackets, whether or not a space follows, unless

- a Japanese particle or a comma follows the closing quote: 「はい。」と言った;
- the mark is a wide full stop between digits.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import Any

from sublayer.config.data import SentenceRule
from sublayer.data.text.files import Text, body_range
from sublayer.data.text.ranges import (
    Cut,
    DocumentRange,
    TextUnit,
    chunk_stops,
    chunks_of,
)
from sublayer.errors import extra_module
from sublayer.files.lines import blocks_of
from sublayer.tasks.metrics import OTHER_ENDS, UNSPACED

_OTHER_CLOSERS = "\"'”’»)\\]}」』）】》〉〕〗］｝"
_OTHER = re.compile(
    rf"(?:[{OTHER_ENDS.replace('．', '')}]|．(?![0-9０-９]))[.!?…{OTHER_ENDS}]*"
    rf"(?P<close>[{_OTHER_CLOSERS}]*)\ ?"
)
_GOES_ON = re.compile(r"[\u3041-\u309f,、，]")
# Quotes that close if a space follows: „so“, »so«, ‚so‘.
_CLOSERS = "\"'”’»“‘«›‹)\\]}_*"
_OPENERS = "\"'“‘«„‚»‹›¿¡(\\[{_*—–-"
_GREEK = "\u0370-\u03ff\u1f00-\u1fff"
_END = re.compile(
    rf"(?P<mark>[.!?…]+(?:\ \.+)*|(?<=[{_GREEK}])[;\u037e])(?P<close>[{_CLOSERS}]*)\ "
    rf"(?=(?P<open>[{_OPENERS}]*\ ?)(?P<next>\w*))"
)
_WORD = re.compile(r"[^\s\"'“”‘’«»()\[\]{}_*—–,;:!?…-]+\Z")
_ENUMERATOR = re.compile(
    r"[\"'“‘(\[_*]*(?:\d{1,4}|[IVXLCDM]{1,7}|[ivxl]{1,6}|[A-Za-z])[\"'”’)\]_*]*\Z"
)
_INITIAL = re.compile(r"(?:[^\W\d_]h?\.)*[^\W\d_]\Z")
_WORD_CHARACTERS = 24

_NAMED = """
adm brig capt cdr cmdr col dr esqrs fr gen gov hon lieut lt maj messrs mlle mlles mme mmes mr mrs ms
msgr mt mssrs pres prof rep rev revd sen sergt sgt sr sra srta st ste supt viz vs cf e.g i.e eg ie
ald atty det insp mons
"""
_BEFORE_A_NAME = frozenset(_NAMED.split())
_BEFORE_NUMBERS = """
art ch chap chs fig figs fol l ll lib lin no nos nr p par pp pt pts sec sect ser v ver vol vols jan
feb mar apr jun jul aug sept sep oct nov dec
"""
_BEFORE_A_NUMBER = frozenset(_BEFORE_NUMBERS.split())
_STARTING = """
A After Although An And Are As At Because Before Both But By Did Do Does During Each Even Every For
From Has Have He Her Here His How However I If In Is It Its Many May Most My No Not Now On Once One
Only Or Our She Since So Some Such That The Their Then There These They This Those Though Thus To
Today Under Until Was We Were What When Where Which While Who Why With Yet You Your
"""
_STARTERS = frozenset(_STARTING.split())


def split_sentences(text: str) -> list[str]:
    """Split a paragraph, with single spaces and without line breaks, into its sentences.

    Only the spaces between sentences are lost.
    """
    sentences = []
    for part in split_other_scripts(text):
        start = 0
        for end in _END.finditer(part):
            if _ends(part, start, end):
                sentences.append(part[start : end.end("close")])
                start = end.end()
        if start < len(part):
            sentences.append(part[start:])
    return sentences


def split_other_scripts(text: str) -> list[str]:
    """Split a paragraph only after the marks of ``OTHER_ENDS``, with their closing quotes."""
    if text.isascii():
        return [text]
    parts = []
    start = 0
    for end in _OTHER.finditer(text):
        is_quoted = bool(end["close"]) and not end[0].endswith(" ")
        if is_quoted and _GOES_ON.match(text, end.end()):
            continue
        parts.append(text[start : end.end()].rstrip(" "))
        start = end.end()
    return [*parts, text[start:]] if start < len(text) else parts


def _ends(text: str, start: int, end: re.Match[str]) -> bool:
    following = end["next"]
    if not following and not end["open"]:
        # A symbol follows, or another mark, as in ". . .".
        return False
    if following[:1].islower():
        return False
    mark = end["mark"]
    if mark == ".":
        return not _is_abbreviated(text, start, end.start(), following)
    return not (mark[0] in ".…" and following == "I" and end["close"] == "")


def _is_abbreviated(text: str, start: int, stop: int, following: str) -> bool:
    window = text[max(start, stop - _WORD_CHARACTERS) : stop]
    match = _WORD.search(window)
    if match is None:
        return _ENUMERATOR.fullmatch(text, start, stop) is not None
    word = match[0]
    lower = word.lower()
    if lower in _BEFORE_A_NAME:
        return True
    if lower in _BEFORE_A_NUMBER and following[:1].isdigit():
        return True
    if _INITIAL.fullmatch(word):
        is_first = stop - len(word) == start
        if len(word) > 1:
            return following not in _STARTERS
        if not word.isupper():
            return is_first
        if word != "I" or is_first:
            return True
        # "I" belongs to a name after a capitalized word (Charles I. of England), or after a capital
        # with a full stop; else it is the pronoun, and its full stop ends the sentence.
        before = text[start : stop - len(word)].split(" ")[-2:-1]
        return any(name[:1].isupper() and (name.isalpha() or name[1:] == ".") for name in before)
    if stop - start > _WORD_CHARACTERS:
        return False
    return _ENUMERATOR.fullmatch(text, start, stop) is not None


VERSION = 2
"""Version of the rules: increased whenever equal text would be cut into other sentences."""

_BLANK = re.compile(r"\n[^\S\n]*\n\s*")
_NUMBER_WORDS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen"
    "|sixteen|seventeen|eighteen|nineteen|twenty"
    "|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|last"
)
_PARTS = "chapter|letter|volume|book|part|act|scene|section|canto|stave|chap\\.?|vol\\.?"
_NUMBERED = rf"(?:{_PARTS})\s+(?:[ivxlcdm]+|\d+|{_NUMBER_WORDS})"
_HEADING_LINE = re.compile(rf"{_NUMBERED}[.:]?", re.IGNORECASE)
_HEADING = re.compile(rf"{_NUMBERED}(?:\.|:| ?[—–-]|$)", re.IGNORECASE)
_HEADING_CHARACTERS = 120
_UNSPACED = re.compile(f"[{UNSPACED}]")


def _hear_nothing(data: bytes) -> None:
    pass


def sentences_of(
    part: DocumentRange, rule: TextUnit, hear: Callable[[bytes], None] = _hear_nothing
) -> Iterator[list[str]]:
    """Yield the sentences of a document range, a list for every few megabytes.

    A byte-order mark is dropped, and a Project Gutenberg header and licence if both are marked. A
    pair yields one list: the words of its two sides. The rule must not be ``none``.

    ``hear`` receives all bytes of the range in order, those that are dropped included.

    Raises DataError, with file and line, where the text is not UTF-8.
    """
    text = part.document.read()
    if rule == "pair":
        yield text[:].decode().split("\n")[:2]
        return
    split = RULES[rule]
    last = len(text) if part.stop is None else part.stop
    begin, end = _body(part, text)
    begin = min(begin, last)
    end = max(begin, end)
    for block in blocks_of(text, part.start, begin):
        hear(block)
    for start, chunk in chunks_of(part.document.name, text, begin, end, _cuts(rule)):
        hear(chunk)
        try:
            decoded = chunk.decode("utf-8")
        except UnicodeDecodeError as error:
            remedy = "which data.sentences needs; mend or convert the file"
            raise part.not_utf8(start + error.start, remedy) from error
        yield split(decoded)
    for block in blocks_of(text, end, last):
        hear(block)


def sentence_stops(part: DocumentRange, text: Text, rule: TextUnit) -> Iterator[int]:
    """Yield the positions where a document range may be cut: the ends of its lists of sentences.

    ``text`` is the range's document. The rule must be neither ``none`` nor ``pair``.
    """
    return chunk_stops(part.document.name, text, *_body(part, text), _cuts(rule))


def _body(part: DocumentRange, text: Text) -> tuple[int, int]:
    first, last = body_range(text)
    return max(part.start, first), last if part.stop is None else min(part.stop, last)


def _cuts(rule: TextUnit) -> Cut:
    return _after_line if rule == "lines" else _after_paragraph


def rule_identity(rule: TextUnit) -> list[Any]:
    """Return the identity of a sentence rule, as JSON."""
    library = None
    if rule == "spacy":
        with suppress(PackageNotFoundError):
            library = version("spacy")
    return [rule, VERSION, library]


def by_line(text: str) -> list[str]:
    """Return each line that is not blank as a sentence."""
    lines = map(str.strip, _unix(text).split("\n"))
    return [line for line in lines if line]


def by_prose(text: str) -> list[str]:
    """Split each paragraph at its sentence ends, its lines joined by a space.

    Paragraphs end at blank lines. A paragraph that begins like a chapter heading, and has at most
    120 characters, is one sentence, and so is a line that is only ``Chapter 1``. Sentences end
    by the rules above.
    """
    sentences: list[str] = []
    for paragraph in _paragraphs(text):
        is_short = len(paragraph) <= _HEADING_CHARACTERS and paragraph[0].isupper()
        is_heading = is_short and _HEADING.match(paragraph)
        sentences += [paragraph] if is_heading else split_sentences(paragraph)
    return sentences


def by_spacy(text: str) -> list[str]:
    """Split each paragraph, its lines joined by a space, with the rule-based sentencizer of spaCy.

    Source: ``spacy.blank("en")`` with ``sentencizer``, which needs no model. Its words are English:
    in scripts without spaces between words, sentences end by the rules above. Raises DataError
    where spaCy is missing.
    """
    pipeline = _pipeline()
    sentences: list[str] = []
    for paragraph in _paragraphs(text):
        for part in split_other_scripts(paragraph):
            sentences.extend(sentence.text.strip() for sentence in pipeline(part).sents)
    return [sentence for sentence in sentences if sentence]


RULES: dict[SentenceRule, Callable[[str], list[str]]] = {
    "lines": by_line,
    "prose": by_prose,
    "spacy": by_spacy,
}
"""Function that splits decoded text, for each value of ``data.sentences`` but ``none``."""


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs between blank lines, with lines joined; a heading's line is separate."""
    for block in _BLANK.split(_unix(text)):
        paragraph: list[str] = []
        for line in block.split("\n"):
            words = line.split()
            # Most lines are too long for the pattern, and are not tried.
            is_short = 0 < len(words) <= 3 and words[0][0].isupper()
            if is_short and _HEADING_LINE.fullmatch(" ".join(words)):
                if paragraph:
                    yield _joined(paragraph)
                yield " ".join(words)
                paragraph = []
            elif words:
                paragraph.append(" ".join(words))
        if paragraph:
            yield _joined(paragraph)


def _unix(text: str) -> str:
    if "\r" not in text:
        return text
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _joined(lines: list[str]) -> str:
    """Join the lines of a paragraph, by spaces unless the script has none between words."""
    text = " ".join(lines)
    if text.isascii():
        return text
    parts = [lines[0]]
    for before, line in pairwise(lines):
        is_unspaced = _UNSPACED.match(before[-1]) and _UNSPACED.match(line[0])
        parts.append(line if is_unspaced else f" {line}")
    return "".join(parts)


def _after_line(text: bytes, near: int) -> int:
    newline = text.rfind(b"\n", 0, near)
    # Not at the last byte: the newline of a carriage return may follow.
    carriage_return = text.rfind(b"\r", 0, near - 1)
    return max(newline, carriage_return) + 1


def _after_paragraph(text: bytes, near: int) -> int:
    ends = [text.rfind(mark, 0, near) + len(mark) for mark in (b"\n\n", b"\n\r\n")]
    matches = [end for end, least in zip(ends, (2, 3), strict=True) if end >= least]
    return max(matches, default=0)


@cache
def _pipeline() -> Any:
    pipeline = extra_module("spacy", "data.sentences = spacy", "spacy").blank("en")
    pipeline.add_pipe("sentencizer")
    pipeline.max_length = 1 << 40
    return pipeline
