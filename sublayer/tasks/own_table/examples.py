"""Rows of a table of one's own as examples: what is right, its source, its id."""

from collections.abc import Callable

from sublayer.errors import DataError
from sublayer.nearest import nearest_hint
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.gold_spans import NOT_FOUND
from sublayer.tasks.own_table.labels import (
    choice_of,
    is_blank,
    number_of,
    same_number,
    spans_of,
    texts_of,
    word_of,
)
from sublayer.tasks.own_table.rows import Row, Rows
from sublayer.tasks.own_table.table import Table
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import named
from sublayer.tasks.task import Kind, Task


def add_examples(task: Task, rows: Rows) -> ReadSplit:
    """Read what is right of each row, and return the examples.

    What has no label is left out and counted, but for a test.
    """
    table, result = rows.table, rows.result
    for row in rows.rows:
        example = _READERS[task.kind](task, table, row, result)
        if example is None:
            continue
        if example.is_labelled or result.name == "test":
            result.add(example, row)
        else:
            result.skip(f"nothing in the column {table.is_right!r}", row.place)
    return result


def _class(task: Task, table: Table, row: Row, result: ReadSplit) -> Example:
    word = word_of(row.record.values.get(table.label), row.place)
    if word and word not in task.labels:
        word = same_number(word, task.labels) or word
    if word and word not in task.labels:
        raise DataError(
            f"{row.place}: {word!r} is not among the labels that are learned: {named(task.labels)}"
            f": mend it, or delete the row{nearest_hint(word, task.labels)}"
        )
    return _labelled(table, row, task.labels.index(word) if word else None)


def _number(task: Task, table: Table, row: Row, result: ReadSplit) -> Example:
    return _labelled(table, row, number_of(row.record.values.get(table.label), row.place))


def _choice(task: Task, table: Table, row: Row, result: ReadSplit) -> Example:
    written = row.record.values.get(table.label)
    return _labelled(table, row, choice_of(written, table.choices, row.choices, row.place))


def _span(task: Task, table: Table, row: Row, result: ReadSplit) -> Example | None:
    values = row.record.values
    start = values.get(table.answer_start)
    placed = spans_of(values.get(table.answer), start, row.fields[table.text], row.place)
    if placed is None:
        return _labelled(table, row, None)
    found = [each for each in placed if each.answer.start is not None]
    if len(found) < len(placed):
        if result.name == "train" and not found:
            result.skip(NOT_FOUND, row.place)
            return None
        result.keep(NOT_FOUND, row.place)
    for repair in dict.fromkeys(each.repair for each in found if each.repair):
        result.repair(repair, row.place)
    return Example(
        id=_id(table, row),
        fields=row.fields,
        answers=tuple(each.answer for each in (found if result.name == "train" else placed)),
        # Questions about one passage stand on one side.
        source=_source(table, row) or row.fields[table.text],
    )


def _text(task: Task, table: Table, row: Row, result: ReadSplit) -> Example:
    texts = texts_of(row.record.values.get(table.target), table.target, row.place)
    return Example(
        id=_id(table, row),
        fields=row.fields,
        answers=tuple(map(Answer, texts)),
        is_labelled=bool(texts),
        source=_source(table, row),
    )


_READERS: dict[Kind, Callable[[Task, Table, Row, ReadSplit], Example | None]] = {
    "classes": _class,
    "number": _number,
    "choice": _choice,
    "span": _span,
    "text": _text,
}


def _labelled(table: Table, row: Row, label: int | float | None) -> Example:
    return Example(
        id=_id(table, row),
        fields=row.fields,
        label=label,
        choices=row.choices,
        is_labelled=label is not None,
        source=_source(table, row),
    )


def _id(table: Table, row: Row) -> str:
    value = row.record.values.get(table.id)
    return str(row.number if is_blank(value) else value)


def _source(table: Table, row: Row) -> str:
    value = row.record.values.get(table.group)
    return "" if is_blank(value) else str(value)
