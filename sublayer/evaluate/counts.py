"""Bytes, characters and words of a range of tokens, exactly: the denominators of every likelihood."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_WHITESPACE = b" \t\n\r\x0b\x0c"


class Vocabulary(Protocol):
    """What counting needs of a tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Number of ids."""

    @property
    def token_bytes(self) -> NDArray[np.int64]:
        """Raw UTF-8 bytes of each id, 0 for the end of a document."""

    def decode(self, ids: NDArray[np.int64]) -> bytes:
        """The bytes that ids stand for."""


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
    """Count what ranges of a token sequence hold, from one table per vocabulary.

    A character counts with the token that holds the first byte of its UTF-8 form. A word is a longest run of bytes
    that are not ASCII whitespace; it counts with the token that holds its first byte, so that a range which begins
    inside a word does not count that word, and one which ends inside a word does. The end of a document has no bytes
    and ends a word.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        pieces = [vocabulary.decode(np.array([token])) for token in range(vocabulary.vocab_size)]
        self._bytes = np.asarray(vocabulary.token_bytes, dtype=np.int64)
        self._characters = np.array([sum(byte & 0xC0 != 0x80 for byte in piece) for piece in pieces], dtype=np.int64)
        self._inner_words = np.array([_word_starts(piece) for piece in pieces], dtype=np.int64)
        self._begins_word = np.array([bool(piece) and piece[0] not in _WHITESPACE for piece in pieces])
        self._ends_word = np.array([not piece or piece[-1] in _WHITESPACE for piece in pieces])

    def count(self, ids: NDArray[np.integer], start: int, stop: int) -> Counts:
        """Count the tokens ``ids[start:stop]``; ``ids[start - 1]`` tells whether they begin inside a word."""
        counts = Counts(0, 0, 0, 0)
        for low in range(start, stop, 1 << 20):
            counts += self._count_chunk(ids, low, min(low + (1 << 20), stop))
        return counts

    def _count_chunk(self, ids: NDArray[np.integer], start: int, stop: int) -> Counts:
        chunk = np.asarray(ids[start:stop])
        ends_word = self._ends_word[np.asarray(ids[max(start - 1, 0) : stop - 1])]
        if start == 0:
            ends_word = np.concatenate([[True], ends_word])
        words = self._inner_words[chunk].sum() + np.count_nonzero(self._begins_word[chunk] & ends_word)
        return Counts(len(chunk), int(self._bytes[chunk].sum()), int(self._characters[chunk].sum()), int(words))


def _word_starts(piece: bytes) -> int:
    return sum(
        byte not in _WHITESPACE and before in _WHITESPACE for before, byte in zip(piece, piece[1:], strict=False)
    )
