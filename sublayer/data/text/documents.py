"""Documents: files, or packed records of a file or data set of the hub.

Records of JSON, Parquet or a hub are parsed and decompressed once, into a file of the cache: texts,
their ends and their origins. A document is then a number, and reading one costs a slice. No text
and no array of the file is held in memory.
"""

import hashlib
import sys
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

from sublayer.config.data import HUB, DocumentRule
from sublayer.counts import count
from sublayer.data.arrays import Ints
from sublayer.data.text.files import (
    PARQUET,
    FileDocument,
    MemoryDocument,
    RawDocument,
    is_parquet,
    read_path,
    read_unchanged,
)
from sublayer.data.text.records import HubSet, parse_hub, read_kind, row_runs, texts_of
from sublayer.errors import ConfigError, DataError
from sublayer.files.arrays import FooterFile, read_columns, read_description
from sublayer.files.cache_folder import content_key, read_or_make, replacing
from sublayer.files.lines import FileText, blocks_of, read_lines
from sublayer.files.storage import expanded
from sublayer.tasks.records import suffix_of

_DIGEST_BYTES = 32
_NUMBER_BYTES = 8
_BLOCK_BYTES = 1 << 20

Item = TypeVar("Item")
Origin = tuple[str, Callable[[], Iterator[RawDocument]]]
"""A source of documents: its name in messages, and their reader."""


class LazySequence(Sequence[Item]):
    """A sequence of items created on access."""

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


class Records(LazySequence["Record"]):
    """Documents of a packed file, created on access.

    ``names`` are the files that they come from, in order. ``n_empty`` counts the documents without
    text, which are left out. ``stops`` ``[N]`` are the ends of their texts, which follow each
    other; ``digests`` ``[N, 32]`` their SHA-256.

    Raises OSError, ValueError or KeyError where there is no such file or it is damaged; of more
    than 256 MiB of arrays the size alone is checked, and texts never are.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        meta, n_bytes = read_description(path)
        self._opened = path, tuple(names)
        self._bounds: list[int] = meta["bounds"]
        self.n_empty: int = meta["n_empty"]
        self.identity: list[Any] = ["records", meta["sha256"]]
        if len(self._bounds) != len(names):
            raise ValueError("it is of other files")
        n: int = meta["n_documents"]
        counts = (n, n, n * _DIGEST_BYTES // _NUMBER_BYTES)
        self.text = FileText(path, 0, meta["n_bytes"])
        self.stops, self.lines, digests = read_columns(
            path, meta["n_bytes"], counts, n_bytes, meta["crc32"]
        )
        self.digests = digests.view(np.uint8).reshape(n, _DIGEST_BYTES)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by path: a receiving process opens the file once."""
        return _reopened, self._opened

    def __len__(self) -> int:
        return len(self.stops)

    def item(self, number: int) -> "Record":
        """Return a document."""
        return Record(self, number)

    def name(self, index: int) -> str:
        """Return a document's file and line, for messages."""
        _, names = self._opened
        name = names[bisect_right(self._bounds, index)]
        return f"{name}, document at line {self.lines[index]}"


@lru_cache(maxsize=8)
def _reopened(path: Path, names: Sequence[str]) -> Records:
    return Records(path, names)


@dataclass(frozen=True)
class Record:
    """A document of a packed file."""

    records: Records
    index: int

    @property
    def name(self) -> str:
        """Its file and line."""
        return self.records.name(self.index)

    @property
    def n_bytes(self) -> int:
        """Size of its text."""
        start, stop = self._place
        return stop - start

    @property
    def _place(self) -> tuple[int, int]:
        # A document begins where the one before it ends.
        stops = self.records.stops
        return int(stops[self.index - 1]) if self.index else 0, int(stops[self.index])

    def read(self) -> bytes:
        """Return its text."""
        start, stop = self._place
        return self.records.text[start:stop]

    def digest(self) -> str:
        """SHA-256 of its text."""
        return bytes(self.records.digests[self.index]).hex()


Document = FileDocument | MemoryDocument | Record
"""A piece of text that is never on both sides of a split unless it is the only one."""


def content_keys(documents: Sequence[Document]) -> NDArray[np.uint64]:
    """Return the first 8 bytes of each document's SHA-256 as a number, ``[N]``."""
    if isinstance(documents, Records):
        return documents.digests.view(">u8")[:, 0].astype(np.uint64)
    keys = (int(document.digest()[:16], 16) for document in documents)
    return np.fromiter(keys, dtype=np.uint64, count=len(documents))


def sizes_of(documents: Sequence[Document]) -> Ints:
    """Return the bytes of each document, ``[N]``."""
    if isinstance(documents, Records):
        sizes = documents.stops.copy()
        sizes[1:] -= documents.stops[:-1]
        return sizes
    return np.array([document.n_bytes for document in documents], dtype=np.int64)


def identity_of(documents: Sequence[Document]) -> list[Any]:
    """Return the identity of documents, as JSON; equal only for equal texts."""
    if isinstance(documents, Records):
        return documents.identity
    return [document.digest() for document in documents]


def open_pack(
    path: Path, origins: Sequence[Origin], *, is_distinct: bool = False, keeps_blank: bool = False
) -> Records:
    """Open the packed documents of ``origins``; create them where missing.

    A damaged pack is created again; of several processes one writes, the others wait.
    ``is_distinct`` keeps the first of equal documents. Documents without text are dropped, counted
    and reported on standard error, unless ``keeps_blank``.

    Raises DataError where one cannot be read or the disk is full.
    """
    names = [name for name, _ in origins]
    others = f" and {count(len(names) - 1, 'other')}" if len(names) > 1 else ""

    def read() -> Records | None:
        try:
            return Records(path, names)
        except (OSError, ValueError, KeyError):
            return None

    write = partial(_write, path, origins, is_distinct=is_distinct, keeps_blank=keeps_blank)
    return read_or_make(path, f"reads the documents of {names[0]}{others}", read, write)


def _write(path: Path, origins: Sequence[Origin], *, is_distinct: bool, keeps_blank: bool) -> None:
    """Write concatenated texts, then stops, lines and digests, buffered in files."""
    n_documents = n_empty = 0
    bounds = []
    # The documents' digests identify their texts.
    identity = hashlib.sha256()
    seen: set[bytes] = set()
    with replacing(path) as file, ExitStack() as stack:
        pack = FooterFile(file)
        columns = [
            stack.enter_context(TemporaryFile(dir=path.parent, prefix=".arrays.")) for _ in range(3)
        ]
        for name, documents in origins:
            n_empty_here = 0
            for line, text in documents():
                if not keeps_blank and not any(block.strip() for block in blocks_of(text)):
                    n_empty_here += 1
                    continue
                hashed = hashlib.sha256()
                for block in blocks_of(text):
                    hashed.update(block)
                digest = hashed.digest()
                if is_distinct and digest in seen:
                    continue
                if is_distinct:
                    seen.add(digest)
                for block in blocks_of(text):
                    pack.write(block)
                n_documents += 1
                numbers = (n.to_bytes(_NUMBER_BYTES, "little") for n in (pack.n_bytes, line))
                for column, value in zip(columns, (*numbers, digest), strict=True):
                    column.write(value)
                identity.update(digest)
            bounds.append(n_documents)
            n_empty += n_empty_here
            if n_empty_here:
                note = f"{name}: {count(n_empty_here, 'document')} without text left out\n"
                sys.stderr.write(note)
        for column in columns:
            column.seek(0)
        _, crc32 = pack.write_columns(*(iter(partial(c.read, _BLOCK_BYTES), b"") for c in columns))
        pack.close(
            {
                "n_bytes": pack.n_bytes,
                "n_documents": n_documents,
                "n_empty": n_empty,
                "bounds": bounds,
                "sha256": identity.hexdigest(),
                "crc32": crc32,
            }
        )


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

    @property
    def has_parquet(self) -> bool:
        """True where Parquet files are read by their rows."""
        return self.rule in (None, "json")


AS_FILES = Reading()
"""The defaults of a recipe."""


def read_documents(entry: str, cache: Path, reading: Reading = AS_FILES) -> Sequence[Document]:
    """Find the documents that an entry of ``data.path`` names, by ``data.documents``.

    Unset, each file is one, and each row of Parquet files, known by their suffix, and of data sets
    of the hub. Of a folder, ``json`` reads the files with a suffix of JSON or Parquet, ``csv``
    those with one of CSV or TSV.

    Raises DataError where there are none, ConfigError for a rule that contradicts rows of the hub.
    """
    rule = reading.rule
    if entry.startswith(HUB):
        if rule in ("file", "blank-line"):
            raise ConfigError(
                f"data.documents = {rule} contradicts {entry}, of which each row is a document"
            )
        return read_hub(parse_hub(entry), cache, reading)
    files = read_path(entry, cache, has_parquet=reading.has_parquet)
    if rule in _SUFFIXES and expanded(entry).is_dir():
        files = tuple(file for file in files if suffix_of(file.path) in _SUFFIXES[rule])
        if not files:
            raise DataError(
                f"{entry} has no files that end in {', '.join(_SUFFIXES[rule])}: name others, or "
                "unset data.documents"
            )
    kinds = [
        "parquet" if reading.has_parquet and is_parquet(file.path) else rule or "file"
        for file in files
    ]
    return read_files(entry, files, kinds, cache, reading)


def read_files(
    name: str, files: Sequence[FileDocument], kinds: Sequence[str], cache: Path, reading: Reading
) -> Sequence[Document]:
    """Return the documents of files of the kinds of ``read_kind``; raise DataError without any."""
    if all(kind == "file" for kind in kinds):
        return tuple(files)
    origins: list[Origin] = []
    for kind, file in zip(kinds, files, strict=True):
        read = partial(read_kind, kind, file, reading.text_field, is_clean=reading.is_clean)
        origins.append((file.name, partial(read_unchanged, [file], read)))
    identity = [[kind, file.digest()] for kind, file in zip(kinds, files, strict=True)]
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

    def read() -> Iterator[RawDocument]:
        rows = texts_of(data_set.records(reading.text_field), reading.text_field)
        return row_runs(rows) if in_runs else rows

    identity = (name, data_set.revision, reading.text_field, in_runs)
    return cache_documents(name, [(name, read)], cache, *identity)


def sniffed_kind(path: Path) -> str:
    """Return, by its suffix or first line, a published file's kind of ``read_kind``."""
    if is_parquet(path):
        return "parquet"
    first = next((line.lstrip() for _, line in read_lines(path) if line.strip()), b"")
    if first.startswith(b"{"):
        return "json"
    return "articles" if first.startswith(b"<doc ") else "file"


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
