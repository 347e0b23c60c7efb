"""Which columns of rows that ask are what: by the names of the task's fields, or as told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sublayer.errors import DataError
from sublayer.tasks.example import Example
from sublayer.tasks.nested import Nested
from sublayer.tasks.own_table.labels import is_blank
from sublayer.tasks.records import missing_column, named
from sublayer.tasks.registry import SUITES
from sublayer.tasks.task import Task
from sublayer.values import surrogate_problem

_LISTS = ("choices", "options")
"""Columns that hold all choices of a row, as a list."""
_MOST_CHOICES = 26
_NUMBERS = {"wsc": ("span2_index",)}
"""By the task, columns of whole numbers that its formats need beside the texts."""


@dataclass(frozen=True)
class ToldColumns:
    """Columns that are named by who asks; empty: they are found by what they are called."""

    text: str = ""
    text_pair: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowColumns:
    """The columns that are read."""

    fields: Mapping[str, str]
    """By the names of the task's fields."""
    choices: tuple[str, ...] = ()
    """One for each choice."""
    choice_list: str = ""
    """One that holds the list of them."""


def find_columns(
    task: Task,
    own: Mapping[str, str | Sequence[str]],
    told: ToldColumns,
    there: Sequence[str] | Mapping[str, Any],
    where: Path | str,
) -> RowColumns:
    """Find the columns of a task's texts and choices among those that rows have.

    ``own`` are those of the table that the model was trained on, if it was one. Raises DataError
    for a column that is missing, with those there are and the nearest.
    """
    names = {name: _aliases(task, name) for name in task.fields}
    for place, given in enumerate((told.text, told.text_pair)):
        if given and place < len(task.fields):
            names[task.fields[place]] = (given,)
        elif given:
            raise DataError(f"{task.title} has no second text: leave out --text-pair")
    fields = {name: _found(known, there, where) for name, known in names.items()}
    for name in _NUMBERS.get(task.name, ()):
        _found((name,), there, where)
    if task.kind != "choice":
        if told.choices:
            raise DataError(f"{task.title} has no choices: leave out --choices")
        return RowColumns(fields)
    columns = told.choices or tuple(own.get("choices", ()))
    if columns:
        return RowColumns(fields, tuple(_found((name,), there, where) for name in columns))
    for name in _LISTS:
        if name in there:
            return RowColumns(fields, choice_list=name)
    numbered = [f"choice{number}" for number in range(1, _MOST_CHOICES + 1)]
    columns = tuple(name for name in numbered if name in there)
    if len(columns) < 2:
        raise DataError(
            f"{where} has no columns choice1, choice2 and so on, and none of lists "
            f"({', '.join(_LISTS)}): it has {named(there)}: name them (--choices)"
        )
    return RowColumns(fields, columns)


def _aliases(task: Task, field: str) -> tuple[str, ...]:
    suite = SUITES.get(task.suite)
    columns = None if suite is None else suite.columns.get(task.name)
    return (field,) if columns is None else columns.texts[field]


def _found(
    known: tuple[str, ...], there: Sequence[str] | Mapping[str, Any], where: Path | str
) -> str:
    for name in known:
        if name in there:
            return name
    raise missing_column(where, known, there)


def example_of(
    task: Task, columns: RowColumns, values: Mapping[str, Any], number: int, place: str
) -> Example | None:
    """Return a row as an example without a label; None where a text of it is empty.

    Raises DataError for what is no text, or no number where one is needed.
    """
    fields = {}
    for name, column in columns.fields.items():
        value = values.get(column)
        if is_blank(value):
            return None
        fields[name] = _text(value, column, place)
    choices = _choices(columns, values, place)
    if task.kind == "choice" and (not choices or any(is_blank(each) for each in choices)):
        return None
    row = Nested(place, "", values)
    return Example(
        id=str(number),
        fields=fields,
        choices=tuple(_text(each, "choice", place) for each in choices),
        is_labelled=False,
        extra={name: row.whole(name) for name in _NUMBERS.get(task.name, ())},
    )


def _choices(columns: RowColumns, values: Mapping[str, Any], place: str) -> list[Any]:
    if not columns.choice_list:
        return [values.get(name) for name in columns.choices]
    listed = values.get(columns.choice_list)
    if is_blank(listed):
        return []
    if not isinstance(listed, list | tuple):
        raise DataError(f"{place}: {columns.choice_list} is {type(listed).__name__}, not a list")
    return list(listed)


def _text(value: Any, column: str, place: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{place}: {column} is {type(value).__name__}, not a text: write it as one")
    if problem := surrogate_problem(value):
        raise DataError(f"{place}: {column} {problem}")
    return value
