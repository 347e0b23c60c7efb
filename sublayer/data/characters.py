"""Tokenizers without merges: one id per byte, or one per character."""

import mmap
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.data.vocabulary import FORMAT, VERSION, Tokenizer, decode_utf8

_REPLACEMENT = "\ufffd"


class ByteTokenizer(Tokenizer):
    """One id per byte, its value: any bytes at all."""

    kind = "bytes"
    vocab_size = 256

    def __init__(self) -> None:
        self.token_bytes = np.ones(256, dtype=np.int64)
        self.token_characters = (np.arange(256) & 0xC0 != 0x80).astype(np.int64)

    def encode(self, text: bytes) -> NDArray[np.int32]:
        """Turn bytes into their values."""
        return np.frombuffer(text, dtype=np.uint8).astype(np.int32)

    def _decode(self, ids: NDArray[np.int64]) -> bytes:
        return ids.astype(np.uint8).tobytes()

    def cut(self, text: bytes, near: int) -> int:
        """Cut anywhere."""
        return min(near, len(text))

    def content(self) -> dict[str, Any]:
        """Give the format alone."""
        return {"format": FORMAT, "version": VERSION, "kind": self.kind}


class CharacterTokenizer(Tokenizer):
    """One id per known character of UTF-8 text; id 0 for any other.

    An unknown character counts as one character of one byte, so that bits per byte err upwards where there are some.
    """

    kind = "characters"
    unk_id = 0
    special_ids = (0,)
    is_lossless = False

    def __init__(self, characters: str) -> None:
        codes = _codes(characters)
        self.characters = characters
        self.vocab_size = len(codes) + 1
        self.token_bytes = np.array([1, *(len(character.encode()) for character in characters)], dtype=np.int64)
        self.token_characters = np.ones(self.vocab_size, dtype=np.int64)
        self._codes = _codes(_REPLACEMENT + characters)
        self._ids = np.zeros(0x110000, dtype=np.int32)
        self._ids[codes] = np.arange(1, self.vocab_size)

    @classmethod
    def train(cls, texts: Iterable[bytes], *, vocab_size: int | None = None) -> "CharacterTokenizer":
        """Take the characters of texts; with ``vocab_size``, which counts the unknown id, the most frequent of them.

        Raises NotUtf8, a DataError, at the first byte that is not UTF-8.
        """
        counts: Counter[int] = Counter()
        for text in texts:
            codes, numbers = np.unique(_codes(decode_utf8(text)), return_counts=True)
            counts.update(dict(zip(codes.tolist(), numbers.tolist(), strict=True)))
        kept = sorted(counts, key=lambda code: (-counts[code], code))[: None if vocab_size is None else vocab_size - 1]
        return cls("".join(map(chr, sorted(kept))))

    def encode(self, text: bytes) -> NDArray[np.int32]:
        """Turn UTF-8 into ids. Raises NotUtf8, a DataError, at the first byte that is not."""
        return self._ids[_codes(decode_utf8(text))]

    def _decode(self, ids: NDArray[np.int64]) -> bytes:
        # The unknown id becomes U+FFFD.
        return self._codes[ids].tobytes().decode("utf-32-le").encode()

    def cut(self, text: bytes, near: int) -> int:
        """Cut where a character begins."""
        return character_start(text, near)

    def content(self) -> dict[str, Any]:
        """Give the characters in order of their ids, from id 1."""
        return {"format": FORMAT, "version": VERSION, "kind": self.kind, "characters": list(self.characters)}


def character_start(text: bytes | mmap.mmap, near: int) -> int:
    """Give the last position up to ``near`` that does not continue a UTF-8 sequence.

    Where four bytes in a row continue one, the bytes are not UTF-8 and ``near`` is as good.
    """
    if near >= len(text):
        return len(text)
    for position in range(near, max(near - 4, -1), -1):
        if text[position] & 0xC0 != 0x80:
            return position
    return near


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.uint32)
