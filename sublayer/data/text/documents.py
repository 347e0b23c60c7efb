"""Documents: whole files, or the many that a file or a data set of the hub holds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sublayer.config.data import DocumentRule
from sublayer.config.texts import HUB
from sublayer.data.cache import content_key
from sublayer.data.text.document_store import Origin, Records, open_pack
from sublayer.data.text.files import (
    PARQUET,
    Document,
    FileDocument,
    RawDocument,
    is_parquet,
    read_path,
    read_unchanged,
)
from sublayer.data.text.hub import HubSet, parse_hub
from sublayer.data.text.records import READERS, row_runs
from sublayer.errors import ConfigError, DataError
from sublayer.files.lines import read_lines
from sublayer.files.paths import expanded
from sublayer.tasks.records import suffix_of

VERSION = 1
"""Changes whenever equal files would give other documents."""

_SUFFIXES: dict[DocumentRule | None, tuple[str, ...]] = {
    "json": (".json", ".jsonl", ".ndjson", PARQUET),
    "csv": (".csv", ".tsv"),
}
"""Of the files of a folder that a rule reads."""


@dataclass(frozen=True)
class Reading:
    """How documents are read: ``data.documents``, ``data.text_field``, and whether cleaned."""

    rule: DocumentRule | None = None
    """None: each file is one, but for those whose kind says otherwise."""
    text_field: str = "text"
    """The field or column of records that holds their text."""
    is_clean: bool = False
    """Whether a Project Gutenberg header and licence are left out before documents are divided."""


AS_FILES = Reading()
"""What is read where a recipe says nothing."""


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
    """Return, by its suffix or first line, what a published file holds: a kind of ``READERS``."""
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
