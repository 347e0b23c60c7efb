"""Pairs of a text and its translation: two files line by line, or records that hold both."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sublayer.data.hub import HubSet
from sublayer.data.lines import decoded, read_lines
from sublayer.data.records import extra_module, json_objects, shown_fields
from sublayer.errors import DataError

Pair = tuple[int, str, str]
"""The line or row where a pair is found, from 1, its source and its target, without ends of lines."""

_PARQUET_ROWS = 1024
_TRANSLATION = "translation"
"""The field under which the hub's data sets hold an object of a text per language."""


@dataclass(frozen=True)
class Fields:
    """The fields of JSON, or columns of Parquet and of the hub, that hold a pair; of a TSV file the first two."""

    source: str
    target: str


def line_pairs(source: Path, target: Path) -> Iterator[Pair]:
    """Pair two files line by line; plain, gzip or zstd.

    Raises DataError, with file and line, where a line is not UTF-8; with both counts where one file is longer.
    """
    for line, (left, right) in enumerate(zip_longest(read_lines(source), read_lines(target)), 1):
        if left is None or right is None:
            n_source, n_target = (sum(1 for _ in read_lines(path)) for path in (source, target))
            raise DataError(
                f"{source} has {n_source:,} lines and {target} has {n_target:,}: line i of one must be the translation "
                "of line i of the other"
            )
        yield line, _line(source, line, left[1]), _line(target, line, right[1])


def tab_pairs(path: Path) -> Iterator[Pair]:
    """Read a pair a line, its texts divided by a tab; further columns are left out.

    Raises DataError with file and line where there is no tab, or a line is not UTF-8.
    """
    for line, data in read_lines(path):
        columns = _line(path, line, data).split("\t")
        if len(columns) < 2:
            raise DataError(f"{path}, line {line}: no tab between a text and its translation")
        yield line, columns[0], columns[1]


def json_pairs(path: Path, fields: Fields) -> Iterator[Pair]:
    """Read a pair a line, from two fields of a JSON object or of the object in its field ``translation``.

    Blank lines are none. Raises DataError with file and line where a line is broken or has not both texts.
    """
    for line, found in json_objects(path):
        yield line, *_texts(found, fields, f"{path}, line {line}")


def parquet_pairs(path: Path, fields: Fields) -> Iterator[Pair]:
    """Read a pair a row. Raises DataError where the file is damaged or has not both texts."""
    parquet = extra_module("pyarrow.parquet", "Parquet files")
    arrow = import_module("pyarrow")
    row = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS):
                for found in batch.to_pylist():
                    row += 1
                    yield row, *_texts(found, fields, f"{path}, row {row}")
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a whole Parquet file ({str(error).splitlines()[0]}): fetch it again") from error


def hub_pairs(found: HubSet, fields: Fields) -> Iterator[Pair]:
    """Read a pair a row of a data set of the hub. Raises DataError where it cannot be fetched or has not both texts."""
    for row, values in enumerate(found.load(), 1):
        yield row, *_texts(values, fields, f"{found}, row {row}")


def _texts(found: dict[str, Any], fields: Fields, where: str) -> tuple[str, str]:
    inner = found.get(_TRANSLATION)
    if isinstance(inner, dict) and not {fields.source, fields.target} <= found.keys():
        found = inner
    texts = []
    for side, name in (("source", fields.source), ("target", fields.target)):
        if name not in found:
            raise DataError(f"{where}: no field {name!r}: set data.{side}_field to {shown_fields(found)}")
        text = found[name]
        if text is not None and not isinstance(text, str):
            raise DataError(f"{where}: field {name!r} is {type(text).__name__}, not text")
        texts.append((text or "").replace("\n", " "))
    return texts[0], texts[1]


def _line(path: Path, line: int, data: bytes) -> str:
    return decoded(path, line, data.rstrip(b"\r\n"))
