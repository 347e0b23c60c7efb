"""Answers to rows that were not prepared: of users, and of published test sets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from torch import Tensor

from sublayer.config.supervised import SupervisedObjective
from sublayer.counts import count
from sublayer.data.arrays import Bools
from sublayer.data.tasks.assembly import Assembler, RowRule
from sublayer.data.tasks.batches import TaskPart, TaskSplit
from sublayer.data.tasks.encoded import SpanExamples, find_marks
from sublayer.data.tasks.encoding import WindowRule, encode_examples
from sublayer.data.tasks.prepare import SAMPLED_ROWS, note_marks, task_split, texts_of
from sublayer.data.training_text import note_losses
from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.evaluation.split_work import ALONE, Processes
from sublayer.nearest import nearest_hint
from sublayer.objective.evaluation import Progress
from sublayer.objective.supervised.batches import row_rule
from sublayer.objective.supervised.loss import BIAS, WEIGHT, from_numbers, to_numbers
from sublayer.objective.supervised.scores import answer_split
from sublayer.objective.supervised.text import GREEDILY, WRITING_OPTIONS, Writing
from sublayer.system.stages import note
from sublayer.tasks.predicting import (
    UNANSWERED,
    AskedRow,
    NamedPrediction,
    RowColumns,
    ToldColumns,
    example_of,
    find_columns,
    name_prediction,
)
from sublayer.tasks.reading import label_places
from sublayer.tasks.registry import TASKS, wording_of
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.task import Example, Prediction, Task
from sublayer.text_model import TextModel
from sublayer.values import given_rows


def objective_of(spec: TaskSpec) -> SupervisedObjective:
    """Return an objective that writes examples as a model reads them."""
    return SupervisedObjective(
        format=spec.format,
        answer=spec.answer,
        target_length=spec.target_length or 64,
        doc_stride=spec.doc_stride,
        max_answer=spec.max_answer,
    )


def answer_known(text_model: TextModel, task: Task) -> None:
    """Have a model that answers a task of the same kind answer a known one; it changes in place.

    The rows of its head are put into the order of the task's labels, by their words; numbers are
    put on the task's scale. Raises ConfigError where its answers are of another kind, or the words
    are not those of the task.
    """
    spec, model = text_model.task, text_model.model
    if spec is None or spec.format == "text":
        raise ConfigError(f"the model has no head that answers a task, such as {task.title}")
    own = spec.tasks[0]
    if own.kind != task.kind or own.has_unanswerable != task.has_unanswerable:
        raise ConfigError(
            f"{task.title} asks for {_described(task)}, and the model answers {own.title}, "
            f"{_described(own)}: name another task"
        )
    if task.kind in ("classes", "number"):
        weights: dict[str, Any] = model.state_dict()
        if task.kind == "number":
            changed = from_numbers(to_numbers(weights, own), task)
        else:
            places = label_places(own.labels, task)
            changed = {name: _in_order(weights[name], places) for name in (WEIGHT, BIAS)}
        model.load_state_dict({**weights, **changed})
    text_model.task = replace(spec, tasks=(task,))


def _in_order(rows: Tensor, places: tuple[int, ...]) -> Tensor:
    if len(rows) < len(places):
        # One output answers for two labels: it is the second's logit, the first's is 0.
        return rows if places == (0, 1) else -rows
    return rows[list(places)]


def _described(task: Task) -> str:
    kinds = {
        "classes": "labels",
        "choice": "choices",
        "number": "a number",
        "span": "spans",
        "text": "texts",
    }
    return f"{kinds[task.kind]}{', or that there is none' if task.has_unanswerable else ''}"


class Answerer:
    """Answers examples of one task by a model.

    ``name`` is that of the task: one that the model was trained on, or one that is answered like
    it; None: the only one. ``writing`` is how answers are decoded that are written.

    Raises ConfigError where the model answers no task, several and none is named, or another, or
    ``writing`` has no effect; and CheckpointError where it has no tokenizer.
    """

    def __init__(
        self,
        text_model: TextModel,
        name: str | None = None,
        *,
        batch: int | None = None,
        writing: Writing | None = None,
    ) -> None:
        spec = text_model.task
        if spec is None:
            raise ConfigError(
                "the model answers no task: fine-tune it first (`sublayer finetune RUN TASK`)"
            )
        if text_model.tokenizer is None:
            raise CheckpointError("the model has no tokenizer.json, without which it reads no text")
        if batch is not None and batch < 1:
            raise ConfigError(f"a batch of {batch} rows computes nothing: give 1 or more")
        find_marks(text_model.tokenizer, spec.format)
        self.task = chosen_task(spec, name)
        self.spec = replace(spec, tasks=(self.task,))
        self._models: Sequence[TextModel] = [text_model]
        self._batch = batch
        self.processes: Processes = ALONE
        """Those that divide the examples, of which all return all answers."""
        self._writing = writing or GREEDILY
        if writing is not None and not self.is_written:
            raise ConfigError(
                f"{self.task.title} is answered with probabilities, and nothing is written: leave "
                f"out {WRITING_OPTIONS}"
            )
        self._n_blocks = 0
        self._has_marks = False

    @property
    def is_written(self) -> bool:
        """True where the model writes its answers as text."""
        return self.spec.format == "text" and not self._ranks

    @property
    def has_probabilities(self) -> bool:
        """True where answers have probabilities."""
        return self.spec.format != "text" or self._ranks

    @property
    def _ranks(self) -> bool:
        return self.spec.answer == "rank" and wording_of(self.task).has_ranks

    def answer(
        self,
        examples: Sequence[Example],
        progress: Progress = lambda n_done, n_all: None,
    ) -> list[Prediction]:
        """Answer examples, in their order; ``progress`` hears of batches."""
        if not examples:
            return []
        # Of processes that answer together the first says it.
        models = self._models if self.processes.own(1) else ()
        tokenizers = {}
        for each in models:
            assert each.tokenizer is not None, "a model without a tokenizer is refused"
            tokenizers[each.tokenizer.fingerprint] = each.tokenizer
        if not self._n_blocks:
            some = examples[:: max(1, len(examples) // SAMPLED_ROWS)]
            for tokenizer in tokenizers.values():
                note_losses("the rows", texts_of(some), tokenizer, trains=False)
        if not self._has_marks:
            texts = texts_of(examples)
            noted = [note_marks("the input", texts, x, trains=False) for x in tokenizers.values()]
            self._has_marks = any(noted)
        self._n_blocks += 1
        return self._answered(examples, progress)

    def _answered(self, examples: Sequence[Example], progress: Progress) -> list[Prediction]:
        [text_model] = self._models
        part = unprepared_part(text_model, self.task, examples, "test")
        split = unprepared_split(text_model, [part], self.spec)
        rule = replace(model_rule(text_model, split), n_rows=self._batch)
        model = text_model.model
        writing = replace(self._writing, block=self._n_blocks)
        answers, _ = answer_split(model, split, rule, self.spec, self.processes, progress, writing)
        return mark_cut(answers, cut_examples(split, rule))


def cut_examples(split: TaskSplit, rule: RowRule) -> Bools:
    """Mark the examples of a split that are cut to the model's context: ``[N]``."""
    encoded = split.encoded
    if isinstance(encoded, SpanExamples):
        return np.zeros(split.n_examples, dtype=np.bool_)
    return Assembler(encoded, rule).cut_examples()


def mark_cut(predictions: Sequence[Prediction], is_cut: Bools) -> list[Prediction]:
    """Return predictions that say which examples were cut."""
    pairs = zip(predictions, is_cut.tolist(), strict=True)
    return [replace(each, is_cut=True) if cut else each for each, cut in pairs]


def unprepared_part(
    text_model: TextModel, task: Task, examples: Sequence[Example], published: str
) -> TaskPart:
    """Encode examples as a model reads them that are not of its run's data."""
    spec, tokenizer = text_model.task, text_model.tokenizer
    assert spec is not None and tokenizer is not None, "the model was checked"
    windows = None
    if task.kind == "span" and spec.format == "pair":
        windows = WindowRule(spec.context, spec.doc_stride)
    encoded = encode_examples(task, examples, tokenizer, spec.format, trains=False, windows=windows)
    return TaskPart(task, published, encoded, lambda: examples)


def unprepared_split(text_model: TextModel, parts: Sequence[TaskPart], spec: TaskSpec) -> TaskSplit:
    """Put parts that a model's tokenizer has encoded together, to be answered as a spec says."""
    assert text_model.tokenizer is not None, "the model was checked"
    return task_split("test", parts, text_model.tokenizer, objective_of(spec))


def model_rule(text_model: TextModel, split: TaskSplit) -> RowRule:
    """Return the rule that lays out a split's texts for a model, by the spec of its tasks."""
    spec, config = text_model.task, text_model.model.config
    assert spec is not None, "the model was checked"
    return row_rule(
        objective_of(spec),
        split,
        context=spec.context,
        kind=config.kind,
        starts_with_pad=config.decoder_start == "pad",
    )


def chosen_task(spec: TaskSpec, name: str | None, called: str = "the model") -> Task:
    """Return a task that a model answers, by its name; without one the only one.

    Raises ConfigError where there is none of that name, or several and none is named; ``called`` is
    the name of the model in messages.
    """
    tasks = {task.name: task for task in spec.tasks}
    listed = ", ".join(tasks)
    if name is None:
        if len(tasks) > 1:
            raise ConfigError(f"{called} answers several tasks, {listed}: name one (--task)")
        return spec.tasks[0]
    if name in tasks:
        return tasks[name]
    known = TASKS.get(name)
    if known is not None and known.trained_as in tasks:
        return known
    raise ConfigError(
        f"{called} does not answer {name:.60}, but {listed}{nearest_hint(name, tuple(tasks))}"
    )


BLOCK_ROWS = 4096
"""Rows that are answered before the first of them is written."""
_CHOICES = " choices"
"""Key of a row that keeps them: no field is called so."""
GivenRow = str | Sequence[Any] | Mapping[str, Any] | None


def predict_rows(
    text_model: TextModel,
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
    return predict_rows_by(Answerer(text_model, task, batch=batch), rows)


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
    """Read a row that asks. Raises DataError, with its place, for any other value."""
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
