"""What is done to a text before SentencePiece sees it."""

import re
import sys
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sublayer.errors import DataError
from sublayer.parsing import read_json_object

CONFIG_NAME = "tokenizer_config.json"


@dataclass(frozen=True)
class Normalization:
    """ALBERT's rules; the names of the fields are those of its published settings.

    ``keep_accents`` false: NFKD, and combining marks are stripped. ``divide_digit_commas``: a piece that ends in a
    digit and a comma is divided before the comma. Source: google-research/albert, ``tokenization.py``.
    """

    do_lower_case: bool = True
    keep_accents: bool = False
    divide_digit_commas: bool = True

    @classmethod
    def of(cls, pieces: Iterable[str], *, is_masked: bool) -> "Normalization":
        """Find the rules that a vocabulary was made by; only those with a mask divide before commas."""
        text = " ".join(pieces)
        return cls(
            do_lower_case=text.lower() == text,
            keep_accents=_composed(strip_accents(text)) != _composed(text),
            divide_digit_commas=is_masked,
        )

    @classmethod
    def read(cls, folder: Path) -> "Normalization | None":
        """Read the rules of a ``tokenizer_config.json``; None where it has none. Raises DataError if it is damaged."""
        settings = read_settings(folder)
        if not {"do_lower_case", "keep_accents"} & settings.keys():
            return None
        return cls.from_content(
            {
                "do_lower_case": settings.get("do_lower_case", True),
                "keep_accents": settings.get("keep_accents", False),
                "divide_digit_commas": True,
            }
        )

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> "Normalization":
        """Make what ``content`` gave. Raises DataError, without a path, where it is damaged."""
        found = {name: content.get(name) for name in ("do_lower_case", "keep_accents", "divide_digit_commas")}
        for name, value in found.items():
            if not isinstance(value, bool):
                raise DataError(f"{name} = {value!r} must be true or false")
        return cls(**{name: bool(value) for name, value in found.items()})

    def content(self) -> dict[str, bool]:
        """Give the rules, as JSON."""
        return asdict(self)

    def lines(self, text: str) -> list[str]:
        """Give the lines of a text that are not empty, each normalised; whitespace in one becomes a single space."""
        lines: Iterable[str] = (" ".join(line.split()) for line in text.split("\n"))
        if not self.keep_accents:
            lines = map(strip_accents, lines)
        if self.do_lower_case:
            lines = map(str.lower, lines)
        return [line for line in lines if line]


AS_WRITTEN = Normalization(do_lower_case=False, keep_accents=True, divide_digit_commas=False)
"""The rules that leave a text to SentencePiece's own alone."""


def strip_accents(text: str) -> str:
    """Decompose a text (NFKD) and leave out what combines with the character before it."""
    if text.isascii():
        return text
    return _combining().sub("", unicodedata.normalize("NFKD", text))


def read_settings(folder: Path) -> dict[str, Any]:
    """Read a folder's ``tokenizer_config.json``; nothing where there is none. Raises DataError if it is damaged."""
    path = folder / CONFIG_NAME
    if not path.is_file():
        return {}
    return read_json_object(path, DataError)


def _composed(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


@cache
def combining_characters() -> str:
    """List all characters that combine with the one before them, by Python's tables."""
    return "".join(chr(code) for code in range(sys.maxunicode + 1) if unicodedata.combining(chr(code)))


@cache
def _combining() -> re.Pattern[str]:
    return re.compile(f"[{combining_characters()}]+")
