"""What every tokenizer is: raw bytes to ids and back, with the exact length of each id in bytes."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.errors import DataError

FORMAT = "sublayer-tokenizer"
VERSION = 1

Ids = NDArray[np.integer] | Sequence[int]


class NotUtf8(DataError):
    """Bytes that are not UTF-8, given to a tokenizer that needs it; ``position`` is the first bad byte."""

    def __init__(self, text: bytes, position: int) -> None:
        self.position = position
        self.byte = text[position]
        line = text.count(b"\n", 0, position) + 1
        super().__init__(f"line {line}: byte 0x{self.byte:02x} is not UTF-8, which this tokenizer needs")


class Tokenizer(ABC):
    """What turns raw bytes into ids below ``vocab_size`` and back.

    ``end_id`` marks the end of a document and has no bytes; None where there is none. ``unk_id`` stands for what the
    vocabulary lacks. ``is_lossless``: for any bytes, ``decode(encode(text)) == text`` and
    ``token_bytes[encode(text)].sum() == len(text)``.
    """

    kind: str
    vocab_size: int
    end_id: int | None = None
    unk_id: int | None = None
    is_lossless: bool = True
    token_bytes: NDArray[np.int64]
    """Raw bytes that each id stands for, ``[V]``; 0 for ids without text."""
    token_characters: NDArray[np.int64]
    """Characters that begin in each id, ``[V]``: its bytes that do not continue a UTF-8 sequence."""

    @abstractmethod
    def encode(self, text: bytes) -> NDArray[np.int32]:
        """Turn bytes into ids. Raises DataError where they are not UTF-8 and the tokenizer needs it."""

    def encode_many(self, texts: Sequence[bytes]) -> list[NDArray[np.int32]]:
        """Turn each of several texts into ids, as ``encode`` does one."""
        return [self.encode(text) for text in texts]

    @abstractmethod
    def decode(self, ids: Ids) -> bytes:
        """Turn ids into bytes."""

    @abstractmethod
    def cut(self, text: bytes, near: int) -> int:
        """Give the last position up to ``near`` where encoding in two parts changes no id; 0 if there is none."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Give all that defines the tokenizer, as JSON."""

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of what defines the tokenizer."""
        text = json.dumps(self.content(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def serialize(self) -> bytes:
        """Give the bytes of its ``tokenizer.json``."""
        return json.dumps(self.content(), ensure_ascii=False, indent=1).encode() + b"\n"

    def save(self, path: Path) -> None:
        """Write it to a file, usually called ``tokenizer.json``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.serialize())


def count_characters(pieces: Sequence[bytes]) -> NDArray[np.int64]:
    """Count the characters that begin in each piece of UTF-8."""
    return np.array([sum(byte & 0xC0 != 0x80 for byte in piece) for piece in pieces], dtype=np.int64)
