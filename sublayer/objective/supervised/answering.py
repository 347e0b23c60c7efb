"""Answers to unprepared rows, from users and published test sets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from torch import Tensor

from sublayer.config.objective import SupervisedObjective
from sublayer.counts import count
from sublayer.data.arrays import Bools
from sublayer.data.prepare import note_losses
from sublayer.data.tasks.batches import Assembler, TaskPart, TaskSplit
from sublayer.data.tasks.encoded import SpanExamples, WindowRule, encode_examples, find_marks
from sublayer.data.tasks.prepare import SAMPLED_ROWS, note_marks, task_split, texts_of
from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.evaluation.split_work import ALONE, Processes, Progress, silent
from sublayer.nearest import nearest_hint
from sublayer.objective.supervised.batches import AskedSplit, row_rule
from sublayer.objective.supervised.ensemble import (
    check_heads,
    check_members,
    combine,
    mean_threshold,
    member_answers,
)
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
    """Return an objective with a model's format of examples."""
    return SupervisedObjective(
        format=spec.format,
        answer=spec.answer,
        target_length=spec.target_length or 64,
        doc_stride=spec.doc_stride,
        max_answer=spec.max_answer,
    )


def answer_known(text_model: TextModel, task: Task) -> None:
    """Adapt a model, in place, to a known task of the same kind.

    Rows of its head are reordered by the words of the task's labels; numbers are put on the task's
    scale. Raises ConfigError for a model without a head of a task, for answers of another kind, and
    for other words.
    """
    spec, model = text_model.task, text_model.model
    if spec is None or spec.format == "text":
        raise ConfigError(f"the model has no head that answers a task, such as {task.title}")
    current = spec.tasks[0]
    if current.kind != task.kind or current.has_unanswerable != task.has_unanswerable:
        asks, gives = (
            f"{each_task.kind}, or none" if each_task.has_unanswerable else each_task.kind
            for each_task in (task, current)
        )
        raise ConfigError(
            f"the model answers {current.title}, and {task.title} asks for answers of another kind "
            f"({asks}, not {gives}): name another task"
        )
    if task.kind in ("classes", "number"):
        weights: dict[str, Any] = model.state_dict()
        if task.kind == "number":
            changed = from_numbers(to_numbers(weights, current), task)
        else:
            places = label_places(current.labels, task)
            changed = {name: _in_order(weights[name], places) for name in (WEIGHT, BIAS)}
        model.load_state_dict({**weights, **changed})
    text_model.task = replace(spec, tasks=(task,))


def _in_order(rows: Tensor, places: tuple[int, ...]) -> Tensor:
    if len(rows) < len(places):
        # One output answers for two labels: it is the second's logit, the first's is 0.
        return rows if places == (0, 1) else -rows
    return rows[list(places)]


class Answerer:
    """Answers examples of a task with a model, or an average of several.

    ``name``: the task, a trained one or one with the same answers; None: the only one. ``names``:
    the models in messages. ``batch``: rows per batch; None: chosen for the device. ``writing``:
    decoding of written answers.

    Raises ConfigError where a model answers no task, another one, or several without a ``name``,
    where models answer differently, ``batch`` is below 1, or ``writing`` has no effect;
    CheckpointError without a tokenizer.
    """

    def __init__(
        self,
        models: Sequence[TextModel],
        name: str | None = None,
        *,
        names: Sequence[str] = (),
        batch: int | None = None,
        writing: Writing | None = None,
    ) -> None:
        self.spec, *_ = _check_models(models, names, name, together=len(models) > 1)
        if batch is not None and batch < 1:
            raise ConfigError(f"a batch of {batch} rows computes nothing: give 1 or more")
        [self.task] = self.spec.tasks
        self.processes: Processes = ALONE
        """Those that divide the examples, of which all return all answers."""
        self._models, self._names, self._batch = models, names, batch
        self._writing = writing or GREEDILY
        if writing is not None and not self.is_written:
            raise ConfigError(
                f"{self.task.title} is answered with probabilities, and nothing is written: leave "
                f"out {WRITING_OPTIONS}"
            )
        self._n_blocks = 0
        self._has_marks = False
        self.n_rows = self.n_cut = 0
        """Rows that were answered, and those of them that were cut to the context."""
        self.first_cut = ""
        """Place of the first of these."""

    @property
    def is_written(self) -> bool:
        """True where the model writes answers as text; otherwise answers have probabilities."""
        ranks = self.spec.answer == "rank" and wording_of(self.task).has_ranks
        return self.spec.format == "text" and not ranks

    def answer(self, examples: Sequence[Example], progress: Progress = silent) -> list[Prediction]:
        """Answer examples, in order; ``progress`` counts batches."""
        if not examples:
            return []
        if self.processes.own(1):  # only rank 0 reports it
            self._note(examples)
        self._n_blocks += 1
        part = unprepared_part(self._models[0], self.task, examples, "test")
        if len(self._models) > 1:
            return answer_together(
                self._models,
                [part],
                names=self._names,
                batch=self._batch,
                progress=progress,
                processes=self.processes,
            )
        [text_model] = self._models
        asked = unprepared(text_model, [part], self.spec, self._batch, self.processes, progress)
        answers, _ = answer_split(asked, replace(self._writing, block=self._n_blocks))
        return _mark_cut(answers, _cut_examples(asked))

    def note_cut(self) -> None:
        """Report the number of truncated rows, if any, in a line."""
        if self.n_cut:
            note(
                f"{self.n_cut:,} of {count(self.n_rows, 'row')} ({self.n_cut / self.n_rows:.0%}) "
                f"are longer than the {self.spec.context:,} tokens that the model reads, and were "
                f"cut to them; the first is {self.first_cut}"
            )

    def _note(self, examples: Sequence[Example]) -> None:
        """Note once what each tokenizer loses of the rows, and special tokens in their texts."""
        present = [model.tokenizer for model in self._models if model.tokenizer is not None]
        tokenizers = {tokenizer.fingerprint: tokenizer for tokenizer in present}.values()
        if not self._n_blocks:
            some = examples[:: max(1, len(examples) // SAMPLED_ROWS)]
            for tokenizer in tokenizers:
                note_losses("the rows", texts_of(some), tokenizer, trains=False)
        if not self._has_marks:
            texts = texts_of(examples)
            noted = [note_marks("the input", texts, reader, trains=False) for reader in tokenizers]
            self._has_marks = any(noted)


def answer_together(
    models: Sequence[TextModel],
    parts: Sequence[TaskPart],
    *,
    names: Sequence[str] = (),
    batch: int | None = None,
    progress: Progress = silent,
    processes: Processes = ALONE,
) -> list[Prediction]:
    """Answer all examples of a split's parts with an average of fine-tuned models, in order.

    Models read the examples in their own formats and tokenizers, however the parts are encoded.
    ``names``: the models in messages; ``progress`` counts batches of each. Raises ConfigError where
    models answer differently.
    """
    tasks = tuple(dict.fromkeys(part.task for part in parts))
    for task in tasks:
        _check_models(models, names, task.name, together=True)
    members, is_cut = [], []
    for model in models:
        encoded = [unprepared_part(model, p.task, p.examples, p.published) for p in parts]
        assert model.task is not None, "models that answer nothing are refused"
        spec = replace(model.task, tasks=tasks)
        asked = unprepared(model, encoded, spec, batch, processes, progress)
        members.append(member_answers(asked))
        is_cut.append(_cut_examples(asked))
    predictions = combine(parts, members, mean_threshold(members))
    return _mark_cut(predictions, np.logical_or.reduce(is_cut))


def _check_models(
    models: Sequence[TextModel], names: Sequence[str], task: str | None, *, together: bool
) -> list[TaskSpec]:
    """Return the models' specs of a task; None: the only one. Raises as ``Answerer`` does."""
    if not names:
        names = [f"model {number}" for number, _ in enumerate(models, 1)]
        names = ["the model"] if len(models) == 1 else names
    specs = []
    for name, model in zip(names, models, strict=True):
        if model.task is None:
            raise ConfigError(
                f"{name} answers no task: fine-tune it first (`sublayer finetune RUN TASK`)"
            )
        if model.tokenizer is None:
            raise CheckpointError(f"{name} has no tokenizer.json, without which it reads no text")
        find_marks(model.tokenizer, model.task.format)
        specs.append(replace(model.task, tasks=(chosen_task(model.task, task, name),)))
    if together:
        check_members(names, specs)
        check_heads(names, models)
    return specs


def _cut_examples(asked: AskedSplit) -> Bools:
    """Mark the truncated examples of a split: ``[N]``."""
    encoded = asked.split.encoded
    if isinstance(encoded, SpanExamples):
        return np.zeros(asked.split.n_examples, dtype=np.bool_)
    return Assembler(encoded, asked.rule).cut_examples()


def _mark_cut(predictions: Sequence[Prediction], is_cut: Bools) -> list[Prediction]:
    pairs = zip(predictions, is_cut.tolist(), strict=True)
    return [replace(prediction, is_cut=True) if cut else prediction for prediction, cut in pairs]


def unprepared_part(
    text_model: TextModel, task: Task, examples: Sequence[Example], published: str
) -> TaskPart:
    """Encode examples from outside a run's data for a model."""
    spec, tokenizer = text_model.task, text_model.tokenizer
    assert spec is not None and tokenizer is not None, "the model was checked"
    windows = None
    if task.kind == "span" and spec.format == "pair":
        windows = WindowRule(spec.context, spec.doc_stride)
    encoded = encode_examples(task, examples, tokenizer, spec.format, trains=False, windows=windows)
    return TaskPart(task, published, encoded, lambda: examples)


def unprepared(
    text_model: TextModel,
    parts: Sequence[TaskPart],
    spec: TaskSpec,
    batch: int | None = None,
    processes: Processes = ALONE,
    progress: Progress = silent,
) -> AskedSplit:
    """Join parts encoded by a model's tokenizer into a split for a spec."""
    assert text_model.tokenizer is not None, "the model was checked"
    split = task_split("test", parts, text_model.tokenizer, objective_of(spec))
    return asked_of(text_model, split, spec, batch, processes, progress)


def asked_of(
    text_model: TextModel,
    split: TaskSplit,
    spec: TaskSpec,
    batch: int | None = None,
    processes: Processes = ALONE,
    progress: Progress = silent,
) -> AskedSplit:
    """Lay out a split for a model, by its spec.

    ``batch``: rows per batch; None: chosen for the device.
    """
    model, model_spec = text_model.model, text_model.task
    assert model_spec is not None, "the model was checked"
    rule = row_rule(objective_of(model_spec), split, model_spec.context, model.config)
    return AskedSplit(model, split, replace(rule, n_rows=batch), spec, processes, progress)


def chosen_task(spec: TaskSpec, name: str | None, called: str) -> Task:
    """Return a model's task by name, by default the only one.

    Raises ConfigError for an unknown name, or several tasks without a name; ``called`` names the
    model in messages.
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

    ``rows`` may also be a DataFrame or a dict of columns. A tuple has the texts in field order,
    then the choices. A row with an empty or missing text is not answered. ``task`` names one of
    several; ``batch``: rows per batch.

    Raises ConfigError and CheckpointError as ``Answerer`` does, DataError for a row that is none of
    these.
    """
    return predict_rows_by(Answerer([text_model], task, batch=batch), rows)


def predict_rows_by(answerer: Answerer, rows: Any) -> list[NamedPrediction]:
    """Answer rows with an ``Answerer``, as ``predict_rows`` does."""
    asked = (
        given_row(answerer, row, f"row {number}") for number, row in enumerate(given_rows(rows))
    )
    answers = [named for _, named in answer_rows(answerer, asked)]
    answerer.note_cut()
    return answers


def answer_rows(
    answerer: Answerer,
    rows: Iterable[AskedRow],
    choice_names: Sequence[str] = (),
    progress: Progress = silent,
) -> Iterator[tuple[AskedRow, NamedPrediction]]:
    """Answer rows in blocks, in order; ``progress`` counts the batches of each block."""
    waiting = iter(rows)
    while block := list(islice(waiting, BLOCK_ROWS)):
        examples = [row.example for row in block if row.example is not None]
        predictions = iter(answerer.answer(examples, progress))
        for row in block:
            if row.example is None:
                yield row, UNANSWERED
                continue
            prediction, written = next(predictions), answerer.is_written
            answerer.n_rows += 1
            if prediction.is_cut:
                answerer.n_cut += 1
                answerer.first_cut = answerer.first_cut or row.place
            named = name_prediction(
                answerer.task, row.example, prediction, choice_names, is_written=written
            )
            yield row, replace(named, is_cut=prediction.is_cut)


def given_row(answerer: Answerer, row: GivenRow, where: str) -> AskedRow:
    """Parse a row. Raises DataError, with its place, for invalid values."""
    task = answerer.task
    if isinstance(row, Mapping):
        columns = find_columns(task, answerer.spec.columns, ToldColumns(), row, where)
        return AskedRow(row, example_of(task, columns, row, 0, where), where)
    if row is None:
        return AskedRow({}, None, where)
    if not isinstance(row, str | list | tuple):
        raise DataError(
            f"{where} is {type(row).__name__}: give a text, a tuple of texts, a mapping, or None"
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
        raise DataError(f"{where} has {len(texts)} of what {task.title} reads: {wanted}{more}")
    columns = RowColumns({name: name for name in task.fields}, choice_list=_CHOICES)
    values[_CHOICES] = choices
    return AskedRow(values, example_of(task, columns, values, 0, where), where)
