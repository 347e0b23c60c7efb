"""What every tokenizer is: raw bytes to ids and back, with the exact length of each id in bytes."""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.errors import ConfigError, DataError

FORMAT = "sublayer-tokenizer"
VERSION = 1

Ids = NDArray[np.integer] | Sequence[int]

SPECIAL_NAMES = {
    "pad_id": ("[PAD]", "<pad>"),
    "cls_id": ("[CLS]", "<cls>", "<s>"),
    "sep_id": ("[SEP]", "<sep>", "</s>"),
    "mask_id": ("[MASK]", "<mask>"),
}
"""What masked objectives need of a vocabulary, and the usual names of each, first choice first."""

_LACKING = "\ufffd".encode()
_UNUSED = re.compile(r"\[unused\d+\]")


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

    ``pad_id``, ``cls_id``, ``sep_id`` and ``mask_id`` are what masked objectives put around and into a text; None where
    the vocabulary has none. ``special_ids`` are all ids that stand for no text, ascending: these, the end, the unknown,
    and what the file marks as unused.
    """

    kind: str
    vocab_size: int
    end_id: int | None = None
    unk_id: int | None = None
    pad_id: int | None = None
    cls_id: int | None = None
    sep_id: int | None = None
    mask_id: int | None = None
    special_ids: tuple[int, ...] = ()
    has_words: bool = False
    """Whether ids show where words begin, as whole-word masks need."""
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

    def encode_targets(self, texts: Sequence[bytes]) -> list[NDArray[np.int32]]:
        """Turn texts of the language that is translated into: otherwise than others where languages are apart."""
        return self.encode_many(texts)

    def decode(self, ids: Ids) -> bytes:
        """Turn ids into bytes; each that the vocabulary lacks, as one of a larger model may be, into U+FFFD."""
        found = np.asarray(ids, dtype=np.int64)
        is_known = (found >= 0) & (found < self.vocab_size)
        if is_known.all():
            return self._decode(found)
        places = np.flatnonzero(np.diff(is_known)) + 1
        runs = zip(np.split(found, places), np.split(is_known, places), strict=True)
        return b"".join(self._decode(run) if known[0] else _LACKING * len(run) for run, known in runs)

    @abstractmethod
    def _decode(self, ids: NDArray[np.int64]) -> bytes:
        """Turn ids below ``vocab_size`` into bytes."""

    @abstractmethod
    def cut(self, text: bytes, near: int) -> int:
        """Give the last position up to ``near`` where encoding in two parts changes no id; 0 if there is none."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Give all that defines the tokenizer, as JSON."""

    def starts_word(self, ids: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Tell which ids of a sequence begin a word; special ids do.

        A sequence that was cut inside a word may begin with ids that begin none.
        Raises ConfigError where the tokenizer has no words.
        """
        raise ConfigError(
            f"a tokenizer of kind {self.kind} does not show where words begin: whole words are masked with "
            "data.tokenizer = unigram, wordpiece or moses-bpe"
        )

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


def check_masking(tokenizer: Tokenizer, name: str) -> None:
    """Raise ConfigError unless a vocabulary has what masked objectives need; ``name`` is what the message calls it."""
    missing = [names[0] for key, names in SPECIAL_NAMES.items() if getattr(tokenizer, key) is None]
    if missing:
        raise ConfigError(
            f"{name} has no {', no '.join(missing)}, which masked objectives need: "
            "give a file whose vocabulary has them, or train data.tokenizer = unigram, wordpiece or moses-bpe"
        )


def find_special(names: Mapping[str, int]) -> dict[str, int | None]:
    """Find the ids of ``SPECIAL_NAMES`` by their usual names in a vocabulary."""
    return {key: next((names[name] for name in usual if name in names), None) for key, usual in SPECIAL_NAMES.items()}


def is_unused(name: str) -> bool:
    """Tell whether a piece's name marks its id as free, as BERT's ``[unused0]`` does."""
    return _UNUSED.fullmatch(name) is not None


def decode_utf8(text: bytes) -> str:
    """Read bytes as UTF-8. Raises NotUtf8, a DataError, at the first byte that is not."""
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotUtf8(text, error.start) from None


def after_newline(text: bytes, near: int) -> int:
    """Give the last position up to ``near`` that follows a newline; 0 if there is none."""
    return text.rfind(b"\n", 0, near) + 1


def count_characters(pieces: Sequence[bytes]) -> NDArray[np.int64]:
    """Count the characters that begin in each piece of UTF-8."""
    return np.array([sum(byte & 0xC0 != 0x80 for byte in piece) for piece in pieces], dtype=np.int64)
