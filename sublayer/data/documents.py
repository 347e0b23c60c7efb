"""What a document is: a file, or one of many that a file or a data set of the hub holds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sublayer.config.data import HUB, DocumentRule
from sublayer.config.texts import expanded
from sublayer.data.cache import content_key
from sublayer.data.hub import HubSet, parse_hub
from sublayer.data.intrinsic import passages
from sublayer.data.lines import read_lines
from sublayer.data.pack import Found, Records, open_pack
from sublayer.data.records import READERS, row_runs
from sublayer.data.text import Document, FileDocument, is_parquet, read_path
from sublayer.errors import ConfigError, DataError

VERSION = 1
"""Changes whenever equal files would give other documents."""

_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
_PACKED_SUFFIXES = (".gz", ".zst")


@dataclass(frozen=True)
class Reading:
    """How documents are read: ``data.documents``, ``data.text_field``, and whether what is no prose is dropped."""

    rule: DocumentRule | None = None
    text_field: str = "text"
    is_clean: bool = False


AS_FILES = Reading()


def read_documents(entry: str, cache: Path, reading: Reading = AS_FILES) -> Sequence[Document]:
    """Find the documents that an entry of ``data.path`` names, by ``data.documents``.

    Unset, each file is one, and each row of Parquet files, told by their suffix, and of data sets of the hub. Of a
    folder, ``json`` reads the files with a suffix of JSON or Parquet. Raises DataError where there are none.
    """
    if entry.startswith(HUB):
        if reading.rule in ("file", "blank-line"):
            raise ConfigError(f"data.documents = {reading.rule} contradicts {entry}, of which each row is a document")
        return read_hub(parse_hub(entry), cache, reading)
    files = read_path(entry, cache, has_parquet=reading.rule in (None, "json"))
    if reading.rule == "json" and expanded(entry).is_dir():
        files = tuple(file for file in files if is_parquet(file.path) or _is_json(file.path))
        if not files:
            raise DataError(f"{entry} has no files of JSON lines or Parquet: name others, or unset data.documents")
    kinds = [_kind(file, reading.rule) for file in files]
    return read_files(entry, files, kinds, cache, reading)


def read_files(
    name: str, files: Sequence[FileDocument], kinds: Sequence[str], cache: Path, reading: Reading
) -> Sequence[Document]:
    """Give the documents of files of the kinds in ``READERS``. Raises DataError where there are none."""
    if all(kind == "file" for kind in kinds):
        return tuple(files)
    parts = [[kind, file.digest()] for kind, file in zip(kinds, files, strict=True)]
    path = _pack_path(cache, parts, reading.text_field, reading.is_clean and "blank-line" in kinds)
    origins = [
        (file.name, partial(READERS[kind], file, reading.text_field, reading.is_clean))
        for kind, file in zip(kinds, files, strict=True)
    ]
    return _not_empty(name, open_pack(path, origins))


def read_hub(found: HubSet, cache: Path, reading: Reading, *, in_runs: bool = False) -> Sequence[Document]:
    """Give the rows of a data set of the hub, which is asked for once; ``in_runs`` joins rows that are sentences."""
    path = _pack_path(cache, str(found), found.revision, reading.text_field, in_runs)
    origin = partial(_hub_rows, found, reading.text_field, in_runs=in_runs)
    return _not_empty(str(found), open_pack(path, [(str(found), origin)]))


def read_passages(entries: Sequence[str], cache: Path) -> Sequence[Document]:
    """Give the passages of SQuAD's and RACE's files, each distinct one once. Raises DataError at any other file."""
    files = [file for entry in entries for file in read_path(entry, cache)]
    path = _pack_path(cache, "passages", [file.digest() for file in files])
    origins = [(file.name, partial(passages, file)) for file in files]
    return _not_empty("albert-intrinsic", open_pack(path, origins, is_distinct=True))


def sniffed_kind(path: Path) -> str:
    """Tell by its suffix or its first line what a published file holds: a kind of ``READERS``."""
    if is_parquet(path):
        return "parquet"
    first = next((data.lstrip() for _, data in read_lines(path) if data.strip()), b"")
    return "json" if first.startswith(b"{") else "articles" if first.startswith(b"<doc ") else "file"


def _hub_rows(found: HubSet, field: str, *, in_runs: bool) -> Iterator[Found]:
    rows = found.rows(field)
    return row_runs(rows) if in_runs else rows


def _pack_path(cache: Path, *parts: object) -> Path:
    return cache / "documents" / content_key(VERSION, *parts)


def _not_empty(name: str, records: Records) -> Records:
    if not records:
        raise DataError(f"{name} has no document with text: name another")
    return records


def _kind(file: FileDocument, rule: DocumentRule | None) -> str:
    if rule in (None, "json") and is_parquet(file.path):
        return "parquet"
    return rule or "file"


def _is_json(path: Path) -> bool:
    name = Path(path.stem) if path.suffix.lower() in _PACKED_SUFFIXES else path
    return name.suffix.lower() in _JSON_SUFFIXES
