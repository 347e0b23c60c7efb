"""The rows of SuperGLUE that are an example each: of BoolQ, CB, COPA, RTE, AX-b and AX-g."""

from dataclasses import replace

from sublayer.tasks.example import Example
from sublayer.tasks.labels import read_class
from sublayer.tasks.nested import Nested, add_known
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.task import Task

_CHOICES = ("choice1", "choice2")
_SOURCES = ("passage", "premise")


def read_row(task: Task, row: Nested, result: ReadSplit) -> None:
    """Add the example of a row."""
    add_known(result, row_example(task, row, result), row)


def row_example(task: Task, row: Nested, result: ReadSplit) -> Example:
    """Return the example of a row, whose columns are called as the task's fields.

    Its source is the passage or premise that it is about, its group the number of a pair. A row
    without a number has that of its place in the file.
    """
    is_choice = task.kind == "choice"
    labelled = replace(task, labels=_CHOICES) if is_choice else task
    label = read_class(labelled, row.values.get("label"), row.place)
    fields = {name: row.text(name) for name in task.fields}
    return Example(
        id=row_id(row, result),
        fields=fields,
        label=label,
        choices=tuple(row.text(name) for name in _CHOICES) if is_choice else (),
        is_labelled=label is not None,
        group=str(row.get("pair_id")) if row.has("pair_id") else "",
        source=next((fields[name] for name in _SOURCES if name in fields), ""),
    )


def row_id(row: Nested, result: ReadSplit) -> str:
    """Return the number that a row has, or else that of its place among all."""
    if row.has("idx"):
        return str(row.whole("idx"))
    return str(len(result.examples) + result.skipped.total())
