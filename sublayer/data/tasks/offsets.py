"""Tokens with their places: which characters of the text as it was written each stands for."""

from typing import NamedTuple

import numpy as np

from sublayer.data.arrays import Ints, TokenIds
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tasks.alignment import align
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.characters import CharacterTokenizer


class PlacedTokens(NamedTuple):
    """A text's tokens ``[T]`` and their places."""

    ids: TokenIds
    starts: Ints
    """Where each begins, in characters."""
    ends: Ints
    """Where each ends, behind its last. A character of which several have a part is in each."""

    def covering(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the first and the last token of which characters ``start`` to ``end - 1`` have a
        part; None where no token has.
        """
        touched = np.flatnonzero((self.starts < end) & (self.ends > start))
        if not len(touched):
            return None
        return int(touched[0]), int(touched[-1])

    def slice(self, first: int, last: int, text: str) -> slice:
        """Return which characters tokens ``first`` to ``last`` stand for, but for the whitespace at
        either end.
        """
        start, end = int(self.starts[first]), int(self.ends[first : last + 1].max())
        piece = text[start:end]
        start += len(piece) - len(piece.lstrip())
        return slice(start, start + len(piece.strip()))


def encode_with_offsets(tokenizer: Tokenizer, text: str) -> PlacedTokens:
    """Encode a text as the tokenizer does, and place each token in it.

    Places are exact where the tokenizer keeps every byte, has an id for each character, or is one
    of the ``tokenizers`` library, which knows them. For others, which lower letters, strip accents
    and whitespace or rewrite punctuation first, pieces are aligned with the text. Half of a
    character that UTF-16 writes in two is encoded as ``?``.
    """
    data = text.encode("utf-8", "replace")
    ids = tokenizer.encode(data)
    if tokenizer.is_lossless:
        return _by_bytes(tokenizer, ids, data)
    if isinstance(tokenizer, CharacterTokenizer):
        places = np.arange(len(ids))
        return PlacedTokens(ids, places, places + 1)
    if isinstance(tokenizer, SubwordTokenizer):
        known, spans = tokenizer.encode_with_spans(data.decode())
        if np.array_equal(known, ids):
            return PlacedTokens(ids, spans[:, 0], spans[:, 1])
    return PlacedTokens(ids, *align(tokenizer, ids, data.decode()))


def _by_bytes(tokenizer: Tokenizer, ids: TokenIds, data: bytes) -> PlacedTokens:
    byte_ends = np.cumsum(tokenizer.token_bytes[ids])
    byte_starts = byte_ends - tokenizer.token_bytes[ids]
    codes = np.frombuffer(data, dtype=np.uint8)
    # The character of each byte; all but a continuation byte, 10xxxxxx, begin one.
    characters = np.cumsum(codes & 0xC0 != 0x80) - 1
    starts = characters[byte_starts]
    ends = characters[byte_ends - 1] + 1
    return PlacedTokens(ids, starts, ends)
