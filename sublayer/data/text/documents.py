"""Documents: whole files, or the many that a file or a data set of the hub holds, in one file.

Records of JSON, Parquet or a hub are parsed and decompressed once, into a file of the cache: texts,
their ends and their origins. A document is then a number, and reading one costs a slice. No text
and no array of the file is held in memory.
"""

import hashlib
import sys
import zlib
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from sublayer.config.data import DocumentRule
from sublayer.config.texts import HUB
from sublayer.counts import count
from sublayer.data.arrays import Ints
from sublayer.data.cache import content_key
from sublayer.data.text.files import (
    PARQUET,
    Document,
    FileDocument,
    RawDocument,
    Text,
    is_parquet,
    read_path,
    read_unchanged,
)
from sublayer.data.text.records import READERS, HubSet, parse_hub, row_runs
from sublayer.errors import ConfigError, DataError
from sublayer.files.arrays import aligned, read_description, write_description
from sublayer.files.cache_folder import held_in_cache, lock_of, replacing
from sublayer.files.file_text import FileArray, FileText
from sublayer.files.lines import read_lines
from sublayer.files.paths import expanded
from sublayer.tasks.records import suffix_of

_CHECKED_BYTES = 256 << 20
_DIGEST_BYTES = 32
_NUMBER_BYTES = 8
_BLOCK_BYTES = 1 << 20

Item = TypeVar("Item")
Origin = tuple[str, Callable[[], Iterator[RawDocument]]]
"""A source of documents: its name in messages, and their reader."""


class LazySequence(Sequence[Item]):
    """A sequence whose items are made when they are accessed."""

    @abstractmethod
    def item(self, number: int) -> Item:
        """Make an item, by its number from 0."""

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        numbers = range(len(self))[index]
        return self.item(numbers) if isinstance(numbers, int) else [*map(self.item, numbers)]


class Records(LazySequence[Document]):
    """The documents of a packed file, made when they are accessed.

    ``names`` are the files that they come from, in order. ``n_empty`` counts the documents without
    text, which are left out.

    Raises OSError, ValueError or KeyError where there is no such file or it is damaged; of more
    than 256 MiB of arrays the size alone is checked, and texts never are.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        meta, n_bytes = read_description(path)
        self._path = path
        self._names = tuple(names)
        self._bounds: list[int] = meta["bounds"]
        self.n_empty: int = meta["n_empty"]
        self.identity: list[Any] = ["records", meta["sha256"]]
        first = aligned(meta["n_bytes"])
        self._n_documents: int = meta["n_documents"]
        n = self._n_documents
        # A stop, a line and a digest for each document.
        n_array_bytes = n * (2 * _NUMBER_BYTES + _DIGEST_BYTES)
        if n_bytes != first + n_array_bytes or len(self._bounds) != len(self._names):
            raise ValueError("its size is not what it describes")
        arrays = FileText(path, first, n_bytes)
        if len(arrays) <= _CHECKED_BYTES and _crc32(arrays) != meta["crc32"]:
            raise ValueError("its arrays are damaged")
        lines_start = first + n * _NUMBER_BYTES
        digests_start = lines_start + n * _NUMBER_BYTES
        self.text = FileText(path, 0, meta["n_bytes"])
        self.stops = FileArray(path, "<i8", first, n)
        self._lines = FileArray(path, "<i8", lines_start, n)
        self.digests = FileArray(path, f"S{_DIGEST_BYTES}", digests_start, n)

    def __reduce__(self) -> tuple[Any, ...]:
        """Be opened again by a process that is sent some of the documents, once for all of them."""
        return _reopened, (self._path, self._names)

    def __len__(self) -> int:
        return self._n_documents

    def item(self, number: int) -> Document:
        """Return a document."""
        return _Record(self, number)

    def name(self, index: int) -> str:
        """Return a document's file and line, for messages."""
        name = self._names[bisect_right(self._bounds, index)]
        return f"{name}, document at line {self._lines[index]}"


@lru_cache(maxsize=8)
def _reopened(path: Path, names: Sequence[str]) -> Records:
    return Records(path, names)


@dataclass(frozen=True, slots=True)
class _Record:
    records: Records
    index: int

    @property
    def name(self) -> str:
        return self.records.name(self.index)

    @property
    def n_bytes(self) -> int:
        return int(self.records.stops[self.index]) - self._start

    @property
    def _start(self) -> int:
        # A document begins where the one before it ends.
        return int(self.records.stops[self.index - 1]) if self.index else 0

    def read(self) -> bytes:
        return self.records.text[self._start : int(self.records.stops[self.index])]

    def digest(self) -> str:
        # An array of bytes leaves out zeros at the end.
        return bytes(self.records.digests[self.index]).ljust(_DIGEST_BYTES, b"\0").hex()


def digests_of(documents: Sequence[Document], start: int, stop: int) -> NDArray[np.bytes_]:
    """Return the SHA-256 of documents ``start`` to ``stop``, 32 bytes each.

    They sort as their hexadecimal forms.
    """
    if isinstance(documents, Records):
        return documents.digests.read(start, stop)
    digests = [bytes.fromhex(document.digest()) for document in documents[start:stop]]
    return np.array(digests, dtype=f"S{_DIGEST_BYTES}")


def sizes_of(documents: Sequence[Document], start: int, stop: int) -> Ints:
    """Return the bytes of documents ``start`` to ``stop``."""
    if isinstance(documents, Records):
        before = documents.stops[start - 1] if start else 0
        return np.diff(documents.stops.read(start, stop), prepend=before)
    return np.array([document.n_bytes for document in documents[start:stop]], dtype=np.int64)


def identity_of(documents: Sequence[Document]) -> list[Any]:
    """Return what identifies documents, as JSON; it is equal only where their texts are."""
    if isinstance(documents, Records):
        return documents.identity
    return [document.digest() for document in documents]


def open_pack(
    path: Path, origins: Sequence[Origin], *, is_distinct: bool = False, keeps_blank: bool = False
) -> Records:
    """Open the packed documents of ``origins``; read and write them where there are none.

    A damaged pack is read and written again; of several processes one does, and the others wait.
    ``is_distinct`` keeps of equal documents the first. Documents without text are left out,
    counted, and said on standard error, unless it ``keeps_blank`` ones.

    Raises DataError where one cannot be read or the disk is full.
    """
    names = [name for name, _ in origins]
    try:
        return Records(path, names)
    except (OSError, ValueError, KeyError):
        pass
    with held_in_cache(lock_of(path), f"reads the documents of {_named(names)}"):
        try:
            return Records(path, names)
        except (OSError, ValueError, KeyError):
            _write(path, origins, is_distinct=is_distinct, keeps_blank=keeps_blank)
    return Records(path, names)


def _named(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {count(len(names) - 1, 'other')}"


def _write(path: Path, origins: Sequence[Origin], *, is_distinct: bool, keeps_blank: bool) -> None:
    """Write texts end to end, then their stops, lines and digests, which wait in files."""
    n_bytes = n_documents = n_empty = 0
    bounds = []
    # The documents' digests tell all that their texts would.
    identity = hashlib.sha256()
    seen: set[bytes] = set()
    with replacing(path) as file, ExitStack() as stack:
        columns = [
            stack.enter_context(TemporaryFile(dir=path.parent, prefix=".arrays.")) for _ in range(3)
        ]
        for name, documents in origins:
            n_empty_here = 0
            for line, text in documents():
                if not keeps_blank and not any(block.strip() for block in _blocks(text)):
                    n_empty_here += 1
                    continue
                hashed = hashlib.sha256()
                for block in _blocks(text):
                    hashed.update(block)
                digest = hashed.digest()
                if is_distinct:
                    if digest in seen:
                        continue
                    seen.add(digest)
                for block in _blocks(text):
                    file.write(block)
                n_bytes += len(text)
                n_documents += 1
                numbers = (number.to_bytes(_NUMBER_BYTES, "little") for number in (n_bytes, line))
                for column, value in zip(columns, (*numbers, digest), strict=True):
                    column.write(value)
                identity.update(digest)
            bounds.append(n_documents)
            n_empty += n_empty_here
            if n_empty_here:
                note = f"{name}: {count(n_empty_here, 'document')} without text left out\n"
                sys.stderr.write(note)
        file.write(b"\0" * (aligned(n_bytes) - n_bytes))
        crc = 0
        for column in columns:
            column.seek(0)
            while block := column.read(_BLOCK_BYTES):
                file.write(block)
                crc = zlib.crc32(block, crc)
        meta = {
            "n_bytes": n_bytes,
            "n_documents": n_documents,
            "n_empty": n_empty,
            "bounds": bounds,
            "sha256": identity.hexdigest(),
            "crc32": crc,
        }
        write_description(file, meta)


def _blocks(text: Text) -> Iterator[bytes]:
    return (
        text[start : start + _BLOCK_BYTES] for start in range(0, max(1, len(text)), _BLOCK_BYTES)
    )


def _crc32(text: Text) -> int:
    crc = 0
    for block in _blocks(text):
        crc = zlib.crc32(block, crc)
    return crc


VERSION = 1
"""Changes whenever equal files would give other documents."""

_SUFFIXES: dict[DocumentRule | None, tuple[str, ...]] = {
    "json": (".json", ".jsonl", ".ndjson", PARQUET),
    "csv": (".csv", ".tsv"),
}
"""Of the files of a folder that a rule reads."""


@dataclass(frozen=True)
class Reading:
    """Settings of a reader: ``data.documents``, ``data.text_field``, and whether to clean."""

    rule: DocumentRule | None = None
    """None: each file is one, but for those whose kind says otherwise."""
    text_field: str = "text"
    """The field or column of records that holds their text."""
    is_clean: bool = False
    """True where a Project Gutenberg header and licence are left out before documents are divided.
    """


AS_FILES = Reading()
"""The defaults of a recipe."""


def read_documents(entry: str, cache: Path, reading: Reading = AS_FILES) -> Sequence[Document]:
    """Find the documents that an entry of ``data.path`` names, by ``data.documents``.

    Unset, each file is one, and each row of Parquet files, known by their suffix, and of data sets
    of the hub. Of a folder, ``json`` reads the files with a suffix of JSON or Parquet, ``csv``
    those with one of CSV or TSV.

    Raises DataError where there are none, ConfigError for a rule that contradicts rows of the hub.
    """
    if entry.startswith(HUB):
        if reading.rule in ("file", "blank-line"):
            raise ConfigError(
                f"data.documents = {reading.rule} contradicts {entry}, "
                "of which each row is a document"
            )
        return read_hub(parse_hub(entry), cache, reading)
    files = read_path(entry, cache, has_parquet=reading.rule in (None, "json"))
    if reading.rule in _SUFFIXES and expanded(entry).is_dir():
        suffixes = _SUFFIXES[reading.rule]
        files = tuple(file for file in files if suffix_of(file.path) in suffixes)
        if not files:
            raise DataError(
                f"{entry} has no files that end in {', '.join(suffixes)}: name others, or unset "
                "data.documents"
            )
    kinds = [_kind(file, reading.rule) for file in files]
    return read_files(entry, files, kinds, cache, reading)


def read_files(
    name: str, files: Sequence[FileDocument], kinds: Sequence[str], cache: Path, reading: Reading
) -> Sequence[Document]:
    """Return the documents of files of the kinds in ``READERS``; raise DataError without any."""
    if all(kind == "file" for kind in kinds):
        return tuple(files)
    identity: list[list[str]] = []
    origins: list[Origin] = []
    for kind, file in zip(kinds, files, strict=True):
        identity.append([kind, file.digest()])
        read = partial(READERS[kind], file, reading.text_field, reading.is_clean)
        origins.append((file.name, partial(read_unchanged, [file], read)))
    is_cleaned = reading.is_clean and "blank-line" in kinds
    return cache_documents(name, origins, cache, identity, reading.text_field, is_cleaned)


def read_hub(
    data_set: HubSet, cache: Path, reading: Reading, *, in_runs: bool = False
) -> Sequence[Document]:
    """Return the rows of a data set of the hub, which is fetched once.

    ``in_runs`` joins rows that are sentences, 1,000 to a document. Raises DataError where it cannot
    be fetched, or has no text in the field.
    """
    name = str(data_set)
    origin = (name, partial(_hub_rows, data_set, reading.text_field, in_runs=in_runs))
    identity = (name, data_set.revision, reading.text_field, in_runs)
    return cache_documents(name, [origin], cache, *identity)


def sniffed_kind(path: Path) -> str:
    """Return, by its suffix or first line, a published file's kind: one of ``READERS``."""
    if is_parquet(path):
        return "parquet"
    lines = (line.lstrip() for _, line in read_lines(path) if line.strip())
    first = next(lines, b"")
    if first.startswith(b"{"):
        return "json"
    if first.startswith(b"<doc "):
        return "articles"
    return "file"


def cache_documents(
    name: str, origins: Sequence[Origin], cache: Path, *identity: object, is_distinct: bool = False
) -> Records:
    """Read the documents of ``origins`` once, cached by ``identity``; raise DataError without any.

    ``is_distinct`` leaves out those that are equal to an earlier one.
    """
    path = cache / "documents" / content_key(VERSION, *identity)
    records = open_pack(path, origins, is_distinct=is_distinct)
    if not records:
        raise DataError(f"{name} has no document with text: name another")
    return records


def _hub_rows(data_set: HubSet, field: str, *, in_runs: bool) -> Iterator[RawDocument]:
    rows = data_set.rows(field)
    if in_runs:
        return row_runs(rows)
    return rows


def _kind(file: FileDocument, rule: DocumentRule | None) -> str:
    if rule in (None, "json") and is_parquet(file.path):
        return "parquet"
    return rule or "file"
