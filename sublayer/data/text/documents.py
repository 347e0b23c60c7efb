"""Documents: files, and records of JSON, CSV, Parquet, blank-line text, articles or the hub.

Records are parsed and decompressed once, into a file of the cache with their texts, the ends of
texts and their origins. A document is then a number, and reading one costs a slice. Neither texts
nor arrays of the file are held in memory.
"""

import hashlib
import json
import re
import sys
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from sublayer.config.data import HUB, DocumentRule
from sublayer.data.text.files import (
    PARQUET,
    FileDocument,
    MemoryDocument,
    RawDocument,
    Text,
    body_range,
    is_parquet,
    read_path,
    read_unchanged,
)
from sublayer.errors import ConfigError, DataError, extra_module
from sublayer.files.arrays import FooterFile, Ints, read_columns, read_description
from sublayer.files.cache_folder import content_key, read_or_make, replacing
from sublayer.files.lines import (
    FileText,
    blocks_of,
    count_line_ends,
    decoded,
    read_lines,
    suffix_of,
    unpacked,
)
from sublayer.files.parsing import parse_json
from sublayer.files.storage import expanded
from sublayer.numbers import count
from sublayer.tasks.records import Record, begins_with, read_parquet, read_records, whole_rows

ROWS_PER_DOCUMENT = 1000
"""Sentences per document, for corpora published as sentences without document boundaries."""

_SHOWN_FIELDS = 8
_BLOCK_BYTES = 1 << 20
_LONGEST_DOCUMENT = 256 << 20
_START = re.compile(rb'<doc id="[^"]*"[^>]*?(?: title="([^"]*)")?>\s*')


def json_records(path: Path, field: str = "text") -> Iterator[Record]:
    """Read records of JSON: one object per line, blank lines skipped, or a list.

    A list may also have texts, each of which is read as an object with one ``field``. Raises
    DataError with file and line, or the member's number from 1, for anything else.
    """
    if begins_with(path, b"["):
        for number, member in enumerate(parse_json(unpacked(path), str(path), DataError), 1):
            if not isinstance(member, str | dict):
                kind = type(member).__name__
                raise DataError(
                    f"{path}, member {number} is of type {kind}, not an object with a text"
                )
            yield Record(path, number, {field: member} if isinstance(member, str) else member)
        return
    for line, data in read_lines(path):
        text = decoded(path, line, data)
        if not text.strip():
            continue
        try:
            values = json.loads(text)
        except (RecursionError, ValueError) as error:
            reason = getattr(error, "msg", str(error)).removesuffix(" at")
            raise DataError(
                f"{path}:{line} is not JSON ({reason}): give one JSON object per line"
            ) from error
        if not isinstance(values, dict):
            raise DataError(f"{path}:{line} is not a JSON object: give one object per line")
        yield Record(path, line, values)


def texts_of(records: Iterable[Record], field: str) -> Iterator[RawDocument]:
    """Read the text in a field of each record, empty for null.

    Raises DataError, with the record's place, where the text is missing or has a lone surrogate.
    """
    for record in records:
        values = record.values
        text = values.get(field)
        problem = ""
        if field not in values:
            problem = f"no field {field!r}"
        elif text is not None and not isinstance(text, str):
            problem = f"field {field!r} is {type(text).__name__}, not text"
        if problem:
            texts = [name for name, value in values.items() if isinstance(value, str)]
            remedy = f"set data.text_field (--text-field) to {shown_fields(texts)}"
            if not texts:
                # If only the field was read, no other fields can be suggested.
                remedy = "" if set(values) == {field} else "no field of the record is a text"
            raise DataError(": ".join(filter(None, (record.place, problem, remedy))))
        yield record.line, encoded(text, record.place)


def encoded(text: str | None, where: str) -> bytes:
    """Encode a text, empty for null; raise DataError, with its place, for a lone surrogate."""
    try:
        return (text or "").encode()
    except UnicodeEncodeError as error:
        half = f"{error.object[error.start]!a}"
        raise DataError(f"{where}: {half} is half of a surrogate pair, not a character") from error


def shown_fields(names: Iterable[str]) -> str:
    """List the first few field names for a message."""
    fields = list(names)
    if not fields:
        return "the field of the text; the record has none"
    rest = ", ..." if len(fields) > _SHOWN_FIELDS else ""
    return ", ".join(fields[:_SHOWN_FIELDS]) + rest


def blank_line_texts(file: FileDocument, *, is_clean: bool) -> Iterator[RawDocument]:
    """Read documents separated by blank lines, as bytes; with ``is_clean``, only of the body.

    A document begins with its first line that is not blank, and includes the ends of its lines.
    """
    text = file.read()
    start, stop = body_range(text) if is_clean else (0, len(text))
    number = count_line_ends(text, start) + 1
    lines: list[bytes] = []
    n_bytes = 0
    for line in _lines(text, start, stop):
        n_bytes = n_bytes + len(line) if line.strip() else 0
        if n_bytes > _LONGEST_DOCUMENT:
            raise DataError(
                f"{file.name}, document at line {number - len(lines)}: longer than "
                f"{_LONGEST_DOCUMENT >> 20} MiB without a blank line: unset data.documents, so "
                "that the file is read as one document"
            )
        if n_bytes:
            lines.append(line)
        elif lines:
            yield number - len(lines), b"".join(lines)
            lines = []
        number += 1
    if lines:
        yield number - len(lines), b"".join(lines)


def _lines(text: Text, start: int, stop: int) -> Iterator[bytes]:
    """Yield the lines of a range, their ends included, as ``bytes.splitlines`` divides them."""
    rest = b""
    while start < stop:
        block = text[start : min(start + _BLOCK_BYTES, stop)]
        start += len(block)
        lines = (rest + block).splitlines(keepends=True)
        # The last line may continue: a newline belongs to the carriage return before it.
        is_open = start < stop and not lines[-1].endswith(b"\n") and len(rest) < _LONGEST_DOCUMENT
        rest = lines.pop() if is_open else b""
        yield from lines
    if rest:
        yield rest


def extracted_articles(path: Path) -> Iterator[RawDocument]:
    """Read WikiExtractor's articles, ``<doc ...>`` to ``</doc>``, without their title lines.

    Other published forms of Wikipedia have no title lines. Raises DataError, with file and line,
    for text between articles, or an article without an end.
    """
    first = 0  # first line of the article; 0 between articles
    title = b""
    lines: list[bytes] = []
    for number, line in read_lines(path):
        if not first:
            if start := _START.fullmatch(line):
                first, title, lines = number, start[1] or b"", []
            elif line.strip():
                raise DataError(
                    f"{path}, line {number}: text outside <doc ...> and </doc>: give a file as "
                    "WikiExtractor writes it"
                )
        elif line.strip() == b"</doc>":
            text = b"".join(lines)
            decoded(path, first, text)
            body = text.strip()
            yield first, body + b"\n" if body else b""
            first = 0
        elif lines or line.strip() not in (title, b""):
            lines.append(line)
    if first:
        raise DataError(
            f"{path}, line {first}: an article without </doc>: fetch or extract the file again"
        )


def row_runs(rows: Iterable[RawDocument]) -> Iterator[RawDocument]:
    """Join runs of 1,000 rows into documents, one row a line; the last document may be shorter.

    Whitespace within a row becomes single spaces. A document's position is its first row. Empty
    rows count, but have no line.
    """
    rest = iter(rows)
    while run := list(islice(rest, ROWS_PER_DOCUMENT)):
        lines = (b" ".join(text[:].split()) for _, text in run)
        yield run[0][0], b"\n".join(filter(None, lines)) + b"\n"


def read_kind(
    kind: str, file: FileDocument, field: str, *, is_clean: bool = False
) -> Iterator[RawDocument]:
    """Read the documents of a file of a kind; records have their text in ``field``.

    A kind is file, blank-line, articles, json, csv, parquet or line; for the last four, " runs"
    after the kind joins rows that are sentences. ``is_clean`` leaves out Project Gutenberg's header
    and licence.
    """
    path = file.path
    rows_of, _, runs = kind.partition(" ")
    if kind == "file":
        return iter([(1, file.read())])
    if kind == "blank-line":
        return blank_line_texts(file, is_clean=is_clean)
    if kind == "articles":
        return extracted_articles(path)
    if rows_of == "line":
        rows: Iterator[RawDocument] = ((n, line) for n, line in read_lines(path) if line.strip())
    elif rows_of == "parquet":
        rows = texts_of(read_parquet(path, (field,)), field)
    elif rows_of == "csv":
        suffix = ".tsv" if suffix_of(path) == ".tsv" else ".csv"
        rows = texts_of(whole_rows(read_records(path, suffix)), field)
    else:
        rows = texts_of(json_records(path, field), field)
    return row_runs(rows) if runs else rows


_NAME = re.compile(r"hub:(?P<name>[\w.-]+/[\w.-]+)(?::(?P<config>[^:@]+))?(?:@(?P<split>[^@]+))?")


@dataclass(frozen=True)
class HubSet:
    """Split of a data set on the hub."""

    name: str
    """``owner/name`` of the data set."""
    config: str | None = None
    """Configuration of the data set, such as a language; None: the default."""
    split: str = "train"
    """Name of the split in the data set."""
    revision: str | None = None
    """Branch of its repository; None: the main one."""

    def __str__(self) -> str:
        config = f":{self.config}" if self.config else ""
        return f"{HUB}{self.name}{config}@{self.split}"

    def load(self) -> Any:
        """Fetch the split, once, and return its rows as ``datasets`` does.

        Raises DataError where the split cannot be fetched, or datasets is not installed.
        """
        datasets = extra_module("datasets", "data sets of the hub")
        failures = (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError)
        try:
            return datasets.load_dataset(
                self.name, self.config, split=self.split, revision=self.revision
            )
        except failures as error:
            on_one_line = " ".join(str(error).split())
            reason = on_one_line[:200] or type(error).__name__
            raise DataError(
                f"{self} cannot be fetched from the hub ({reason}): "
                "fetch it where there is a network, or name its files in data.path"
            ) from error

    def records(self, field: str = "") -> Iterator[Record]:
        """Read the rows, only ``field`` of them if they have it; raise DataError as ``load``."""
        data_set = self.load()
        if field in data_set.column_names:
            data_set = data_set.select_columns([field])
        return (Record(str(self), row, values) for row, values in enumerate(data_set, 1))

    def documents(
        self, cache: Path, reading: "Reading", *, in_runs: bool = False
    ) -> "Sequence[Document]":
        """Return the rows of a data set of the hub, which is fetched once.

        ``in_runs`` joins rows that are sentences, 1,000 to a document. Raises DataError where it
        cannot be fetched, or has no text in the field.
        """
        name = str(self)

        def read() -> Iterator[RawDocument]:
            rows = texts_of(self.records(reading.text_field), reading.text_field)
            return row_runs(rows) if in_runs else rows

        identity = (name, self.revision, reading.text_field, in_runs)
        return cache_documents(name, [(name, read)], cache, *identity)


def parse_hub(entry: str) -> HubSet:
    """Parse ``hub:owner/name:config@split``; raise DataError for anything else.

    The config and the split may be left out; the split is then ``train``.
    """
    match = _NAME.fullmatch(entry)
    if match is None:
        raise DataError(
            f"{entry} does not name a data set: "
            "write hub:owner/name, with :config and @split if needed"
        )
    return HubSet(match["name"], match["config"], match["split"] or "train")


_DIGEST_BYTES = 32
_NUMBER_BYTES = 8

Item = TypeVar("Item")
Origin = tuple[str, Callable[[], Iterator[RawDocument]]]
"""Source of documents: its name in messages, and their reader."""


class LazySequence(Sequence[Item]):
    """Sequence of items that are created on access."""

    @abstractmethod
    def item(self, number: int) -> Item:
        """Create an item, by its number from 0."""

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        numbers = range(len(self))[index]
        return self.item(numbers) if isinstance(numbers, int) else [*map(self.item, numbers)]


class Records(LazySequence["PackedDocument"]):
    """Documents of a packed file, created on access.

    ``names`` are the files of their origin, in order. ``n_empty`` counts the documents without
    text, which are left out. ``stops`` ``[N]`` are the ends of texts, which are concatenated;
    ``digests`` ``[N, 32]`` are their SHA-256.

    Raises OSError, ValueError or KeyError where the file is missing or damaged. Of arrays larger
    than 256 MiB only the size is checked, and texts are not checked at all.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        meta, n_bytes = read_description(path)
        self._opened = path, tuple(names)
        self._bounds: list[int] = meta["bounds"]
        self.n_empty: int = meta["n_empty"]
        self.identity: list[Any] = ["records", meta["sha256"]]
        if len(self._bounds) != len(names):
            raise ValueError("the documents are of other files")
        n: int = meta["n_documents"]
        counts = (n, n, n * _DIGEST_BYTES // _NUMBER_BYTES)
        self.text = FileText(path, 0, meta["n_bytes"])
        self.stops, self.lines, digests = read_columns(
            path, meta["n_bytes"], counts, n_bytes, meta["crc32"]
        )
        self.digests = digests.view(np.uint8).reshape(n, _DIGEST_BYTES)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by path, so that a receiving process opens the file once."""
        return _reopened, self._opened

    def __len__(self) -> int:
        return len(self.stops)

    def item(self, number: int) -> "PackedDocument":
        """Return a document."""
        return PackedDocument(self, number)

    def name(self, index: int) -> str:
        """Return a document's file and line, for messages."""
        _, names = self._opened
        name = names[bisect_right(self._bounds, index)]
        return f"{name}, document at line {self.lines[index]}"


@lru_cache(maxsize=8)
def _reopened(path: Path, names: Sequence[str]) -> Records:
    return Records(path, names)


@dataclass(frozen=True)
class PackedDocument:
    """Document of a packed file."""

    records: Records
    index: int

    @property
    def name(self) -> str:
        """File and line of the document."""
        return self.records.name(self.index)

    @property
    def n_bytes(self) -> int:
        """Size of the document's text."""
        start, stop = self._place
        return stop - start

    @property
    def _place(self) -> tuple[int, int]:
        # A document begins where the previous one ends.
        stops = self.records.stops
        return int(stops[self.index - 1]) if self.index else 0, int(stops[self.index])

    def read(self) -> bytes:
        """Return the document's text."""
        start, stop = self._place
        return self.records.text[start:stop]

    def digest(self) -> str:
        """SHA-256 of the document's text."""
        return bytes(self.records.digests[self.index]).hex()


Document = FileDocument | MemoryDocument | PackedDocument
"""Text that is never divided between splits, unless it is the only one."""


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
    """Open the packed documents of ``origins``; create the pack if it is missing or damaged.

    Of several processes one writes, and the others wait. ``is_distinct`` keeps the first of equal
    documents. Documents without text are dropped, counted and reported on standard error, unless
    ``keeps_blank``.

    Raises DataError where a document cannot be read or the disk is full.
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
    # Texts are identified by their documents' digests.
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
"""Version of the reading: increased whenever equal files would give other documents."""

_SUFFIXES: dict[DocumentRule | None, tuple[str, ...]] = {
    "json": (".json", ".jsonl", ".ndjson", PARQUET),
    "csv": (".csv", ".tsv"),
}
"""Suffixes of the files of a folder that a rule reads."""


@dataclass(frozen=True)
class Reading:
    """Settings of a reader: ``data.documents``, ``data.text_field``, and whether to clean."""

    rule: DocumentRule | None = None
    """Rule of documents; None: a file, or a row of a Parquet file or of a data set of the hub."""
    text_field: str = "text"
    """Field or column of records that holds their text."""
    is_clean: bool = False
    """Whether a Project Gutenberg header and licence are left out before documents are divided."""

    @property
    def has_parquet(self) -> bool:
        """Return whether Parquet files are read by their rows."""
        return self.rule in (None, "json")


AS_FILES = Reading()
"""Defaults of a recipe."""


def read_documents(entry: str, cache: Path, reading: Reading = AS_FILES) -> Sequence[Document]:
    """Find the documents that an entry of ``data.path`` names, by ``data.documents``.

    If unset, a document is a file, or a row of a Parquet file, known by its suffix, or of a data
    set of the hub. Of a folder, ``json`` reads the files with a suffix of JSON or Parquet, ``csv``
    those with a suffix of CSV or TSV.

    Raises DataError where there are no documents, ConfigError for a rule that contradicts the rows
    of a data set.
    """
    rule = reading.rule
    if entry.startswith(HUB):
        if rule in ("file", "blank-line"):
            raise ConfigError(
                f"data.documents = {rule} contradicts {entry}, of which each row is a document: "
                "unset it"
            )
        return parse_hub(entry).documents(cache, reading)
    files = read_path(entry, cache, has_parquet=reading.has_parquet)
    if rule in _SUFFIXES and expanded(entry).is_dir():
        files = tuple(file for file in files if suffix_of(file.path) in _SUFFIXES[rule])
        if not files:
            raise DataError(
                f"{entry} has no files with the suffix {', '.join(_SUFFIXES[rule])}: name other "
                "files, or unset data.documents"
            )
    kinds = [
        "parquet" if reading.has_parquet and is_parquet(file.path) else rule or "file"
        for file in files
    ]
    return read_files(entry, files, kinds, cache, reading)


def read_files(
    name: str, files: Sequence[FileDocument], kinds: Sequence[str], cache: Path, reading: Reading
) -> Sequence[Document]:
    """Return the documents of files by their kinds (``read_kind``); raise DataError if none."""
    if all(kind == "file" for kind in kinds):
        return tuple(files)
    origins: list[Origin] = []
    for kind, file in zip(kinds, files, strict=True):
        read = partial(read_kind, kind, file, reading.text_field, is_clean=reading.is_clean)
        origins.append((file.name, partial(read_unchanged, [file], read)))
    identity = [[kind, file.digest()] for kind, file in zip(kinds, files, strict=True)]
    is_cleaned = reading.is_clean and "blank-line" in kinds
    return cache_documents(name, origins, cache, identity, reading.text_field, is_cleaned)


def sniffed_kind(path: Path) -> str:
    """Return the kind (``read_kind``) of a published file, by its suffix or first line."""
    if is_parquet(path):
        return "parquet"
    first = next((line.lstrip() for _, line in read_lines(path) if line.strip()), b"")
    if first.startswith(b"{"):
        return "json"
    return "articles" if first.startswith(b"<doc ") else "file"


def cache_documents(
    name: str, origins: Sequence[Origin], cache: Path, *identity: object, is_distinct: bool = False
) -> Records:
    """Read the documents of ``origins`` once, cached by ``identity``; raise DataError if none.

    ``is_distinct`` leaves out documents that are equal to an earlier one.
    """
    path = cache / "documents" / content_key(VERSION, *identity)
    records = open_pack(path, origins, is_distinct=is_distinct)
    if not records:
        raise DataError(f"{name} has no document with text: name another text")
    return records
