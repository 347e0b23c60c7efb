"""Tokenizers without merges: one id per byte, or one per character."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.data.arrays import Ints, TokenIds
from sublayer.data.tokenizers.base import Tokenizer, decode_utf8
from sublayer.files.file_text import FileText

_REPLACEMENT = "\ufffd"
_N_CODES = 0x110000
"""Codes of Unicode's characters."""


class ByteTokenizer(Tokenizer):
    """One id per byte, its value: any bytes at all."""

    kind = "bytes"
    vocab_size = 256

    def __init__(self) -> None:
        self.token_bytes = np.ones(256, dtype=np.int64)
        # A continuation byte, 10xxxxxx, begins no character.
        begins_character = np.arange(256) & 0xC0 != 0x80
        self.token_characters = begins_character.astype(np.int64)

    def encode(self, text: bytes) -> TokenIds:
        """Return the values of bytes."""
        return np.frombuffer(text, dtype=np.uint8).astype(np.int32)

    def _decode(self, ids: Ints) -> bytes:
        return ids.astype(np.uint8).tobytes()

    def cut(self, text: bytes, near: int) -> int:
        """Cut anywhere."""
        return min(near, len(text))

    def content(self) -> dict[str, Any]:
        """Return the format alone."""
        return self._described()


class CharacterTokenizer(Tokenizer):
    """One id per known character of UTF-8 text; id 0 for any other.

    An unknown character counts as one character of one byte, so that bits per byte err upwards
    where there are some. ``characters`` have the ids from 1 on, in their order; none is there
    twice.
    """

    kind = "characters"
    unk_id = 0
    special_ids = (0,)
    is_lossless = False

    def __init__(self, characters: str) -> None:
        codes = _codes(characters)
        self.characters = characters
        self.vocab_size = len(codes) + 1
        n_bytes = [len(character.encode()) for character in characters]
        self.token_bytes = np.array([1, *n_bytes], dtype=np.int64)
        self.token_characters = np.ones(self.vocab_size, dtype=np.int64)
        self._codes = _codes(_REPLACEMENT + characters)
        self._ids = np.zeros(_N_CODES, dtype=np.int32)
        """The id of each code: an array is indexed much faster than a dictionary is asked."""
        self._ids[codes] = np.arange(1, self.vocab_size)

    @classmethod
    def train(
        cls, texts: Iterable[bytes], *, vocab_size: int | None = None
    ) -> "CharacterTokenizer":
        """Collect the characters of texts; with ``vocab_size``, the most frequent of them.

        ``vocab_size`` counts the unknown id. Raises NotUtf8, a DataError, at the first byte that is
        not UTF-8.
        """
        counts: Counter[int] = Counter()
        for text in texts:
            all_codes = _codes(decode_utf8(text))
            codes, numbers = np.unique(all_codes, return_counts=True)
            in_text = zip(codes.tolist(), numbers.tolist(), strict=True)
            counts.update(dict(in_text))
        most_frequent = sorted(counts, key=lambda code: (-counts[code], code))
        if vocab_size is not None:
            most_frequent = most_frequent[: vocab_size - 1]
        characters = map(chr, sorted(most_frequent))
        return cls("".join(characters))

    def encode(self, text: bytes) -> TokenIds:
        """Encode UTF-8; raise NotUtf8, a DataError, at the first byte that is not."""
        codes = _codes(decode_utf8(text))
        return self._ids[codes]

    def _decode(self, ids: Ints) -> bytes:
        # The unknown id becomes U+FFFD.
        utf_32 = self._codes[ids].tobytes()
        return utf_32.decode("utf-32-le").encode()

    def cut(self, text: bytes, near: int) -> int:
        """Cut where a character begins."""
        return character_start(text, near)

    def content(self) -> dict[str, Any]:
        """Return the characters in order of their ids, from id 1."""
        return self._described(characters=list(self.characters))


def character_start(text: bytes | FileText, near: int) -> int:
    """Return the last position up to ``near`` that starts a UTF-8 sequence, in bytes.

    Where four bytes in a row continue one, the bytes are not UTF-8 and ``near`` is as good.
    """
    if near >= len(text):
        return len(text)
    for position in range(near, max(near - 4, -1), -1):
        if text[position] & 0xC0 != 0x80:
            return position
    return near


def _codes(text: str) -> NDArray[np.uint32]:
    utf_32 = text.encode("utf-32-le")
    return np.frombuffer(utf_32, dtype="<u4").astype(np.uint32)
