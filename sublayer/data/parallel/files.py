"""Pairs of a text and its translation: two files line by line, or records that hold both."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sublayer.counts import count
from sublayer.data.text.hub import HubSet
from sublayer.data.text.records import (
    PARQUET_ROWS,
    check_single,
    json_objects,
    shown_fields,
)
from sublayer.errors import DataError
from sublayer.files.lines import decoded, parquet_file, python_value, read_lines
from sublayer.tasks.records import read_records, sheets_note, suffix_of

Pair = tuple[int, str, str]
"""The line or row of a pair, from 1, its source and its target, without line ends."""

_HEADERS = {
    *("source", "target", "src", "tgt", "trg", "source_text", "target_text", "src_text"),
    *("tgt_text", "source_sentence", "target_sentence", "text", "translation", "input", "output"),
    *("english", "german", "french", "spanish", "italian", "dutch", "portuguese", "russian"),
    *("chinese", "japanese", "korean", "arabic", "turkish", "polish", "czech", "vietnamese"),
}
"""Words that name a column of texts, not all of which are a field's."""
_TRANSLATION = "translation"
"""The field under which the hub's data sets hold an object of a text per language."""


@dataclass(frozen=True)
class Fields:
    """The JSON fields, or columns of Parquet and of the hub, that hold a pair.

    Of a TSV file without a line that names them they are the first two columns.
    """

    source: str
    target: str


def line_pairs(source: Path, target: Path) -> Iterator[Pair]:
    """Pair two files line by line; plain, gzip or zstd.

    Raises DataError, with file and line, where a line is not UTF-8; with both counts where one file
    is longer.
    """
    lines = zip_longest(read_lines(source), read_lines(target))
    for number, (left, right) in enumerate(lines, 1):
        if left is None or right is None:
            raise DataError(
                f"{source} has {count(_count_lines(source), 'line')} "
                f"and {target} has {_count_lines(target):,}: "
                "line i of one must be the translation of line i of the other"
            )
        source_text = _line(source, number, left[1])
        target_text = _line(target, number, right[1])
        yield number, source_text, target_text


def _count_lines(path: Path) -> int:
    return sum(1 for _ in read_lines(path))


def tab_pairs(path: Path, fields: Fields, notes: list[str]) -> Iterator[Pair]:
    """Read a pair a line, its texts divided by a tab.

    A first line that names columns is no pair: by the fields, which then say which columns are
    read, or by words such as ``source`` and ``target``. Other columns than two are left out. Both
    are added to ``notes``.

    Raises DataError with file and line where there is no tab, or a line is not UTF-8.
    """
    places = (0, 1)
    first_longer = n_longer = 0
    for line, data in read_lines(path):
        columns = _line(path, line, data).split("\t")
        if len(columns) < 2:
            raise DataError(f"{path}, line {line}: no tab between a text and its translation")
        if line == 1 and (found := _named_columns(columns, fields)) is not None:
            places = found
            read = " and ".join(repr(columns[place].strip()) for place in places)
            notes.append(f"{path}: its first line names columns, and is no pair: {read} are read")
            continue
        if max(places) >= len(columns):
            raise DataError(f"{path}, line {line}: fewer columns than the first line names")
        if len(columns) > 2:
            n_longer += 1
            first_longer = first_longer or line
        yield line, columns[places[0]], columns[places[1]]
    if n_longer:
        notes.append(
            f"{path}: {count(n_longer, 'line')} of more than two columns, of which two are read; "
            f"the first is line {first_longer}"
        )


def _named_columns(columns: list[str], fields: Fields) -> tuple[int, int] | None:
    """Return the places of source and target where a first line names columns; else None."""
    names = [column.strip().casefold() for column in columns]
    wanted = [fields.source.casefold(), fields.target.casefold()]
    if all(name in names for name in wanted):
        return names.index(wanted[0]), names.index(wanted[1])
    return (0, 1) if all(name in _HEADERS for name in names[:2]) and names[0] != names[1] else None


def json_pairs(path: Path, fields: Fields) -> Iterator[Pair]:
    """Read a pair from each line's JSON object, or from the object in its ``translation``.

    Blank lines are none. A text that is null is empty, and newlines within one become spaces.

    Raises DataError with file and line where a line is broken or has not both texts.
    """
    for line, record in json_objects(path):
        yield line, *_texts(record, fields, f"{path}, line {line}")


def row_pairs(path: Path, fields: Fields, notes: list[str]) -> Iterator[Pair]:
    """Read a pair a row of CSV or of a workbook, from the two columns of a header.

    Sheets that are not read are added to ``notes``. Texts are as in ``json_pairs``. Raises
    DataError with file and line where a row has not both.
    """
    if suffix_of(path) == ".xlsx" and (sheets := sheets_note(path)):
        notes.append(sheets)
    for record in read_records(path):
        if record.problem:
            raise DataError(f"{record.place} has {record.problem}: mend it")
        yield record.line, *_texts(dict(record.values), fields, record.place)


def parquet_pairs(path: Path, fields: Fields) -> Iterator[Pair]:
    """Read a pair a row, from two columns or from the objects in a column ``translation``.

    Texts are as in ``json_pairs``. Raises DataError where the file is damaged or has not both
    texts, a column is there twice, or pyarrow is not installed.
    """
    with parquet_file(path) as file:
        names = _columns(file.schema_arrow, fields, path)
        row = 0
        for batch in file.iter_batches(batch_size=PARQUET_ROWS, columns=names):
            indices = map(batch.schema.get_field_index, names)
            columns = [batch.column(index) for index in indices]
            for values in zip(*columns, strict=True):
                row += 1
                record = {}
                for name, value in zip(names, values, strict=True):
                    record[name] = python_value(value, path, row)
                yield row, *_texts(record, fields, f"{path}, row {row}")


def _columns(schema: Any, fields: Fields, path: Path) -> list[str]:
    sides = {"source": fields.source, "target": fields.target}
    for side, name in sides.items():
        if name not in schema.names and _TRANSLATION not in schema.names:
            names = shown_fields(schema.names)
            raise DataError(f"{path}: no column {name!r}: set data.{side}_field to {names}")
    candidates = dict.fromkeys([*sides.values(), _TRANSLATION])
    columns = [name for name in candidates if name in schema.names]
    for name in columns:
        check_single(schema, name, path)
    return columns


def hub_pairs(data_set: HubSet, fields: Fields) -> Iterator[Pair]:
    """Read a pair from each row of a data set of the hub.

    Texts are as in ``json_pairs``. Raises DataError where it cannot be fetched or lacks one of the
    texts, or datasets is not installed.
    """
    for row, record in enumerate(data_set.load(), 1):
        yield row, *_texts(record, fields, f"{data_set}, row {row}")


def _texts(record: dict[str, Any], fields: Fields, where: str) -> tuple[str, str]:
    inner = record.get(_TRANSLATION)
    has_both = {fields.source, fields.target} <= record.keys()
    if isinstance(inner, dict) and not has_both:
        record = inner
    texts = []
    for side, name in (("source", fields.source), ("target", fields.target)):
        if name not in record:
            names = shown_fields(record)
            raise DataError(f"{where}: no field {name!r}: set data.{side}_field to one of {names}")
        text = record[name]
        if text is None:
            text = ""
        if not isinstance(text, str):
            raise DataError(f"{where}: field {name!r} is {type(text).__name__}, not text")
        # Pairs are stored a line a text.
        on_one_line = text.replace("\n", " ")
        texts.append(on_one_line)
    source, target = texts
    return source, target


def _line(path: Path, line: int, data: bytes) -> str:
    return decoded(path, line, data.rstrip(b"\r\n"))
