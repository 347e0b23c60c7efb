"""Exact bytes, characters and words of a range of tokens: the denominators of every likelihood."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sublayer.data.split import Split

_WHITESPACE = b" \t\n\r\x0b\x0c"
_CHUNK_TOKENS = 1 << 20
"""Tokens that are counted at a time, which bounds the memory."""


@dataclass(frozen=True)
class Counts:
    """Size of a piece of text in each unit that a likelihood is divided by."""

    tokens: int
    bytes: int
    """Of the raw UTF-8 text that the ids stand for."""
    characters: int
    """Unicode's, each counted at its first byte."""
    words: int
    """Runs between ASCII whitespace, each counted at its first byte."""

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            tokens=self.tokens + other.tokens,
            bytes=self.bytes + other.bytes,
            characters=self.characters + other.characters,
            words=self.words + other.words,
        )


class Counter:
    """Count what ranges of a split hold, from one table per tokenizer.

    A character counts with the token that holds the first byte of its UTF-8 form. A word is a
    longest run of bytes that are not ASCII whitespace; it counts with the token that holds its
    first byte, so that a range which begins inside a word does not count that word, and one which
    ends inside a word does. No word goes from one document into the next.
    """

    def __init__(self, split: Split) -> None:
        tokenizer = split.tokenizer
        self._split = split
        # Of each id of the vocabulary [V], as the three below.
        self._bytes = tokenizer.token_bytes
        self._characters = tokenizer.token_characters
        n_ids = len(tokenizer.token_bytes)
        self._inner_words = np.zeros(n_ids, dtype=np.int64)
        self._begins_word = np.zeros(n_ids, dtype=np.bool_)
        self._ends_word = np.ones(n_ids, dtype=np.bool_)
        for token in np.flatnonzero(tokenizer.token_bytes).tolist():
            piece = tokenizer.decode([token])
            if not piece:
                continue
            first = piece[0]
            last = piece[-1]
            self._inner_words[token] = _count_inner_words(piece)
            self._begins_word[token] = first not in _WHITESPACE
            self._ends_word[token] = last in _WHITESPACE

    def count(self, start: int, stop: int) -> Counts:
        """Count what the tokens from position ``start`` to before ``stop`` hold."""
        counts = Counts(0, 0, 0, 0)
        for low in range(start, stop, _CHUNK_TOKENS):
            high = min(low + _CHUNK_TOKENS, stop)
            counts += self._count_chunk(low, high)
        return counts

    def count_each(self, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count adjacent ranges: tokens, bytes, characters, words, ``[N, 4]``.

        ``bounds`` are the starts of the ranges, and the end of the last, ``[N + 1]``; no range is
        empty.
        """
        longest = int(np.diff(bounds).max())
        n_at_once = max(1, _CHUNK_TOKENS // longest)
        parts = []
        n_ranges = len(bounds) - 1
        for low in range(0, n_ranges, n_at_once):
            high = low + n_at_once
            part = bounds[low : high + 1]  # the end of the last range with it
            first = int(part[0])
            stop = int(part[-1])
            of_tokens = self._count_tokens(first, stop)
            starts = part[:-1] - first
            of_ranges = np.add.reduceat(of_tokens, starts, axis=1)
            parts.append(of_ranges.T)
        return np.concatenate(parts)

    def _count_chunk(self, start: int, stop: int) -> Counts:
        of_tokens = self._count_tokens(start, stop)
        return Counts(*of_tokens.sum(1).tolist())

    def _count_tokens(self, start: int, stop: int) -> NDArray[np.int64]:
        """Count what each token of a range adds: tokens, bytes, characters, words, ``[4, N]``."""
        ids = np.asarray(self._split.ids[start:stop])
        follows_word_end = np.ones(len(ids), dtype=np.bool_)  # [N], as all below
        ids_before = ids[:-1]
        follows_word_end[1:] = self._ends_word[ids_before]
        if start > 0:
            before = self._split.ids[start - 1]
            follows_word_end[0] = self._ends_word[before]
        documents = self._split.document_starts
        first, last = np.searchsorted(documents, (start, stop))
        first_of_documents = documents[first:last] - start
        follows_word_end[first_of_documents] = True
        # A token that begins inside a word continues it; the word was counted before.
        begun = self._begins_word[ids] & follows_word_end
        tokens = np.ones(len(ids), dtype=np.int64)
        n_bytes = self._bytes[ids].astype(np.int64)
        characters = self._characters[ids].astype(np.int64)
        words = self._inner_words[ids] + begun
        return np.stack([tokens, n_bytes, characters, words])


def _count_inner_words(piece: bytes) -> int:
    """Count the words that begin behind the first byte."""
    n_words = 0
    for before, byte in pairwise(piece):
        if before in _WHITESPACE and byte not in _WHITESPACE:
            n_words += 1
    return n_words
