"""Objects within each other, as JSON and Parquet have them, each with its place in the file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sublayer.errors import DataError
from sublayer.tasks.columns import UNLABELLED
from sublayer.tasks.example import Example
from sublayer.tasks.finding import check_shards
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import Record, named, read_records

_T = TypeVar("_T")
_LABELS = {"label", "answer", "answers", "isAnswer", "qas"}
"""Fields in any of which files say what is right."""


@dataclass(frozen=True, slots=True)
class Nested:
    """An object, and where it stands.

    What is asked for and not there, null or of another type raises DataError, with the place.
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


def read_nested(
    split: str,
    paths: tuple[Path, ...],
    read_row: Callable[[Nested, ReadSplit], None],
    records: Callable[[Path], Iterator[Record]] = read_records,
) -> ReadSplit:
    """Read the rows of a split's files, each of which adds its examples.

    Raises DataError, with file and line, for files without rows, and for what they are not.
    """
    check_shards(paths)
    result = ReadSplit(split, paths)
    for path in paths:
        is_empty = True
        for record in records(path):
            is_empty = False
            if record.problem:
                result.skip(record.problem, record.place)
            else:
                read_row(Nested(record.place, "", record.values), result)
        if is_empty:
            raise DataError(f"{path} has no rows")
    return result


def next_passage(result: ReadSplit) -> int:
    """Return the number of a passage whose file gives it none: behind that of the last example."""
    return int(result.examples[-1].extra["passage"]) + 1 if result.examples else 0


def add_known(result: ReadSplit, example: Example, row: Nested) -> None:
    """Keep an example, or leave it out if nobody knows what is right, though it is no test's."""
    if example.is_labelled or result.name.startswith("test"):
        result.add(example, row)
    elif _LABELS.isdisjoint(row.values):
        result.skip(f"no field label: it has {named(row.values)}", row.place)
    else:
        result.skip(UNLABELLED, row.place)
