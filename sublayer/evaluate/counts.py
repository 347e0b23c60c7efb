"""Bytes, characters and words of a range of tokens, exactly: the denominators of every likelihood."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sublayer.data.split import Split

_WHITESPACE = b" \t\n\r\x0b\x0c"
_CHUNK_TOKENS = 1 << 20


@dataclass(frozen=True)
class Counts:
    """Size of a piece of text in each unit that a likelihood is divided by."""

    tokens: int
    bytes: int
    characters: int
    words: int

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.tokens + other.tokens,
            self.bytes + other.bytes,
            self.characters + other.characters,
            self.words + other.words,
        )


class Counter:
    """Count what ranges of a split hold, from one table per tokenizer.

    A character counts with the token that holds the first byte of its UTF-8 form. A word is a longest run of bytes
    that are not ASCII whitespace; it counts with the token that holds its first byte, so that a range which begins
    inside a word does not count that word, and one which ends inside a word does. No word goes from one document into
    the next.
    """

    def __init__(self, split: Split) -> None:
        tokenizer = split.tokenizer
        pieces = [
            tokenizer.decode([token]) if length else b"" for token, length in enumerate(tokenizer.token_bytes.tolist())
        ]
        self._split = split
        self._bytes = tokenizer.token_bytes
        self._characters = tokenizer.token_characters
        self._inner_words = np.array([_inner_words(piece) for piece in pieces], dtype=np.int64)
        self._begins_word = np.array([bool(piece) and piece[0] not in _WHITESPACE for piece in pieces])
        self._ends_word = np.array([not piece or piece[-1] in _WHITESPACE for piece in pieces])

    def count(self, start: int, stop: int) -> Counts:
        """Count the tokens from position ``start`` to before ``stop``."""
        counts = Counts(0, 0, 0, 0)
        for low in range(start, stop, _CHUNK_TOKENS):
            counts += self._count_chunk(low, min(low + _CHUNK_TOKENS, stop))
        return counts

    def _count_chunk(self, start: int, stop: int) -> Counts:
        chunk = np.asarray(self._split.ids[start:stop])
        follows_word_end = np.ones(len(chunk), dtype=np.bool_)
        follows_word_end[1:] = self._ends_word[chunk[:-1]]
        if start > 0:
            follows_word_end[0] = self._ends_word[self._split.ids[start - 1]]
        starts = self._split.document_starts
        follows_word_end[starts[(starts >= start) & (starts < stop)] - start] = True
        words = self._inner_words[chunk].sum() + np.count_nonzero(self._begins_word[chunk] & follows_word_end)
        return Counts(len(chunk), int(self._bytes[chunk].sum()), int(self._characters[chunk].sum()), int(words))


def _inner_words(piece: bytes) -> int:
    return sum(before in _WHITESPACE and byte not in _WHITESPACE for before, byte in pairwise(piece))
