"""Tokenizers: from raw bytes to ids and back, with the exact length of each id in bytes."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.errors import DataError

FORMAT = "sublayer-tokenizer"
VERSION = 1

Ids = NDArray[np.integer]


class NotUtf8(DataError):
    """Bytes that are not UTF-8, given to a tokenizer of characters; ``position`` is the first bad byte."""

    def __init__(self, text: bytes, position: int) -> None:
        self.position = position
        self.line = text.count(b"\n", 0, position) + 1
        self.byte = text[position]
        super().__init__(
            f"line {self.line}: byte 0x{self.byte:02x} is not UTF-8, which a tokenizer of characters needs"
        )


class Tokenizer(ABC):
    """What turns raw bytes into ids below ``vocab_size`` and back.

    ``end_id`` marks the end of a document and has no bytes; None where there is none. ``unk_id`` stands for what the
    vocabulary lacks. ``is_lossless``: ``decode(encode(text)) == text`` and ``token_bytes[encode(text)].sum() ==
    len(text)`` for any bytes.
    """

    kind: str
    vocab_size: int
    end_id: int | None = None
    unk_id: int | None = None
    is_lossless: bool = True
    token_bytes: NDArray[np.int64]
    """Raw bytes that each id stands for, ``[V]``; 0 for ids without text."""
    token_characters: NDArray[np.int64]
    """Characters that begin in each id, ``[V]``: bytes that do not continue a UTF-8 sequence."""

    @abstractmethod
    def encode(self, text: bytes) -> NDArray[np.int32]:
        """Turn bytes into ids. Raises DataError where they are not UTF-8 and the tokenizer needs it."""

    @abstractmethod
    def decode(self, ids: Ids | Sequence[int]) -> bytes:
        """Turn ids into bytes."""

    @abstractmethod
    def cut(self, text: bytes, near: int) -> int:
        """Give the last position up to ``near`` where encoding in two parts changes no id; 0 if there is none."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Give all that defines the tokenizer, as JSON."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what defines the tokenizer."""
        text = json.dumps(self.content(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def serialize(self) -> bytes:
        """Give the bytes of its ``tokenizer.json``."""
        return json.dumps(self.content(), ensure_ascii=False, indent=1).encode() + b"\n"

    def save(self, path: Path) -> None:
        """Write ``tokenizer.json`` to ``path``, the file's own name."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.serialize())


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

    def decode(self, ids: Ids | Sequence[int]) -> bytes:
        """Turn values into bytes."""
        return np.asarray(ids).astype(np.uint8).tobytes()

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
    is_lossless = False

    def __init__(self, characters: str) -> None:
        codes = np.frombuffer(characters.encode("utf-32-le"), dtype=np.uint32)
        self.characters = characters
        self.vocab_size = len(codes) + 1
        self.token_bytes = np.array([1, *(len(character.encode()) for character in characters)], dtype=np.int64)
        self.token_characters = np.ones(self.vocab_size, dtype=np.int64)
        self._codes = np.concatenate([[0xFFFD], codes]).astype(np.uint32)
        self._ids = np.zeros(0x110000, dtype=np.int32)
        self._ids[codes] = np.arange(1, self.vocab_size)

    @classmethod
    def train(cls, texts: Iterable[bytes], *, vocab_size: int | None = None) -> "CharacterTokenizer":
        """Take the characters of texts, the most frequent where ``vocab_size``, the unknown id included, is smaller."""
        counts: Counter[int] = Counter()
        for text in texts:
            codes, numbers = np.unique(_codes(text), return_counts=True)
            counts.update(dict(zip(codes.tolist(), numbers.tolist(), strict=True)))
        kept = sorted(counts, key=lambda code: (-counts[code], code))[: None if vocab_size is None else vocab_size - 1]
        return cls("".join(map(chr, sorted(kept))))

    def encode(self, text: bytes) -> NDArray[np.int32]:
        """Turn UTF-8 into ids. Raises NotUtf8, a DataError, at the first byte that is not."""
        return self._ids[_codes(text)]

    def decode(self, ids: Ids | Sequence[int]) -> bytes:
        """Turn ids into UTF-8, the unknown id into U+FFFD."""
        return self._codes[np.asarray(ids, dtype=np.int64)].tobytes().decode("utf-32-le").encode()

    def cut(self, text: bytes, near: int) -> int:
        """Cut before the character that begins at or before ``near``."""
        return character_start(text, near)

    def content(self) -> dict[str, Any]:
        """Give the characters in order of their ids, from id 1."""
        return {"format": FORMAT, "version": VERSION, "kind": self.kind, "characters": list(self.characters)}


def character_start(text: bytes, near: int) -> int:
    """Give the last position up to ``near`` that does not continue a UTF-8 sequence.

    Where more than three bytes before ``near`` continue one, the bytes are not UTF-8 and ``near`` is as good.
    """
    if near >= len(text):
        return len(text)
    for position in range(near, max(near - 4, -1), -1):
        if text[position] & 0xC0 != 0x80:
            return position
    return near


def _codes(text: bytes) -> NDArray[np.uint32]:
    try:
        characters = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotUtf8(text, error.start) from None
    return np.frombuffer(characters.encode("utf-32-le"), dtype=np.uint32)
