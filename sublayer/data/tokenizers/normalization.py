"""Normalisation of text before SentencePiece encodes it."""

import re
import sys
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from sublayer.errors import DataError
from sublayer.files.parsing import read_json_object

CONFIG_NAME = "tokenizer_config.json"
_ALBERTS, T5S = "AlbertTokenizer", "T5Tokenizer"
_WITH_RULES = (_ALBERTS, "XLNetTokenizer", "PreTrainedTokenizer", "")
"""Classes that read ``do_lower_case`` and ``keep_accents``, or folders that name none."""
_MODELS = "is_models"


@dataclass(frozen=True)
class Normalization:
    """ALBERT's rules; the names of the fields are those of its published settings.

    Source: google-research/albert, ``tokenization.py``.
    """

    do_lower_case: bool = True
    keep_accents: bool = False
    """Where False, text is decomposed (NFKD) and combining marks are stripped."""
    divide_digit_commas: bool = True
    """Whether a piece that ends in a digit and a comma is divided before the comma."""
    is_models: bool = False
    """Whether a text reaches SentencePiece as it is, whitespace and ends of lines too, so that the
    model's own rules alone change it."""

    @classmethod
    def of(cls, pieces: Iterable[str]) -> "Normalization":
        """Detect the rules of a vocabulary as ALBERT's by its pieces.

        Letters are lowered if none is a capital, accents stripped if none has any.
        """
        text = " ".join(pieces)
        without_accents = _composed(strip_accents(text))
        return cls(
            do_lower_case=text.lower() == text,
            keep_accents=without_accents != _composed(text),
        )

    @classmethod
    def read(cls, folder: Path, class_name: str = "") -> "Normalization | None":
        """Read the rules of ``tokenizer_config.json``; raise DataError if it is damaged.

        None where there is none, or it says nothing of capitals and accents and ``class_name``, of
        transformers, is not ALBERT's, which lowers and strips by default. Of classes without such
        rules, as T5's, a model's own are all, whatever the settings say.
        """
        settings = read_settings(folder)
        if class_name not in _WITH_RULES:
            return AS_MODEL
        is_said = bool({"do_lower_case", "keep_accents"} & settings.keys())
        if class_name != _ALBERTS and not is_said:
            return None
        return cls.from_content(
            {
                "do_lower_case": settings.get("do_lower_case", True),
                "keep_accents": settings.get("keep_accents", False),
                "divide_digit_commas": settings.get("divide_digit_commas", True),
            }
        )

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> "Normalization":
        """Build from ``content``; raise DataError, without a path, where it is damaged."""
        fields: dict[str, bool] = {}
        for name in ("do_lower_case", "keep_accents", "divide_digit_commas", _MODELS):
            value = content.get(name, False if name == _MODELS else None)
            if not isinstance(value, bool):
                raise DataError(f"{name} = {value!r} must be true or false")
            fields[name] = value
        return cls(**fields)

    def content(self) -> dict[str, bool]:
        """Return the rules, as JSON."""
        rules = asdict(self)
        if not self.is_models:
            del rules[_MODELS]
        return rules

    def lines(self, text: str) -> list[str]:
        """Return the non-empty lines of a text, normalised, with single spaces."""
        assert not self.is_models, "the model normalises"
        lines: Iterable[str] = (" ".join(line.split()) for line in text.split("\n"))
        if not self.keep_accents:
            lines = map(strip_accents, lines)
        if self.do_lower_case:
            lines = map(str.lower, lines)
        return [line for line in lines if line]


AS_WRITTEN = Normalization(do_lower_case=False, keep_accents=True, divide_digit_commas=False)
"""The rules that leave each line of a text, with single spaces, to SentencePiece's own."""
AS_MODEL = replace(AS_WRITTEN, is_models=True)
"""The rules that leave a text to SentencePiece's own alone."""


def strip_accents(text: str) -> str:
    """Decompose a text (NFKD) and leave out what combines with the character before it."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    return _combining().sub("", decomposed)


def read_settings(folder: Path) -> dict[str, Any]:
    """Read a folder's ``tokenizer_config.json``, empty without; raise DataError if damaged."""
    path = folder / CONFIG_NAME
    if not path.is_file():
        return {}
    return read_json_object(path, DataError)


def _composed(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


@cache
def combining_characters() -> str:
    """List all characters that combine with the one before them, by Python's tables."""
    characters = map(chr, range(sys.maxunicode + 1))
    return "".join(filter(unicodedata.combining, characters))


@cache
def _combining() -> re.Pattern[str]:
    return re.compile(f"[{combining_characters()}]+")
