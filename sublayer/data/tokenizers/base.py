"""Interface of tokenizers, with a cache of words and files; tokenizers of bytes and characters."""

import hashlib
import json
import re
import string
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice, pairwise
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Annotated, Any, TypeVar
from unicodedata import category

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sublayer.errors import ConfigError, DataError
from sublayer.files.arrays import AnyInts, Bools, Ints, TokenIds
from sublayer.files.lines import FileText, check_no_pointer
from sublayer.files.parsing import check_typed, read_bytes
from sublayer.files.storage import describe_absence, write_file
from sublayer.tasks.metrics import UNSPACED

_NAME = re.compile(rb"<extra_id_(0|[1-9][0-9]*)>")


def sentinel_name(number: int) -> str:
    """Return the name of a sentinel, ``<extra_id_0>`` for the first."""
    return f"<extra_id_{number}>"


def find_sentinels(names: Mapping[str, int]) -> tuple[int, ...]:
    """Find the ids of sentinels by their names: the k-th is the id of ``<extra_id_k>``.

    They end at the first missing number.
    """
    ids: list[int] = []
    while (id_ := names.get(sentinel_name(len(ids)))) is not None:
        ids.append(id_)
    return tuple(ids)


def split_at_gaps(text: bytes) -> tuple[list[bytes], list[str]]:
    """Split a text at sentinel names; return the texts around them, and the names."""
    parts = _NAME.split(text)  # texts, and between them the numbers
    names = [f"<extra_id_{digits.decode()}>" for digits in parts[1::2]]
    return parts[::2], names


def marks_pattern(names: Mapping[str, int]) -> re.Pattern[bytes] | None:
    """Return the pattern of special tokens' names in bytes; None without names."""
    if not names:
        return None
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile(b"|".join(re.escape(name.encode()) for name in longest_first))


FORMAT = "sublayer-tokenizer"
VERSION = 1
MAX_BYTES = 128 << 20
"""The most bytes of a tokenizer's file; the largest published files have 33 MiB."""

Ids = AnyInts | Sequence[int]
"""Token ids of one text, ``[T]``."""

SPECIAL_NAMES = {
    "pad_id": ("[PAD]", "<pad>"),
    "cls_id": ("[CLS]", "<cls>", "<s>"),
    "sep_id": ("[SEP]", "<sep>", "</s>"),
    "mask_id": ("[MASK]", "<mask>"),
}
"""Special tokens for masked objectives, and their usual names in order of preference."""

ROLES = ("end_id", "start_id", *SPECIAL_NAMES)
"""Roles that files assign to tokens."""

_KEPT = (
    *("kind", "vocab_size", "has_words", "is_lossless", "end_id", "start_id", "unk_id"),
    *SPECIAL_NAMES,
    *("special_ids", "sentinel_ids", "reads_marks", "token_bytes", "token_characters"),
    *("inner_pieces", "n_separators"),
)
"""Properties that a wrapping tokenizer takes over from its vocabulary."""

NO_TEXT = "there is no text to train a tokenizer on: give a longer text, with letters"
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

    Special ids that the vocabulary lacks are None.
    """

    kind: str
    """Its name in files and recipes, such as ``unigram``."""
    vocab_size: int
    """One more than the highest id; some of the ids below may be unused."""
    end_id: int | None = None
    """Marks the end of a document; has no bytes."""
    start_id: int | None = None
    """Precedes each text of a published decoder that was trained so."""
    unk_id: int | None = None
    """Replaces text that the vocabulary lacks."""
    # Special tokens of masked objectives.
    pad_id: int | None = None
    cls_id: int | None = None
    sep_id: int | None = None
    mask_id: int | None = None
    special_ids: tuple[int, ...] = ()
    """All ids without text, ascending: these, the end, the unknown, the sentinels, and ids that the
    file marks as unused."""
    sentinel_ids: tuple[int, ...] = ()
    """Ids of a text's gaps: the k-th is the id of ``<extra_id_k>``. A sentinel has no bytes and
    decodes to its name; it is encoded from a text only where ``reads_marks``."""
    marks: Mapping[str, int] = MappingProxyType({})
    """Ids of special tokens, by the names by which a text may hold them."""
    reads_marks: bool | None = None
    """True where such a name in a text becomes its id, False where it is text; None: text, by
    default."""
    added_ids: Mapping[str, int] = MappingProxyType({})
    """Ids appended to a vocabulary, by name; they have no text."""
    n_separators: int = 1
    """Number of separators between two texts in a row."""
    has_words: bool = False
    """True where ids show where words begin, as whole-word masking requires."""
    is_lossless: bool = True
    """True where for any bytes ``decode(encode(text)) == text`` and
    ``token_bytes[encode(text)].sum() == len(text)``, except for names read as special tokens
    without text, such as an end."""
    inner_pieces: Sequence[bytes] | None = None
    """The text of each id within a text, where ``decode`` drops the space before the first word."""
    token_bytes: Ints
    """Number of raw bytes of each id, ``[V]``; 0 for ids without text."""
    token_characters: Ints
    """Number of characters that begin in each id, ``[V]``: bytes that start a UTF-8 sequence."""

    @abstractmethod
    def encode(self, text: bytes) -> TokenIds:
        """Encode bytes; raise DataError where a UTF-8 tokenizer gets other bytes."""

    def encode_many(self, texts: Sequence[bytes]) -> list[TokenIds]:
        """Encode each of several texts, as by ``encode``."""
        return [self.encode(text) for text in texts]

    def encode_targets(self, texts: Sequence[bytes]) -> list[TokenIds]:
        """Encode texts of the target language, which may have a separate model."""
        return self.encode_many(texts)

    def decode(self, ids: Ids) -> bytes:
        """Decode ids; ids beyond the vocabulary, as a larger model may have, become U+FFFD."""
        all_ids = np.asarray(ids, dtype=np.int64)
        is_known = (all_ids >= 0) & (all_ids < self.vocab_size)
        if is_known.all():
            return self._decode(all_ids)
        # The ids of a run are all known or all unknown.
        bounds = np.flatnonzero(np.diff(is_known)) + 1
        return b"".join(
            self._decode(run) if 0 <= run[0] < self.vocab_size else _LACKING * len(run)
            for run in np.split(all_ids, bounds)
        )

    def decode_after(self, ids: Ids) -> bytes:
        """Decode ids that continue a text, with the space before the first word."""
        pieces = self.inner_pieces
        if pieces is None:
            return self.decode(ids)
        known = range(len(pieces))
        return b"".join(pieces[id_] if id_ in known else _LACKING for id_ in map(int, ids))

    @property
    def first_id(self) -> int | None:
        """The id before a text that is scored: its start, or else the end of another."""
        return self.end_id if self.start_id is None else self.start_id

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
        """Return the definition of the tokenizer, as JSON: equal content encodes equally."""

    def starts_word(self, ids: AnyInts) -> Bools:
        """Return which ids of a sequence begin a word; special ids do.

        After a cut inside a word, the first ids may begin no word.
        Raises ConfigError where the tokenizer has no words.
        """
        raise ConfigError(
            f"a tokenizer of kind {self.kind} does not show where words begin: "
            "to mask whole words, give "
            "data.tokenizer = unigram, wordpiece or moses-bpe"
        )

    def _described(self, **fields: Any) -> dict[str, Any]:
        """Return content in our format: the kind, and the defining fields."""
        return {"format": FORMAT, "version": VERSION, "kind": self.kind, **fields}

    def _set_special(self, names: Mapping[str, int]) -> None:
        """Find the ids of ``SPECIAL_NAMES`` by their usual names in a vocabulary."""
        for key, usual in SPECIAL_NAMES.items():
            setattr(self, key, next((names[name] for name in usual if name in names), None))

    def _set_roles(self, roles: Mapping[str, str], names: Mapping[str, int]) -> dict[str, str]:
        """Assign roles to tokens by name; return the roles that differ from the usual ones."""
        changed = {
            role: name
            for role, name in roles.items()
            if role in ROLES and name in names and getattr(self, role) != names[name]
        }
        for role, name in changed.items():
            setattr(self, role, names[name])
        return changed

    def _set_pieces(self, pieces: Sequence[bytes]) -> None:
        """Count the bytes and characters of the piece of each id."""
        self.token_bytes = np.array(list(map(len, pieces)), dtype=np.int64)
        self.token_characters = count_characters(pieces)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the tokenizer's definition, in hexadecimal."""
        text = json.dumps(self.content(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def serialize(self, *, is_kept: bool = False) -> bytes:
        """Return the bytes of its ``tokenizer.json``; with ``is_kept``, always in our format."""
        return json.dumps(self.content(), ensure_ascii=False, indent=1).encode() + b"\n"

    def save(self, path: Path) -> None:
        """Write it to a file, whole or not at all, usually called ``tokenizer.json``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, self.serialize())

    def check_masking(self, name: str) -> None:
        """Raise ConfigError, with ``name``, where tokens required for masking are missing."""
        missing = [names[0] for key, names in SPECIAL_NAMES.items() if getattr(self, key) is None]
        if missing:
            raise ConfigError(
                f"{name} has no {', no '.join(missing)}, which masked objectives need: "
                "give a file with these tokens, or train data.tokenizer = unigram, "
                "wordpiece or moses-bpe"
            )

    def with_names(self, names: Sequence[str]) -> "Tokenizer":
        """Return a vocabulary with an id for each name; this one where it has them all."""
        missing = [name for name in names if name not in self.added_ids]
        return ExtendedTokenizer(self, missing) if missing else self


def is_unused(name: str) -> bool:
    """Return whether a piece's name marks its id as unused, like BERT's ``[unused0]``."""
    return _UNUSED.fullmatch(name) is not None


def decode_utf8(text: bytes) -> str:
    """Decode UTF-8; raise NotUtf8, a DataError, at the first invalid byte."""
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotUtf8(text, error.start) from None


def read_file(path: Path) -> bytes:
    """Read a tokenizer's file; raise DataError where it is unreadable or implausibly large."""
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is not a file: name a tokenizer's file")
    try:
        data = read_bytes(path, DataError, max_bytes=MAX_BYTES)
    except FileNotFoundError:
        raise DataError(f"the tokenizer {describe_absence(path)}: name another file") from None
    check_no_pointer(path, data[:64])
    return data


def read_text(path: Path) -> str:
    """Read a tokenizer's file as text; raise DataError as ``read_file`` does, or with the line."""
    try:
        return decode_utf8(read_file(path))
    except NotUtf8 as error:
        raise DataError(f"{path}, {error}") from None


def after_newline(text: bytes, near: int) -> int:
    """Return the last position up to ``near`` that follows a newline; 0 without one."""
    return text.rfind(b"\n", 0, near) + 1


def count_characters(pieces: Sequence[bytes]) -> Ints:
    """Count the characters that begin in each piece of UTF-8, ``[V]``."""
    # Every byte except a continuation byte, 10xxxxxx, begins a character.
    return np.array([len(piece.translate(None, _CONTINUATION_BYTES)) for piece in pieces], np.int64)


class WrappedTokenizer(Tokenizer):
    """A tokenizer around a ``vocabulary``, with the same ids and properties."""

    def __init__(self, vocabulary: Tokenizer) -> None:
        self.vocabulary = vocabulary
        for name in _KEPT:
            setattr(self, name, getattr(vocabulary, name))
        self.marks = dict(vocabulary.marks)  # unlike a mapping proxy, a dict can be copied

    @abstractmethod
    def around(self, vocabulary: Tokenizer) -> Tokenizer:
        """Return the same wrapper around another vocabulary."""

    def encode(self, text: bytes) -> TokenIds:
        """Encode as the vocabulary does."""
        return self.vocabulary.encode(text)

    def encode_many(self, texts: Sequence[bytes]) -> list[TokenIds]:
        """Encode each of several texts as the vocabulary does."""
        return self.vocabulary.encode_many(texts)

    def encode_targets(self, texts: Sequence[bytes]) -> list[TokenIds]:
        """Encode texts of the target language as the vocabulary does."""
        return self.vocabulary.encode_targets(texts)

    def _decode(self, ids: Ints) -> bytes:
        return self.vocabulary.decode(ids)

    def cut(self, text: bytes, near: int) -> int:
        """Cut as the vocabulary does."""
        return self.vocabulary.cut(text, near)

    def starts_word(self, ids: AnyInts) -> Bools:
        """Return which ids begin a word."""
        return self.vocabulary.starts_word(ids)


class ExtendedTokenizer(WrappedTokenizer):
    """A ``vocabulary`` and the ``names`` of further ids, which follow its last id.

    A text never encodes to them; they have no bytes and decode to nothing.
    """

    def __init__(self, vocabulary: Tokenizer, names: Sequence[str]) -> None:
        assert names, "an extended vocabulary has further ids"
        super().__init__(vocabulary)
        self.names = tuple(names)
        first = vocabulary.vocab_size
        self.vocab_size = first + len(names)
        ids = range(first, self.vocab_size)
        self.added_ids = {**vocabulary.added_ids, **dict(zip(names, ids, strict=True))}
        self.special_ids = (*vocabulary.special_ids, *ids)
        none = np.zeros(len(names), dtype=np.int64)
        self.token_bytes = np.concatenate([vocabulary.token_bytes, none])
        self.token_characters = np.concatenate([vocabulary.token_characters, none])
        if vocabulary.inner_pieces is not None:
            self.inner_pieces = [*vocabulary.inner_pieces, *[b""] * len(names)]

    def around(self, vocabulary: Tokenizer) -> Tokenizer:
        """Return another vocabulary with the same names."""
        return ExtendedTokenizer(vocabulary, self.names)

    def _decode(self, ids: Ints) -> bytes:
        return self.vocabulary.decode(ids[ids < self.vocabulary.vocab_size])

    def starts_word(self, ids: AnyInts) -> Bools:
        """Return which ids begin a word; added ids do."""
        all_ids = np.asarray(ids)
        starts = np.ones(len(all_ids), dtype=np.bool_)
        is_text = all_ids < self.vocabulary.vocab_size
        starts[is_text] = self.vocabulary.starts_word(all_ids[is_text])
        return starts

    @classmethod
    def from_content(cls, content: Mapping[str, Any], vocabulary: Tokenizer) -> Tokenizer:
        """Build from ``content``. Raises DataError, without a path, where it is damaged."""
        names = read_value(content.get("names"), list[str])
        if not names or len(set(names)) != len(names):
            raise DataError("it is damaged: its names of further ids are missing or not distinct")
        return cls(vocabulary, names)

    def content(self) -> dict[str, Any]:
        """Return the names and the vocabulary's content."""
        inner = self.vocabulary.content()
        return self._described(names=list(self.names), vocabulary=inner) | {"kind": "extended"}


Read = TypeVar("Read")


def read_value(value: Any, kind: type[Read]) -> Read:
    """Check a value of our file; raise DataError, without a path, where it is damaged."""
    return check_typed(value, kind, "it", DataError, has_tuples=True)


def read_fields(content: Any, kind: type[Read], *optional: str) -> Read:
    """Build a dataclass from the fields of our own file, which may lack the ``optional`` ones.

    Raises DataError, without a path, where the file is damaged.
    """
    required = kind.__dataclass_fields__.keys() - set(optional)  # type: ignore[attr-defined]
    if not isinstance(content, dict) or required - content.keys():
        raise DataError(f"it is damaged: it must have {', '.join(sorted(required))}")
    return read_value(content, kind)


def read_roles(content: Mapping[str, Any]) -> tuple[bool | None, dict[str, str]]:
    """Return ``reads_marks`` and the tokens' names by role, from our own file."""
    reads_marks: bool | None = read_value(content.get("reads_marks"), bool | None)  # type: ignore[arg-type]
    return reads_marks, read_value(content.get("roles", {}), dict[str, str])


_REPLACEMENT = "\ufffd"
_N_CODES = 0x110000
"""Codes of Unicode's characters."""


class ByteTokenizer(Tokenizer):
    """One id per byte, its value; encodes any bytes."""

    kind = "bytes"
    vocab_size = 256

    def __init__(self) -> None:
        self.token_bytes = np.ones(256, dtype=np.int64)
        # A continuation byte, 10xxxxxx, begins no character.
        begins_character = np.arange(256) & 0xC0 != 0x80
        self.token_characters = begins_character.astype(np.int64)

    def encode(self, text: bytes) -> TokenIds:
        """Return the bytes' values."""
        return np.frombuffer(text, dtype=np.uint8).astype(np.int32)

    def _decode(self, ids: Ints) -> bytes:
        return ids.astype(np.uint8).tobytes()

    def cut(self, text: bytes, near: int) -> int:
        """Cut anywhere."""
        return min(near, len(text))

    def content(self) -> dict[str, Any]:
        """Return the format and the kind; nothing else defines it."""
        return self._described()


class CharacterTokenizer(Tokenizer):
    """One id per known character of UTF-8 text; id 0 for any other.

    An unknown character counts as one character of one byte, so that bits per byte err upwards
    where a text has any. ``characters`` are distinct, and have the ids from 1 on in order.
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
        """The id of each code: indexing an array is much faster than looking up a dictionary."""
        self._ids[codes] = np.arange(1, self.vocab_size)

    @classmethod
    def train(
        cls, texts: Iterable[bytes], *, vocab_size: int | None = None
    ) -> "CharacterTokenizer":
        """Collect the characters of texts; with ``vocab_size``, the most frequent.

        ``vocab_size`` includes the unknown id. Raises NotUtf8, a DataError, at the first byte that
        is not UTF-8.
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

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> "CharacterTokenizer":
        """Build from ``content``; raise DataError, without a path, where it is damaged."""
        # JSON that was checked holds no lone surrogate.
        one = Annotated[str, Field(min_length=1, max_length=1)]
        characters = read_value(content.get("characters"), list[one])
        if len(set(characters)) < len(characters):
            raise DataError("it is damaged: its characters are not distinct")
        return cls("".join(characters))

    def encode(self, text: bytes) -> TokenIds:
        """Encode UTF-8; raise NotUtf8, a DataError, at the first invalid byte."""
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

    Four continuation bytes in a row are not UTF-8: then it is ``near``.
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


SPACE = "▁"
"""The character that represents a space in a piece."""

_MOST_WORDS = 1 << 18
_MOST_CHARACTERS = 1 << 22
"""The most words, and their characters, that a cache holds before it evicts some."""
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_OF_UNSPACED = re.compile(f"[{UNSPACED}]")
_INSIDE_WORDS = _PUNCTUATION | frozenset(string.ascii_letters)

Rows = Sequence[Sequence[int]]


class RaggedIds:
    """Rows of ids of unequal lengths, gathered by number into one sequence of ids.

    A row may be empty.
    """

    def __init__(self, rows: Rows) -> None:
        self._ids = np.empty(0, dtype=np.int32)
        self._lengths = np.empty(0, dtype=np.int64)
        self._starts = np.empty(0, dtype=np.int64)
        self.append(rows)

    def append(self, rows: Rows) -> None:
        """Append rows."""
        new_ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32)
        lengths = map(len, rows)
        new_lengths = np.fromiter(lengths, dtype=np.int64, count=len(rows))
        self._ids = np.concatenate([self._ids, new_ids])
        self._lengths = np.concatenate([self._lengths, new_lengths])
        self._starts = np.cumsum(self._lengths) - self._lengths

    def select(self, numbers: AnyInts) -> "RaggedIds":
        """Return some of the rows, by their numbers."""
        rows = RaggedIds([])
        rows._ids = self.take(numbers)
        rows._lengths = self._lengths[numbers]
        rows._starts = np.cumsum(rows._lengths) - rows._lengths
        return rows

    def lengths(self, numbers: AnyInts) -> Ints:
        """Return the lengths of rows, by their numbers."""
        return self._lengths[numbers]

    def take(self, numbers: AnyInts) -> TokenIds:
        """Return the concatenated ids of rows ``numbers``, which may repeat."""
        lengths = self._lengths[numbers]  # [rows taken], as the next two
        # Id i of the result is at i + ``shift`` in ``_ids``, with one shift for a whole row.
        starts_in_result = np.cumsum(lengths) - lengths
        shifts = self._starts[numbers] - starts_in_result
        indices = np.arange(lengths.sum())  # [ids of the result]
        indices += np.repeat(shifts, lengths)
        return self._ids[indices]


Encode = Callable[[list[str]], Rows]
"""Returns the ids of each word."""


class WordCache:
    """Cache of encoded words; copies start empty.

    A full cache evicts the most recent words.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._numbers: dict[str, int] = {}
        self._rows = RaggedIds([])
        self._n_characters = 0

    def encode(self, words: Sequence[str], encode: Encode) -> TokenIds:
        """Encode independent words; ``encode`` is called once for each distinct word.

        Returns the concatenated ids of all words. ``encode`` must be the same in every call.
        """
        return self.encode_many([words], encode)[0]

    def encode_many(self, texts: Sequence[Sequence[str]], encode: Encode) -> list[TokenIds]:
        """Encode the words of several texts; return the ids of each."""
        with self._lock:
            numbers = self._numbers
            n_known = len(numbers)
            # A new word gets the next number.
            of_words = (numbers.setdefault(word, len(numbers)) for text in texts for word in text)
            indices = np.fromiter(of_words, dtype=np.int64, count=sum(map(len, texts)))
            new = list(islice(reversed(numbers), len(numbers) - n_known))[::-1]
            try:
                self._rows.append(encode(new) if new else [])
            except BaseException:
                self.__init__()  # type: ignore[misc]
                raise
            self._n_characters += sum(map(len, new))
            ends = np.cumsum(np.append(0, self._rows.lengths(indices)))  # in ids, of each word
            bounds = ends[np.cumsum([0, *map(len, texts)])]
            ids = self._rows.take(indices)
            if len(numbers) > _MOST_WORDS or self._n_characters > _MOST_CHARACTERS:
                # Only the first words stay: frequent words occur early.
                words = list(islice(numbers, _MOST_WORDS // 2))
                n_characters = np.cumsum([len(word) for word in words])
                n_kept = int(np.searchsorted(n_characters, _MOST_CHARACTERS // 2, side="right"))
                self._numbers = {word: number for number, word in enumerate(words[:n_kept])}
                self._n_characters = sum(map(len, self._numbers))
                self._rows = self._rows.select(np.arange(n_kept))
            return [ids[start:stop] for start, stop in pairwise(bounds.tolist())]

    def __reduce__(self) -> tuple[type["WordCache"], tuple[()]]:
        return WordCache, ()


def split_words(text: str) -> list[str]:
    """Split a text at spaces and newlines, which are whitespace to every tokenizer."""
    words = text.replace("\n", " ").split(" ")
    return [word for word in words if word]


def begins_word(piece: str) -> bool:
    """Return whether a piece begins a word for ALBERT's masks.

    ``▁the``, ``,`` and ``é`` do, ``ing`` does not. A piece begins a word after a space, as a
    punctuation mark, or with any character other than ASCII letters and punctuation.

    Source: google-research/albert, ``create_pretraining_data.py``.
    """
    if piece.startswith((SPACE, "<")) or piece in _PUNCTUATION:
        return True
    return not _INSIDE_WORDS.issuperset(piece)


def begins_any_word(piece: str) -> bool:
    """Return whether a piece begins a word, in a vocabulary of any language.

    Like ``begins_word``, except that letters of all scripts with spaces between words count as
    ASCII letters do, so that ``ön``, ``ская`` and ``습니다`` begin no word. Characters of Chinese,
    Japanese and Thai do.
    """
    if piece.isascii():
        return begins_word(piece)
    if piece.startswith(SPACE) or _OF_UNSPACED.match(piece):
        return True
    return begins_word(
        "".join("a" if category(character)[0] in "LM" else character for character in piece)
    )
