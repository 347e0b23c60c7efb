"""GPT-1's published text rules: a text mended, its marks set apart, its words spaCy's."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from sublayer.data.arrays import Ints
from sublayer.system.extras import extra_module

NEWLINE = "\n"
"""The word that stands for the ends of lines between two that hold text."""

_REPLACED = str.maketrans({"—": "-", "–": "-", "―": "-", "…": "...", "´": "'"})
# The backslash is missing: the published pattern names it without escaping it, and loses it.
_APART = re.compile(r'([-~!";?+,)(/*\[\]}{|_])\1*')
_SPACES = re.compile(r"[^\S\n]+")
_LINE_ENDS = re.compile(r" ?\n[ \n]*")

# Printable ASCII and tabs without the ampersand of HTML's entities: what ftfy leaves as it is, but
# for a carriage return before the end of a line.
_PLAIN = re.compile(r"([\t -%'-~]*)(\r?\n)?")
_PLAIN_BYTES = re.compile(rb"[\t -%'-~]*\r?")
_BETWEEN_LETTERS = re.compile(rb"(?<=[a-z]) (?=[a-z])")

_BLOCK_CHARACTERS = 64 << 10
_SEARCHED_BYTES = 256 << 10
_EXTRA = "GPT-1's published text rules"


class Words(NamedTuple):
    """The words of a part of a text, in order: ``distinct[n]`` for each ``n`` of ``numbers``."""

    distinct: list[str]
    numbers: Ints


def words_of(text: str) -> Iterator[Words]:
    """Divide a text into words in lower case by the published rules, a bounded part at a time.

    Raises DataError without ftfy or spaCy. Source: openai/finetune-transformer-lm,
    ``text_utils.py``; spaCy's English tokenizer, as ``spacy.blank("en")`` has it.
    """
    return divide(standardise(mend(text)))


def divide(standard: str) -> Iterator[Words]:
    """Divide a standardised text as ``words_of`` does; raise DataError without spaCy."""
    tokenizer, strings, lower = _spacy()
    for block in _blocks(standard):
        if block == NEWLINE:
            yield Words([NEWLINE], np.zeros(1, dtype=np.int64))
            continue
        hashes, numbers = np.unique(tokenizer(block).to_array([lower]), return_inverse=True)
        words = map(strings.__getitem__, hashes.tolist())
        # An end of line has its space with it, and only whitespace has any in it.
        distinct = [NEWLINE if word.isspace() else word for word in words]
        yield Words(distinct, numbers.reshape(-1))


def mend(text: str) -> str:
    """Mend a text as ``ftfy.fix_text`` does, which is called for lines that it may change.

    It undoes wrong encodings, writes curled quotes straight, HTML's entities as characters up to
    the first line with a ``<``, and so on. Raises DataError without ftfy.
    """
    return "".join(mended for _, mended in mend_lines(text))


def mend_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield each line of a text, its end with it, and what ``mend`` makes of it."""
    ftfy = extra_module("ftfy", _EXTRA, "spacy")
    before_tag = ftfy.TextFixerConfig(explain=False)
    after_tag = ftfy.TextFixerConfig(explain=False, unescape_html=False)
    has_tag = False
    for line in _lines(text):
        if plain := _PLAIN.fullmatch(line):
            mended_line = plain[1] + ("\n" if plain[2] else "")
        else:
            mended_line = ftfy.fix_text(line, after_tag if has_tag else before_tag)
        yield line, mended_line
        has_tag = has_tag or "<" in line


def standardise(text: str) -> str:
    """Set marks apart, and make whitespace single spaces and ends of lines with a space around.

    Dashes become hyphens, an ellipsis three stops, an acute accent an apostrophe. A run of one of
    ``-~!";?+,)(/*[]}{|_`` has a space on either side.
    """
    apart = _APART.sub(r" \g<0> ", text.translate(_REPLACED))
    # In this order both take time in proportion to the text.
    spaced = _SPACES.sub(" ", apart)
    return _LINE_ENDS.sub(" \n ", spaced).strip()


def cut(text: bytes, near: int) -> int:
    """Return a late position up to ``near`` where a cut changes no word; 0 without one.

    It is before a space between two letters a to z, in a line that ftfy leaves as it is, and before
    the first ``<``, which affects all that follows.
    """
    tag = text.find(b"<", 0, near)
    end = near if tag < 0 else tag
    start = max(0, end - _SEARCHED_BYTES)
    while (newline := text.rfind(b"\n", start, end)) >= 0:
        begin = text.rfind(b"\n", start, newline) + 1
        if begin == 0 < start:
            # Where that line begins is not known.
            return 0
        line = text[begin:newline]
        places = [match.start() for match in _BETWEEN_LETTERS.finditer(line)]
        if places and _PLAIN_BYTES.fullmatch(line):
            return begin + places[-1]
        end = newline
    return 0


def _lines(text: str) -> Iterator[str]:
    *lines, last = text.split("\n")
    yield from (f"{line}\n" for line in lines)
    if last:
        yield last


def _blocks(text: str) -> Iterator[str]:
    """Cut a standardised text where no word is: at ends of lines, which are blocks of their own,
    or in a long line between letters.
    """
    start = 0
    while len(text) - start > _BLOCK_CHARACTERS:
        newline = text.rfind("\n", start, start + _BLOCK_CHARACTERS)
        if newline < 0:
            position = _between_letters(text, start, start + _BLOCK_CHARACTERS)
            if not position:
                break
            yield text[start:position]
            start = position + 1
        else:
            yield text[start : newline - 1]
            yield NEWLINE
            start = newline + 2
    if start < len(text):
        yield text[start:]


def _between_letters(text: str, start: int, near: int) -> int:
    position = text.rfind(" ", start + 1, near)
    while position > 0:
        around = text[position - 1] + text[position + 1 : position + 2]
        if len(around) == 2 and around.isascii() and around.isalpha() and around.islower():
            return position
        position = text.rfind(" ", start + 1, position)
    return 0


@cache
def _spacy() -> tuple[Any, Any, Any]:
    """Return spaCy's English tokenizer, its strings by hash, and its number of ``lower``."""
    spacy = extra_module("spacy", _EXTRA, "spacy")
    attributes = extra_module("spacy.attrs", _EXTRA, "spacy")
    pipeline = spacy.blank("en")
    return pipeline.tokenizer, pipeline.vocab.strings, attributes.LOWER
