"""Word boundaries of pieces, and encoding by distinct words.

Each distinct word is encoded once, and its ids put wherever it stands.
"""

import string
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from sublayer.data.arrays import AnyInts, TokenIds
from sublayer.data.subwords.library_content import is_gpt1

SPACE = "▁"
"""The character that stands for a space in a piece."""

_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_INSIDE_WORDS = _PUNCTUATION | frozenset(string.ascii_letters)

Rows = Sequence[Sequence[int]]


class Ragged:
    """Rows of ids of unequal lengths, taken by number as one sequence of ids.

    A row may be empty.
    """

    def __init__(self, rows: Rows) -> None:
        all_ids = chain.from_iterable(rows)
        self._ids = np.fromiter(all_ids, dtype=np.int32)
        lengths = map(len, rows)
        self._lengths = np.fromiter(lengths, dtype=np.int64, count=len(rows))
        ends = np.cumsum(self._lengths)
        self._starts = ends - self._lengths

    def take(self, numbers: AnyInts) -> TokenIds:
        """Return the ids of rows ``numbers``, concatenated; a number may stand there twice."""
        lengths = self._lengths[numbers]  # [rows taken], as the next two
        # Id i of the result is ``shift`` further on in ``_ids``, the same for a whole row.
        starts_in_result = np.cumsum(lengths) - lengths
        shifts = self._starts[numbers] - starts_in_result
        indices = np.arange(lengths.sum())  # [ids of the result]
        indices += np.repeat(shifts, lengths)
        ids: TokenIds = self._ids[indices]
        return ids


def encode_words(words: Sequence[str], encode: Callable[[list[str]], Rows]) -> TokenIds:
    """Encode words that do not depend on each other; ``encode`` sees each distinct one once.

    Returned are the ids of all words, one after another.
    """
    numbers: dict[str, int] = {}
    # A word that is new has the next number.
    of_words = (numbers.setdefault(word, len(numbers)) for word in words)
    indices = np.fromiter(of_words, dtype=np.int64, count=len(words))
    distinct = list(numbers)
    return Ragged(encode(distinct)).take(indices)


def split_words(text: str) -> list[str]:
    """Split a text at spaces and ends of lines, which every tokenizer takes for whitespace."""
    words = text.replace("\n", " ").split(" ")
    return [word for word in words if word]


def begins_word(piece: str) -> bool:
    """Return whether a piece begins a word for ALBERT's masks.

    ``▁the``, ``,`` and ``é`` do, ``ing`` does not: besides what follows a space and punctuation, it
    is whatever is not of letters a to z and punctuation alone.

    Source: google-research/albert, ``create_pretraining_data.py``.
    """
    if piece.startswith((SPACE, "<")) or piece in _PUNCTUATION:
        return True
    return not _INSIDE_WORDS.issuperset(piece)


def word_starts(content: dict[str, Any]) -> Callable[[str], bool] | None:
    """Return the word-start test for pieces of a ``tokenizers`` file; None without words."""
    model = content["model"]
    if model["type"] == "Unigram":
        return begins_word
    if model["type"] != "WordPiece":
        return None
    prefix = model["continuing_subword_prefix"]
    if not prefix:
        return None
    return lambda piece: not piece.startswith(prefix)


def divides_at_whitespace(content: dict[str, Any]) -> bool:
    """Return whether a ``tokenizers`` file has BERT's rules, by which whitespace ends every word.

    The normaliser changes characters one by one, but for marks that combine, which never do with
    whitespace.
    """
    if content["model"]["type"] != "WordPiece" and not is_gpt1(content):
        return False
    normalizer = content["normalizer"]
    if normalizer is not None and normalizer["type"] != "BertNormalizer":
        return False
    pre_tokenizer = content["pre_tokenizer"]
    if pre_tokenizer is None or pre_tokenizer["type"] != "BertPreTokenizer":
        return False
    return all(token["special"] for token in content["added_tokens"])
