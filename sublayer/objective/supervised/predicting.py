"""Rows answered in words: texts, tuples and mappings, or those of a file."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from sublayer.counts import count
from sublayer.errors import DataError
from sublayer.model.transformer import Transformer
from sublayer.objective.evaluation import Progress
from sublayer.objective.supervised.answering import Answerer
from sublayer.system.stages import note
from sublayer.tasks.predicting.columns import RowColumns, ToldColumns, example_of, find_columns
from sublayer.tasks.predicting.files import AskedRow
from sublayer.tasks.predicting.named import UNANSWERED, NamedPrediction, name_prediction
from sublayer.values import given_rows

BLOCK_ROWS = 4096
"""Rows that are answered before the first of them is written."""
_CHOICES = " choices"
"""Where a row keeps them: no field is called so."""
GivenRow = str | Sequence[Any] | Mapping[str, Any] | None


def predict_rows(
    model: Transformer,
    rows: Any,
    *,
    task: str | None = None,
    batch: int | None = None,
) -> list[NamedPrediction]:
    """Answer rows, each a text, a tuple of texts or a mapping by the names of the task's fields.

    ``rows`` may be a DataFrame or a dict of columns, too. A tuple has the texts in the order of the
    fields, and the choices behind them. A row with an empty or missing text is not answered.
    ``task`` names one of several; ``batch`` rows are computed at a time.

    Raises ConfigError where the model answers no task, DataError for a row that is none of these.
    """
    return predict_rows_by(Answerer(model, task, batch=batch), rows)


def predict_rows_by(answerer: Answerer, rows: Any) -> list[NamedPrediction]:
    """Answer rows by what answers them, as ``predict_rows`` does."""
    asked = (
        given_row(answerer, row, f"row {number}") for number, row in enumerate(given_rows(rows))
    )
    cut = CutRows(answerer)
    answers = [named for row, named in answer_rows(answerer, asked) if cut.hear(row, named)]
    cut.say()
    return answers


class CutRows:
    """Count of rows that were cut to the model's context, with the place of the first."""

    def __init__(self, answerer: Answerer) -> None:
        self._context = answerer.spec.context
        self._n_rows = self._n_cut = 0
        self._first = ""

    def hear(self, row: AskedRow, named: NamedPrediction) -> bool:
        """Count a row; return true."""
        self._n_rows += 1
        if named.is_cut:
            self._first = self._first or row.place
            self._n_cut += 1
        return True

    def say(self) -> None:
        """Say in a line how many rows were cut, if any."""
        if self._n_cut:
            note(
                f"{self._n_cut:,} of {count(self._n_rows, 'row')} ({self._n_cut / self._n_rows:.0%}"
                f") are longer than the {self._context:,} tokens that the model reads, and were "
                f"cut to them; the first is {self._first}"
            )


def answer_rows(
    answerer: Answerer,
    rows: Iterable[AskedRow],
    choice_names: Sequence[str] = (),
    progress: Progress = lambda n_done, n_all: None,
) -> Iterator[tuple[AskedRow, NamedPrediction]]:
    """Answer rows in blocks, in order; ``progress`` hears of the batches of each block."""
    waiting = iter(rows)
    while block := list(islice(waiting, BLOCK_ROWS)):
        examples = [row.example for row in block if row.example is not None]
        predictions = iter(answerer.answer(examples, progress))
        for row in block:
            if row.example is None:
                yield row, UNANSWERED
                continue
            prediction = next(predictions)
            named = name_prediction(
                answerer.task,
                row.example,
                prediction,
                choice_names,
                is_written=answerer.is_written,
            )
            yield row, replace(named, is_cut=prediction.is_cut)


def given_row(answerer: Answerer, row: GivenRow, place: str) -> AskedRow:
    """Return a row as one that asks. Raises DataError, with its place, for what is none."""
    task = answerer.task
    if isinstance(row, Mapping):
        columns = find_columns(task, answerer.spec.columns, ToldColumns(), row, place)
        return AskedRow(row, example_of(task, columns, row, 0, place), place)
    if row is None:
        return AskedRow({}, None, place)
    if not isinstance(row, str | list | tuple):
        raise DataError(
            f"{place} is {type(row).__name__}: give a text, a tuple of texts, a mapping, or None"
        )
    texts = [row] if isinstance(row, str) else list(row)
    n_fields = len(task.fields)
    values = dict(zip(task.fields, texts, strict=False))
    choices = texts[n_fields:]
    if len(choices) == 1 and isinstance(choices[0], list | tuple):
        choices = list(choices[0])
    is_whole = len(choices) > 1 if task.kind == "choice" else not choices
    if len(texts) < n_fields or not is_whole:
        wanted = ", ".join(task.fields)
        more = " and two choices or more" if task.kind == "choice" else ""
        raise DataError(f"{place} has {len(texts)} of what {task.title} reads: {wanted}{more}")
    columns = RowColumns({name: name for name in task.fields}, choice_list=_CHOICES)
    values[_CHOICES] = choices
    return AskedRow(values, example_of(task, columns, values, 0, place), place)
