"""Files of rows that ask: of a table of one's own, or a task's own as its publisher wrote them."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from sublayer.errors import DataError
from sublayer.files.paths import as_typed, expanded
from sublayer.files.storage import describe_absence
from sublayer.tasks.example import Example
from sublayer.tasks.name_words import unpacked_name
from sublayer.tasks.own_table.quoted_tsv import read_own_tsv
from sublayer.tasks.predicting.columns import (
    RowColumns,
    ToldColumns,
    example_of,
    find_columns,
)
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import Record, delimiter_of, is_json_list, read_records
from sublayer.tasks.registry import SUITES, find_files, read_split
from sublayer.tasks.task import Task

Kind = Literal["csv", "tsv", "jsonl", "json", "parquet", "xlsx"]
_KINDS: dict[str, Kind] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".xlsx": "xlsx",
}


@dataclass(frozen=True, slots=True)
class AskedRow:
    """A row, and the example that it is."""

    values: Mapping[str, Any]
    """By the names of the columns; those behind the end of a row that is too short are not there.
    """
    example: Example | None
    """None: a text is empty, and it is not answered."""
    place: str


@dataclass(frozen=True)
class AskedFile:
    """A file of rows."""

    path: Path
    kind: Kind
    """What is written back is of the same kind, unless told."""
    names: tuple[str, ...]
    """The columns; of JSON those of the first row."""
    rows: Iterator[AskedRow]
    delimiter: str = ","
    """Of CSV."""
    choice_names: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


def kind_of(path: Path) -> Kind | None:
    """Return of which kind a file is by its suffix; None of none."""
    return _KINDS.get(Path(unpacked_name(path)).suffix)


def read_asked(
    task: Task,
    own: Mapping[str, str | Sequence[str]],
    told: ToldColumns,
    given: Path,
) -> AskedFile:
    """Open the rows of a file, or of the test set that a folder has of a task.

    Where its columns are not those of the task, or it is several files, it is read as the task's
    publisher wrote it: then each example is a row. Raises DataError where there is none, it is
    empty, or is neither.
    """
    path, *others = paths = _test_set(task, given)
    if others:
        if told != ToldColumns():
            raise DataError(
                f"{given} has the test set of {task.title} in {len(paths):,} files: name one of "
                "them, or no columns"
            )
        return _published(task, expanded(given), read_split(task, "test", paths))
    kind = kind_of(path)
    if kind is None:
        raise DataError(
            f"{path} is of no kind that is read: {', '.join(_KINDS)}; lines of text are read from "
            "standard input"
        )
    try:
        return _read_rows(task, own, told, path, kind)
    except DataError as error:
        if told != ToldColumns() or task.suite not in SUITES:
            raise
        try:
            read = read_split(task, "test", paths)
        except DataError:
            raise error from None
        return _published(task, path, read)


def _test_set(task: Task, given: Path) -> tuple[Path, ...]:
    path = expanded(given)
    if path.is_file():
        return (path,)
    if not path.is_dir():
        raise DataError(f"{given} {describe_absence(path)}: name a file of rows")
    if task.suite not in SUITES:
        raise DataError(f"{given} is a folder: name a file of rows")
    found = find_files(task, path)
    tests = [paths for name, paths in found.items() if name in task.test_splits]
    if len(tests) != 1:
        there = ", ".join(found) or "nothing"
        raise DataError(
            f"{given} has {there} of {task.title}, and not one test set: name a file of rows"
        )
    return tests[0]


def _read_rows(
    task: Task,
    own: Mapping[str, str | Sequence[str]],
    told: ToldColumns,
    path: Path,
    kind: Kind,
) -> AskedFile:
    notes: list[str] = []
    delimiter = ","
    records: Iterator[Record]
    suite = SUITES.get(task.suite)
    if kind == "tsv" and suite is not None and task.name in suite.columns:
        records = suite.columns[task.name].records(path)
    elif kind in ("tsv", "xlsx"):
        read = read_own_tsv(path)
        records = iter(read.records)
        notes += [read.note] if read.note else []
        if read.is_quoted:
            kind, delimiter = "csv", "\t"
    else:
        records = read_records(path)
        if kind == "csv":
            delimiter = delimiter_of(path)
        elif kind in ("json", "jsonl"):
            kind = "json" if is_json_list(path) else "jsonl"
    first = next(records, None)
    if first is None:
        raise DataError(f"{path} has no rows")
    try:
        columns = find_columns(task, own, told, first.values, path)
    except DataError as error:
        if Path(unpacked_name(path)).suffix != ".txt":
            raise
        raise DataError(
            f"{error}; .txt is read as a table, whose first line names the columns: lines of text "
            f"are answered by `sublayer predict RUN < {shlex.quote(as_typed(str(path)))}`"
        ) from None
    return AskedFile(
        path,
        kind,
        tuple(first.values),
        _asked(task, columns, chain([first], records)),
        delimiter,
        columns.choices,
        notes,
    )


def _asked(task: Task, columns: RowColumns, records: Iterator[Record]) -> Iterator[AskedRow]:
    for number, record in enumerate(records):
        if record.problem.startswith("more"):
            raise DataError(
                f"{record.place} has {record.problem}, and answers stand beside rows that are "
                "whole: mend it"
            )
        missing = [name for name in columns.fields.values() if name not in record.values]
        if missing and not record.problem:
            record.value(missing[0])  # which says that it is not there
        example = example_of(task, columns, record.values, number, record.place)
        yield AskedRow(record.values, example, record.place)


def _published(task: Task, path: Path, read: ReadSplit) -> AskedFile:
    names = ["id", *task.fields]
    if task.kind == "choice":
        names.append("choices")
    rows = (AskedRow(_values(each), each, f"{path}: {each.id}") for each in read.examples)
    return AskedFile(path, "jsonl", tuple(names), rows, notes=read.described())


def _values(example: Example) -> dict[str, Any]:
    values: dict[str, Any] = {"id": example.id, **example.fields}
    if example.choices:
        values["choices"] = list(example.choices)
    return values
