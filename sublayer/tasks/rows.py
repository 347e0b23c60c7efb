"""Rows of named columns and nested objects, read as examples of a task."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from sublayer.errors import DataError
from sublayer.files.lines import read_start
from sublayer.tasks.finding import Layout, check_shards, find_splits
from sublayer.tasks.reading import ReadSplit, read_class, read_number
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
from sublayer.tasks.task import Example, Task
from sublayer.tasks.wording import Wording

UNLABELLED = "no label (-1 or empty)"
"""Why a row of a training or development set is left out."""
NO_TEXT = "no text (null)"

_JUDGED_ROWS = 8
_START_BYTES = 1 << 14
_IDS = ("idx", "index", "id")


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a task's files."""

    texts: Mapping[str, tuple[str, ...]]
    """By our names, the names in use: the publisher's, and those of the hub's copies."""
    label: tuple[str, ...]
    ids: tuple[str, ...] = _IDS
    source: str = ""
    """The text, by our name, that examples of one source share; empty: each is its own."""
    without_header: tuple[str, ...] = ()
    """The columns of TSV that has no header, in order."""
    no_labels: Mapping[str, str] = field(default_factory=dict)
    """Words in place of a label, and why the row is left out then."""
    synonyms: Mapping[str, str] = field(default_factory=dict)
    """Labels that some files call otherwise."""
    quoted: tuple[str, ...] = ()
    """Files of TSV whose quotes stand around fields, as in CSV."""
    xml: Callable[[Path], Iterator[Record]] = read_records
    """Reader of files of XML."""
    may_end_early: bool = False
    """True where rows may lack what stands behind the columns that are read."""

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
                record.text(theirs)  # whose error names the type
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


_T = TypeVar("_T")
_LABELS = {"label", "answer", "answers", "isAnswer", "qas"}
"""Fields in any of which files have labels or answers."""


@dataclass(frozen=True, slots=True)
class Nested:
    """An object, and where it stands.

    A value that is asked for and missing, null or of another type raises DataError, with the place.
    """

    whole_place: str
    """A file, or file and line."""
    path: str
    """Of the object within it, such as ``passage.questions[2]``; empty: it is the whole."""
    values: Mapping[str, Any]

    @property
    def place(self) -> str:
        """Return both, as messages name them."""
        return f"{self.whole_place}: {self.path}" if self.path else self.whole_place

    def has(self, name: str) -> bool:
        """Return whether a value is there, and not null."""
        return self.values.get(name) is not None

    def get(self, name: str) -> Any:
        """Return a value of any type."""
        if not self.has(name):
            there = [each for each in self.values if self.has(each)]
            raise DataError(f"{self.place} has no {name}: it has {named(there)}")
        return self.values[name]

    def text(self, name: str) -> str:
        """Return a text."""
        return self._typed(name, str, "a text")

    def whole(self, name: str) -> int:
        """Return a whole number, or a text of one."""
        value = self.get(name)
        if isinstance(value, str) and value.strip().isdecimal():
            return int(value)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, bool):
            raise self._other(name, value, "a whole number")
        return self._typed(name, int, "a whole number")

    def inner(self, name: str) -> "Nested":
        """Return an object."""
        values: dict[str, Any] = self._typed(name, dict, "an object")
        return Nested(self.whole_place, self._path(name), values)

    def each(self, name: str) -> "list[Nested]":
        """Return the objects of a list."""
        objects = []
        for index, value in enumerate(self._list(name)):
            if not isinstance(value, dict):
                raise self._other(f"{name}[{index}]", value, "an object")
            objects.append(Nested(self.whole_place, f"{self._path(name)}[{index}]", value))
        return objects

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the texts of a list."""
        return tuple(self._elements(name, str, "a text"))

    def wholes(self, name: str) -> tuple[int, ...]:
        """Return the whole numbers of a list."""
        return tuple(self._elements(name, int, "a whole number"))

    def _elements(self, name: str, kind: type[_T], words: str) -> Sequence[_T]:
        values = self._list(name)
        for index, value in enumerate(values):
            if not isinstance(value, kind) or isinstance(value, bool):
                raise self._other(f"{name}[{index}]", value, words)
        return values

    def _list(self, name: str) -> list[Any]:
        values: list[Any] = self._typed(name, list, "a list")
        return values

    def _typed(self, name: str, kind: type[_T], words: str) -> _T:
        value = self.get(name)
        if not isinstance(value, kind):
            raise self._other(name, value, words)
        return value

    def _path(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def _other(self, name: str, value: object, words: str) -> DataError:
        kind = "null" if value is None else type(value).__name__
        return DataError(f"{self.whole_place}: {self._path(name)} is {kind}, not {words}")


def next_passage(result: ReadSplit) -> int:
    """Return the number of a passage whose file gives it none: behind that of the last example."""
    return int(result.examples[-1].extra["passage"]) + 1 if result.examples else 0


def add_known(result: ReadSplit, example: Example, row: Nested) -> bool:
    """Keep an example, or leave it out if it has no label or answer, though it is no test's.

    Return whether it was kept.
    """
    if example.is_labelled or result.name.startswith("test"):
        return result.add(example, row)
    if _LABELS.isdisjoint(row.values):
        result.skip(f"no field label: it has {named(row.values)}", row.place)
    else:
        result.skip(UNLABELLED, row.place)
    return False


Found = Mapping[str, tuple[Path, ...]]
"""The files of each split that is there, by its name."""


@dataclass(frozen=True, kw_only=True)
class Published(ABC):
    """A row of the table of tasks: a task, where its files lie, how they are read and worded."""

    task: Task
    wording: Callable[[Task], Wording] | None = None
    """None: that of its kind."""

    @property
    @abstractmethod
    def files(self) -> str:
        """Return the names that its files are found by."""

    @property
    def columns(self) -> Columns | None:
        """Return the names of the columns of its files; None: they are called as its fields."""
        return None

    @abstractmethod
    def find(self, folder: Path) -> Found:
        """Find its files in a folder: that of the suite, of the task, or one above."""

    @abstractmethod
    def read(self, split: str, paths: tuple[Path, ...]) -> ReadSplit:
        """Read a split's files. Rows that have no meaning are left out and counted.

        Raises DataError, with file and line, where a file is not of the format.
        """


@dataclass(frozen=True, kw_only=True)
class LaidOut(Published):
    """A task whose files are found by their names and folders."""

    layout: Layout

    @property
    def files(self) -> str:
        """Return the names."""
        return self.layout.described()

    def find(self, folder: Path) -> Found:
        """Find the files of the splits that the task has."""
        found = self.find_all(folder)
        return {split: found[split] for split in self.task.splits if split in found}

    def find_all(self, folder: Path) -> dict[str, tuple[Path, ...]]:
        """Find the files of any split."""
        return find_splits(folder, self.layout, self.may_be)

    @abstractmethod
    def may_be(self, split: str, path: Path) -> bool:
        """Judge by its first rows whether a file may hold a split."""


@dataclass(frozen=True, kw_only=True)
class ColumnsTask(LaidOut):
    """A task whose files are tables, a row for each example."""

    names: Columns

    @property
    def columns(self) -> Columns:
        """Return the names of the columns."""
        return self.names

    def may_be(self, split: str, path: Path) -> bool:
        """Read the first rows."""
        try:
            first = islice(self.names.records(path), _JUDGED_ROWS)
            read_rows(self.task, ReadSplit(split, (path,)), first, self.names, path)
        except DataError:
            return False
        return True

    def read(self, split: str, paths: tuple[Path, ...]) -> ReadSplit:
        """Read the rows as ``read_columns`` does."""
        return read_columns(self.task, split, paths, self.names)


@dataclass(frozen=True, kw_only=True)
class ObjectsTask(LaidOut):
    """A task whose files are objects of JSON, each of which adds its examples."""

    keys: tuple[frozenset[str], ...] = ()
    """Names that a row has, as published or in the hub's copies; empty: its fields."""
    noun: str = "rows"
    """Word for its objects where there are none."""

    def may_be(self, split: str, path: Path) -> bool:
        """Return whether the first row has the names of the task's."""
        try:
            first = next(self.records(path), None)
        except DataError:
            return False
        keys = self.keys or (set(self.task.fields),)
        return first is not None and any(each <= set(first.values) for each in keys)

    def records(self, path: Path) -> Iterator[Record]:
        """Read the rows of a file."""
        return read_records(path)

    @abstractmethod
    def add(self, row: Nested, result: ReadSplit) -> None:
        """Add the examples of a row to a split."""

    def read(self, split: str, paths: tuple[Path, ...]) -> ReadSplit:
        """Read the rows of all files."""
        check_shards(paths)
        result = ReadSplit(split, paths)
        for path in paths:
            is_empty = True
            for record in self.records(path):
                is_empty = False
                if record.problem:
                    result.skip(record.problem, record.place)
                else:
                    self.add(Nested(record.place, "", record.values), result)
            if is_empty:
                raise DataError(f"{path} has no {self.noun}")
        return result
