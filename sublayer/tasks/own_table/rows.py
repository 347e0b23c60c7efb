"""The rows of a table of one's own: its files, its columns, and rows that have their texts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sublayer.counts import count
from sublayer.errors import DataError
from sublayer.files.paths import expanded
from sublayer.files.storage import describe_absence
from sublayer.tasks.finding import check_shards, entries, one_copy
from sublayer.tasks.name_words import split_in_name, unpacked_name
from sublayer.tasks.own_table.labels import is_blank
from sublayer.tasks.own_table.quoted_tsv import read_own_tsv
from sublayer.tasks.own_table.table import Table
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import Record, missing_column, read_records
from sublayer.tasks.suite import Found

_SPLITS = ("train", "dev", "test")
_SHOWN_FILES = 4
SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".xlsx")


@dataclass(frozen=True, slots=True)
class Row:
    """A row with its texts; what is right is not yet read."""

    record: Record
    number: int
    """Among all rows of its split, from 0."""
    fields: Mapping[str, str]
    choices: tuple[str, ...]

    @property
    def place(self) -> str:
        """Return file and line."""
        return self.record.place


@dataclass
class Rows:
    """The rows of a split, and what was left out of it."""

    table: Table
    result: ReadSplit
    rows: list[Row] = field(default_factory=list)


def find_table(path: str | Path) -> Found:
    """Find a table's files: one, which is to be trained on, or those of a folder, by their splits.

    Raises DataError where there are none.
    """
    place = expanded(path)
    if place.is_file():
        return {"train": (place,)}
    if not place.is_dir():
        raise DataError(
            f"{path} {describe_absence(place)}: name the file of a table, or a folder of them"
        )
    paths = {split: _paths_of(place, split) for split in _SPLITS}
    found = {split: one_copy(of_split) for split, of_split in paths.items() if of_split}
    if not found:
        raise DataError(
            f"{path} has no table with train, dev or test in its name ({', '.join(SUFFIXES)})"
            f"{_what_else(place)}"
        )
    return found


def _what_else(folder: Path) -> str:
    """Say what is in a folder instead, and what to do."""
    files = [each for each in entries(folder) if each.is_file()]
    tables = [each for each in files if Path(unpacked_name(each)).suffix in SUFFIXES]
    if tables:
        return f": name one file, such as {tables[0]}, or rename the parts"
    there = f": it has {files[0].name}" if files else ""
    return f"{there}: name a file of that kind"


def find_parts(path: str | Path) -> set[str]:
    """Return the splits of which a folder has tables; of anything else none."""
    place = expanded(path)
    return {split for split in _SPLITS if place.is_dir() and _paths_of(place, split)}


def _paths_of(folder: Path, split: str) -> list[Path]:
    return [each for each in entries(folder) if split_in_name(each, SUFFIXES) == split]


def describe_left_out(path: str | Path, found: Found) -> list[str]:
    """Say of a folder which of its tables are of no split, or of one that another file has."""
    place = expanded(path)
    read = {each for paths in found.values() for each in paths}
    tables = [each for each in entries(place) if each.is_file()] if place.is_dir() else []
    others = [
        each for each in tables if each not in read and Path(unpacked_name(each)).suffix in SUFFIXES
    ]
    if not others:
        return []
    listed = ", ".join(each.name for each in others[:_SHOWN_FILES])
    more = f" and {len(others) - _SHOWN_FILES:,} more" if len(others) > _SHOWN_FILES else ""
    parts = "of the same part as another, or without train, dev or test in its name: rename them"
    return [f"{count(len(others), 'table')} of {path} not read ({parts}): {listed}{more}"]


def columns_of(path: str | Path) -> tuple[str, ...]:
    """Return the columns of a table's first file; raise DataError where it is none, or is empty."""
    first, *_ = find_table(path).values()
    records = _records(first[0], ReadSplit("", first))
    record = next(iter(records), None)
    if record is None:
        raise DataError(f"{first[0]} has no rows")
    return tuple(record.values)


def rows_of(table: Table, split: str, paths: tuple[Path, ...]) -> Rows:
    """Read the rows of a split. Those without a text, a choice or a column are counted.

    Raises DataError for a column that is missing, a text that is none, and where nothing is left.
    """
    check_shards(paths)
    rows = Rows(table, ReadSplit(split, paths))
    n_rows = 0
    for path in paths:
        before = n_rows
        columns: dict[str, None] = {}
        for record in _records(path, rows.result):
            if not record.problem:
                # Each object of JSON may have names of its own; rows of other files have all.
                columns |= dict.fromkeys(record.values)
            _add(rows, record, n_rows)
            n_rows += 1
        if n_rows == before:
            raise DataError(f"{path} has no rows")
        if columns:
            _check_columns(table, split, path, columns)
    if not rows.rows:
        reasons = " or ".join(rows.result.skipped)
        raise DataError(f"{paths[0]} has {count(n_rows, 'row')}, all to be left out: {reasons}")
    return rows


def _records(path: Path, result: ReadSplit) -> Iterable[Record]:
    if not unpacked_name(path).endswith((".tsv", ".xlsx")):
        return read_records(path)
    read = read_own_tsv(path)
    if read.note:
        result.notes.append(read.note)
    return read.records


def _check_columns(table: Table, split: str, path: Path, columns: Mapping[str, None]) -> None:
    names = [*table.texts, *table.choices, table.group, table.id]
    if split != "test":
        names += [table.is_right, table.answer_start]
    if missing := [name for name in names if name and name not in columns]:
        raise missing_column(path, missing[:1], columns, missing[1:])


def _add(rows: Rows, record: Record, number: int) -> None:
    table = rows.table
    if record.problem:
        rows.result.skip(record.problem, record.place)
        return
    texts = {}
    for name in (*table.texts, *table.choices):
        if is_blank(record.values.get(name)):
            rows.result.skip(f"nothing in the column {name!r}", record.place)
            return
        texts[name] = record.text(name)
    fields = {name: texts[name] for name in table.texts}
    rows.rows.append(Row(record, number, fields, tuple(texts[name] for name in table.choices)))
