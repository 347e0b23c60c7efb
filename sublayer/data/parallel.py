"""Pairs of a text and its translation: two files line by line, or records that hold both."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sublayer.data.hub import HubSet
from sublayer.data.lines import decoded, read_lines
from sublayer.data.records import PARQUET_ROWS, check_single, json_objects, parquet_file, python_value, shown_fields
from sublayer.errors import DataError

Pair = tuple[int, str, str]
"""The line or row where a pair is found, from 1, its source and its target, without ends of lines."""

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
    with parquet_file(path) as file:
        names = _columns(file.schema_arrow, fields, path)
        row = 0
        for batch in file.iter_batches(batch_size=PARQUET_ROWS, columns=names):
            columns = {name: batch.column(batch.schema.get_field_index(name)) for name in names}
            for values in zip(*columns.values(), strict=True):
                row += 1
                found = {name: python_value(value, path, row) for name, value in zip(columns, values, strict=True)}
                yield row, *_texts(found, fields, f"{path}, row {row}")


def _columns(schema: Any, fields: Fields, path: Path) -> list[str]:
    sides = {"source": fields.source, "target": fields.target}
    for side, name in sides.items():
        if name not in schema.names and _TRANSLATION not in schema.names:
            raise DataError(f"{path}: no column {name!r}: set data.{side}_field to {shown_fields(schema.names)}")
    names = [name for name in dict.fromkeys([*sides.values(), _TRANSLATION]) if name in schema.names]
    for name in names:
        check_single(schema, name, path)
    return names


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
