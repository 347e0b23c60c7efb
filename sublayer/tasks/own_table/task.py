"""The task that a table of one's own is: its labels, its numbers, its splits."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from sublayer.errors import ConfigError, DataError
from sublayer.tasks.metrics.spans import check_text_metrics
from sublayer.tasks.own_table.examples import add_examples
from sublayer.tasks.own_table.labels import (
    is_unanswerable,
    number_of,
    sorted_words,
    texts_of,
    word_of,
)
from sublayer.tasks.own_table.rows import Rows, find_table, rows_of
from sublayer.tasks.own_table.table import Table
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.task import Kind, Task

NAME = "table"
"""The task's name, whatever the file's: the text format begins with it."""
LONE = "a label that no other row has: it is learned from one row, or not at all"
"""What is kept."""

METRICS: dict[Kind, tuple[str, ...]] = {
    "classes": ("accuracy",),
    "number": ("pearson", "spearman"),
    "choice": ("accuracy",),
    "span": ("exact_match", "token_f1"),
    "text": ("chrf", "rouge1", "rouge2", "rougeL", "exact_text"),
}
"""Of tasks that no publisher scores."""
_UNANSWERABLE_METRICS = ("exact_match_v2", "token_f1_v2")


def read_table(table: Table) -> tuple[Task, dict[str, ReadSplit]]:
    """Read a table with what is right in it, and return the task that it is, and its splits.

    Labels of classes are the distinct words of the training split, or of all splits without one, in
    order. What has no label is left out and counted, but for a test.

    Raises DataError, with file and line, for a column that is missing, a table without rows, a
    label that cannot be read or that the training split has not, and for labels that teach
    nothing: one alone, or as many as rows.
    """
    if not table.is_right:
        raise ConfigError(f"nothing says what is right in {table.path}: give the column of labels")
    if table.kind == "text":
        check_text_metrics()
    found = find_table(table.path)
    splits = {split: rows_of(table, split, paths) for split, paths in found.items()}
    learned = [splits["train"]] if "train" in splits else list(splits.values())
    task = _task(table, learned, tuple(splits))
    return task, {split: add_examples(task, rows) for split, rows in splits.items()}


def read_rows(table: Table, task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    """Read files of a task that is known; those of ``test`` need no labels.

    Raises as ``read_table`` does.
    """
    return add_examples(task, rows_of(table, split, paths))


def _task(table: Table, learned: Sequence[Rows], splits: tuple[str, ...]) -> Task:
    labels: tuple[str, ...] = ()
    numbers = (0.0, 1.0)
    has_unanswerable = False
    if table.kind == "classes":
        labels = _labels(table, learned)
    elif table.kind == "number":
        numbers = _range(table, learned)
    elif table.kind == "text":
        rows = [row for each in learned for row in each.rows]
        values = [(row.record.values.get(table.target), row.place) for row in rows]
        found = [texts_of(value, table.target, place) for value, place in values]
        _check_several(table, sorted({text for texts in found for text in texts}))
    elif table.kind == "span":
        answers = [row.record.values.get(table.answer) for rows in learned for row in rows.rows]
        has_unanswerable = any(is_unanswerable(each) for each in answers)
    return Task(
        NAME,
        Path(table.path).name,
        NAME,
        table.kind,
        table.texts,
        _UNANSWERABLE_METRICS if has_unanswerable else METRICS[table.kind],
        labels=labels,
        numbers=numbers,
        has_unanswerable=has_unanswerable,
        splits=splits,
    )


def _labels(table: Table, learned: Sequence[Rows]) -> tuple[str, ...]:
    places = defaultdict(list)
    for rows in learned:
        for row in rows.rows:
            word = word_of(row.record.values.get(table.label), row.place)
            if word:
                places[word].append((rows.result, row.place))
    labels = sorted_words(places, _where(table))
    n_rows = sum(map(len, places.values()))
    if len(labels) == n_rows and n_rows > 2:
        raise DataError(f"{_where(table)} has another label in each of {n_rows} rows: no classes")
    _check_several(table, labels)
    for of_label in places.values():
        if len(of_label) == 1:
            result, place = of_label[0]
            result.keep(LONE, place)
    return labels


def _range(table: Table, learned: Sequence[Rows]) -> tuple[float, float]:
    written = [(row.record.values.get(table.label), row) for rows in learned for row in rows.rows]
    read = [number_of(value, row.place) for value, row in written]
    numbers = sorted({number for number in read if number is not None})
    _check_several(table, numbers)
    return numbers[0], numbers[-1]


def _check_several(table: Table, values: Sequence[object]) -> None:
    if not values:
        raise DataError(f"{_where(table)} is empty in all rows: nothing says what is right")
    if len(values) == 1:
        raise DataError(f"{_where(table)} is {values[0]!r} in all rows: there is nothing to learn")


def _where(table: Table) -> str:
    return f"{table.path}: the column {table.is_right!r}"
