"""Rows of named columns, read as examples of a task."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from sublayer.errors import DataError
from sublayer.files.lines import read_start
from sublayer.tasks.example import Example
from sublayer.tasks.finding import check_shards
from sublayer.tasks.labels import read_class, read_number
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import (
    Record,
    is_json,
    missing_column,
    named,
    read_csv,
    read_records,
    read_tsv_records,
    suffix_of,
)
from sublayer.tasks.task import Task

UNLABELLED = "no label (-1 or empty)"
"""Why a row of a training or development set is left out."""
NO_TEXT = "no text (null)"

_JUDGED_ROWS = 8
_START_BYTES = 1 << 14
_IDS = ("idx", "index", "id")


@dataclass(frozen=True)
class Columns:
    """What the columns of a task's files are called."""

    texts: Mapping[str, tuple[str, ...]]
    """By our names, the names in use: the publisher's, and those of the hub's copies."""
    label: tuple[str, ...]
    ids: tuple[str, ...] = _IDS
    source: str = ""
    """The text, by our name, that examples of one source share; empty: each is its own."""
    without_header: tuple[str, ...] = ()
    """The columns of TSV that has no header, in order."""
    no_labels: Mapping[str, str] = field(default_factory=dict)
    """What is written in place of a label, and why the row is left out then."""
    synonyms: Mapping[str, str] = field(default_factory=dict)
    """Labels that some files call otherwise."""
    quoted: tuple[str, ...] = ()
    """Files of TSV whose quotes stand around fields, as in CSV."""
    xml: Callable[[Path], Iterator[Record]] = read_records
    """Reader of files of XML."""
    may_end_early: bool = False
    """Whether rows may lack what stands behind the columns that are read."""

    def records(self, path: Path) -> Iterator[Record]:
        """Read the rows of a file of any kind; ``.txt`` is TSV, or else JSON lines."""
        suffix = suffix_of(path)
        if path.name.lower() in self.quoted:
            return read_csv(path, "\t")
        if suffix == ".csv" and self.without_header and _has_tabs(path):
            suffix = ".tsv"
        if suffix == ".txt" and is_json(path):
            return read_records(path, ".jsonl")
        if suffix in (".tsv", ".txt"):
            return read_tsv_records(path, self.without_header, self.has_texts)
        return self.xml(path) if suffix == ".xml" else read_records(path)

    def problem(self, record: Record) -> str:
        """Return why a record is no row of these columns, or an empty text."""
        if self.may_end_early and self.has_texts(record.values):
            is_whole = record.problem.startswith("fewer") and _column(record, self.label)
            return "" if is_whole else record.problem
        return record.problem

    def has_texts(self, names: Iterable[str]) -> bool:
        """Return whether columns of these names hold all texts."""
        there = set(names)
        return all(there.intersection(known) for known in self.texts.values())


def _has_tabs(path: Path) -> bool:
    """Return whether the first line of a file has tabs."""
    return b"\t" in read_start(path, _START_BYTES).partition(b"\n")[0]


def may_be_of(task: Task, columns: Columns) -> Callable[[str, Path], bool]:
    """Return what judges by its first rows whether a file may hold a split of the task."""

    def may_be(split: str, path: Path) -> bool:
        try:
            first = islice(columns.records(path), _JUDGED_ROWS)
            read_rows(task, ReadSplit(split, (path,)), first, columns, path)
        except DataError:
            return False
        return True

    return may_be


def read_columns(task: Task, split: str, paths: tuple[Path, ...], columns: Columns) -> ReadSplit:
    """Read the files of a split.

    Left out and counted are rows of another number of fields than the header, and rows of a
    training or development set without a label. Ids are the publisher's or, where there are none,
    the numbers of the rows, from 0, those that are left out included.

    Raises DataError, with file and line, for files without rows, a column that is missing, and a
    label that is none.
    """
    check_shards(paths)
    result = ReadSplit(split, paths)
    n_rows = 0
    for path in paths:
        n_rows = read_rows(task, result, columns.records(path), columns, path, n_rows)
    return result


def read_rows(
    task: Task,
    result: ReadSplit,
    records: Iterable[Record],
    columns: Columns,
    path: Path,
    n_rows: int = 0,
) -> int:
    """Add the rows of a file to a split that has ``n_rows``, and return how many it has then.

    Raises as ``read_columns`` does.
    """
    reader = None
    before = n_rows
    problem = ""
    for record in records:
        problem = record.problem and columns.problem(record)
        if problem:
            result.skip(problem, record.place)
        else:
            reader = reader or _RowReader(task, result, columns, record)
            reader.read(record, n_rows)
        n_rows += 1
    if n_rows == before:
        raise DataError(f"{path} has no rows")
    if reader is None:
        raise DataError(f"{path} is not of {task.title}: its rows have {problem}")
    return n_rows


class _RowReader:
    """Reads the rows of a file whose columns are those of its first."""

    def __init__(self, task: Task, result: ReadSplit, columns: Columns, first: Record) -> None:
        self._task = task
        self._result = result
        self._columns = columns
        self._is_test = result.name.startswith("test")
        self._texts = {ours: _needed(first, names) for ours, names in columns.texts.items()}
        self._label = _column(first, columns.label)
        if self._label is None and not self._is_test:
            _needed(first, columns.label)
        self._id = _column(first, columns.ids)
        self._labels: dict[str, int | float | None] = {}

    def read(self, record: Record, number: int) -> None:
        values = record.values
        try:
            texts = {ours: values[theirs] for ours, theirs in self._texts.items()}
            written = None if self._label is None else values[self._label]
        except KeyError as error:
            name = error.args[0]
            raise DataError(f"{record.place} has no {name}: it has {named(values)}") from None
        for ours, theirs in self._texts.items():
            if texts[ours] is None:
                self._result.skip(NO_TEXT, record.place)
                return
            if not isinstance(texts[ours], str):
                record.text(theirs)  # which says what it is
        if self._columns.no_labels and str(written) in self._columns.no_labels:
            self._result.skip(self._columns.no_labels[str(written)], record.place)
            return
        label = self._read_label(written, record)
        if label is None and not self._is_test:
            self._result.skip(UNLABELLED, record.place)
            return
        id_ = None if self._id is None else values.get(self._id)
        example = Example(
            id=str(number if id_ is None else id_),
            fields=texts,
            label=label,
            is_labelled=label is not None,
            source=texts[self._columns.source] if self._columns.source else "",
        )
        self._result.add(example, record)

    def _read_label(self, written: Any, record: Record) -> int | float | None:
        read = read_number if self._task.kind == "number" else read_class
        if not isinstance(written, str):
            return read(self._task, written, record.place)
        if written not in self._labels:
            label = self._columns.synonyms.get(written, written)
            self._labels[written] = read(self._task, label, record.place)
        return self._labels[written]


def _column(first: Record, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in first.values), None)


def _needed(first: Record, names: tuple[str, ...]) -> str:
    name = _column(first, names)
    if name is None:
        raise missing_column(first.path, names, first.values)
    return name
