"""Words: which pieces begin them, and encoding each different one once, with its ids put wherever it stands."""

import string
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

SPACE = "▁"
"""What stands for a space in a piece."""

_LETTERS = frozenset(string.ascii_letters)
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')

Rows = Sequence[Sequence[int]]


class Ragged:
    """Rows of ids of unequal lengths, taken by number as one sequence of ids."""

    def __init__(self, rows: Rows) -> None:
        self._ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32)
        self._lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        self._starts = np.cumsum(self._lengths) - self._lengths

    def take(self, numbers: NDArray[np.integer]) -> NDArray[np.int32]:
        """Give the ids of the rows of these numbers, one after another."""
        lengths = self._lengths[numbers]
        shifts = self._starts[numbers] - (np.cumsum(lengths) - lengths)
        ids: NDArray[np.int32] = self._ids[np.repeat(shifts, lengths) + np.arange(lengths.sum())]
        return ids


def encode_words(words: Sequence[str], encode: Callable[[list[str]], Rows]) -> NDArray[np.int32]:
    """Encode words that do not depend on each other; ``encode`` sees each different one once."""
    numbers: dict[str, int] = {}
    places = np.fromiter((numbers.setdefault(word, len(numbers)) for word in words), dtype=np.int64, count=len(words))
    return Ragged(encode(list(numbers))).take(places)


def split_words(text: str) -> list[str]:
    """Divide a text at spaces and ends of lines, which every tokenizer takes for whitespace."""
    return [word for word in text.replace("\n", " ").split(" ") if word]


def begins_word(piece: str) -> bool:
    """Tell whether a piece begins a word for ALBERT's masks: google-research/albert, ``create_pretraining_data.py``."""
    if piece.startswith((SPACE, "<")) or piece in _PUNCTUATION:
        return True
    return not all(character in _LETTERS or character in _PUNCTUATION for character in piece)


def word_starts(content: dict[str, Any]) -> Callable[[str], bool] | None:
    """Give what tells whether a piece begins a word, for a file of the ``tokenizers`` library; None if nothing does."""
    model = content["model"]
    if model["type"] == "Unigram":
        return begins_word
    mark = model["continuing_subword_prefix"] if model["type"] == "WordPiece" else None
    return (lambda piece: not piece.startswith(mark)) if mark else None


def divides_at_whitespace(content: dict[str, Any]) -> bool:
    """Tell whether a file of the ``tokenizers`` library has BERT's rules, by which whitespace ends every word.

    The normaliser changes characters one by one, but for marks that combine, which never do with whitespace.
    """
    normalizer, pre_tokenizer = content["normalizer"], content["pre_tokenizer"]
    return (
        content["model"]["type"] == "WordPiece"
        and (normalizer is None or normalizer["type"] == "BertNormalizer")
        and pre_tokenizer is not None
        and pre_tokenizer["type"] == "BertPreTokenizer"
        and all(token["special"] for token in content["added_tokens"])
    )
