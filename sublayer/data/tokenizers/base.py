"""The interface of tokenizers: bytes to ids and back, with the exact bytes of each id."""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from sublayer.data.arrays import AnyInts, Bools, Ints, TokenIds
from sublayer.errors import ConfigError, DataError
from sublayer.files.storage import write_file

FORMAT = "sublayer-tokenizer"
VERSION = 1

Ids = AnyInts | Sequence[int]
"""Token ids of one text, ``[T]``."""

SPECIAL_NAMES = {
    "pad_id": ("[PAD]", "<pad>"),
    "cls_id": ("[CLS]", "<cls>", "<s>"),
    "sep_id": ("[SEP]", "<sep>", "</s>"),
    "mask_id": ("[MASK]", "<mask>"),
}
"""Special tokens that masked objectives need, and their usual names, first choice first."""

NO_TEXT = "there is no text to train a tokenizer on: give one with letters, and a longer one"
_LACKING = "\ufffd".encode()
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
_UNUSED = re.compile(r"\[unused\d+\]")


class NotUtf8(DataError):
    """Bytes that a tokenizer of UTF-8 cannot read; ``position`` is the first bad byte."""

    def __init__(self, text: bytes, position: int) -> None:
        self.position = position
        self.byte = text[position]
        line = text.count(b"\n", 0, position) + 1
        super().__init__(
            f"line {line}: byte 0x{self.byte:02x} is not UTF-8, which this tokenizer needs"
        )


class Tokenizer(ABC):
    """Encodes bytes into ids below ``vocab_size`` and decodes them.

    An id is None where the vocabulary has none of its kind.
    """

    kind: str
    """Its name in files, and in the recipe that trains it, such as ``unigram``."""
    vocab_size: int
    """One more than the highest id; between them some may stand for nothing."""
    end_id: int | None = None
    """Marks the end of a document, and has no bytes."""
    unk_id: int | None = None
    """Stands for what the vocabulary lacks."""
    # What masked objectives put around and into a text.
    pad_id: int | None = None
    cls_id: int | None = None
    sep_id: int | None = None
    mask_id: int | None = None
    special_ids: tuple[int, ...] = ()
    """All ids that stand for no text, ascending: these, the end, the unknown, the sentinels, and
    what the file marks as unused."""
    sentinel_ids: tuple[int, ...] = ()
    """What stands for the gaps of a text: the k-th is the id of ``<extra_id_k>``. It has no bytes,
    and is decoded as its name; a text has none of them unless its marks are read."""
    marks: Mapping[str, int] = MappingProxyType({})
    """The names of special tokens that a text may hold, to their ids."""
    reads_marks: bool | None = None
    """Whether such a name in a text is its id; None: it is text, as nothing says otherwise."""
    added_ids: Mapping[str, int] = MappingProxyType({})
    """Ids that were put behind a vocabulary, by their names; they stand for no text."""
    has_words: bool = False
    """Whether ids show where words begin, as whole-word masks need."""
    is_lossless: bool = True
    """Whether for any bytes ``decode(encode(text)) == text`` and
    ``token_bytes[encode(text)].sum() == len(text)``, but for marks that are read and stand for no
    text, such as an end."""
    token_bytes: Ints
    """Raw bytes that each id stands for, ``[V]``; 0 for ids without text."""
    token_characters: Ints
    """Characters that begin in each id, ``[V]``: its bytes that start a UTF-8 sequence."""

    @abstractmethod
    def encode(self, text: bytes) -> TokenIds:
        """Encode bytes; raise DataError where a tokenizer of UTF-8 is given anything else."""

    def encode_many(self, texts: Sequence[bytes]) -> list[TokenIds]:
        """Encode each of several texts, as ``encode`` does one."""
        return [self.encode(text) for text in texts]

    def encode_targets(self, texts: Sequence[bytes]) -> list[TokenIds]:
        """Encode texts of the target language, which may have a model of its own."""
        return self.encode_many(texts)

    def decode(self, ids: Ids) -> bytes:
        """Decode ids; those beyond the vocabulary, which a larger model may have, become U+FFFD."""
        all_ids = np.asarray(ids, dtype=np.int64)
        is_known = (all_ids >= 0) & (all_ids < self.vocab_size)
        if is_known.all():
            return self._decode(all_ids)
        texts = []
        bounds = np.flatnonzero(np.diff(is_known)) + 1
        for run in np.split(all_ids, bounds):
            # All ids of a run are known, or none is.
            if 0 <= run[0] < self.vocab_size:
                texts.append(self._decode(run))
            else:
                texts.append(_LACKING * len(run))
        return b"".join(texts)

    @abstractmethod
    def _decode(self, ids: Ints) -> bytes:
        """Decode ids below ``vocab_size``."""

    @abstractmethod
    def cut(self, text: bytes, near: int) -> int:
        """Return the last position up to ``near`` where a cut changes no id; 0 without one.

        Positions are in bytes.
        """

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Return all that defines the tokenizer, as JSON: equal content encodes equally."""

    def starts_word(self, ids: AnyInts) -> Bools:
        """Return which ids of a sequence begin a word; special ids do.

        A sequence that was cut inside a word may begin with ids that begin none.
        Raises ConfigError where the tokenizer has no words.
        """
        raise ConfigError(
            f"a tokenizer of kind {self.kind} does not show where words begin: "
            "whole words are masked with "
            "data.tokenizer = unigram, wordpiece or moses-bpe"
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of what defines the tokenizer, in hexadecimal."""
        text = json.dumps(self.content(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def serialize(self, *, is_kept: bool = False) -> bytes:
        """Return the bytes of its ``tokenizer.json``; with ``is_kept`` always in our own format."""
        return json.dumps(self.content(), ensure_ascii=False, indent=1).encode() + b"\n"

    def save(self, path: Path) -> None:
        """Write it to a file, whole or not at all, usually called ``tokenizer.json``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, self.serialize())


def check_masking(tokenizer: Tokenizer, name: str) -> None:
    """Raise ConfigError, with ``name``, unless a vocabulary has what masking needs."""
    missing = []
    for key, names in SPECIAL_NAMES.items():
        if getattr(tokenizer, key) is None:
            missing.append(names[0])
    if missing:
        raise ConfigError(
            f"{name} has no {', no '.join(missing)}, which masked objectives need: "
            "give a file whose vocabulary has them, or train data.tokenizer = unigram, "
            "wordpiece or moses-bpe"
        )


def find_special(names: Mapping[str, int]) -> dict[str, int | None]:
    """Find the ids of ``SPECIAL_NAMES``, in its order, by their usual names in a vocabulary.

    None for one that the vocabulary has not.
    """
    special = {}
    for key, usual in SPECIAL_NAMES.items():
        in_vocabulary = (names[name] for name in usual if name in names)
        special[key] = next(in_vocabulary, None)
    return special


def is_unused(name: str) -> bool:
    """Return whether a piece's name marks its id as free, as BERT's ``[unused0]`` does."""
    return _UNUSED.fullmatch(name) is not None


def decode_utf8(text: bytes) -> str:
    """Read bytes as UTF-8. Raises NotUtf8, a DataError, at the first byte that is not."""
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotUtf8(text, error.start) from None


def after_newline(text: bytes, near: int) -> int:
    """Return the last position up to ``near`` that follows a newline; 0 without one."""
    return text.rfind(b"\n", 0, near) + 1


def count_characters(pieces: Sequence[bytes]) -> Ints:
    """Count the characters that begin in each piece of UTF-8, ``[V]``."""
    # All but a continuation byte, 10xxxxxx, begin one.
    counts = [len(piece.translate(None, _CONTINUATION_BYTES)) for piece in pieces]
    return np.array(counts, dtype=np.int64)
