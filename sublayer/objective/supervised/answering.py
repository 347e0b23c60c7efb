"""Answers to users' rows and published test sets, by one model or the average of several.

Source of averaged spans: ALBERT's ``squad_utils.py``, which averages the scores of equal spans and
of no answer over models, and then decodes.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.config.objective import SupervisedObjective
from sublayer.data.prepare import note_losses
from sublayer.data.tasks.batches import Assembler, TaskPart, TaskSplit
from sublayer.data.tasks.encoded import SpanExamples, WindowRule, encode_examples, find_marks
from sublayer.data.tasks.prepare import SAMPLED_ROWS, note_marks, task_split, texts_of
from sublayer.data.tasks.spans import N_BEST, Span, probabilities_of
from sublayer.errors import CheckpointError, ConfigError, DataError, nearest_hint
from sublayer.evaluation.items import ALONE, Processes, Progress, silent
from sublayer.files.arrays import Bools
from sublayer.files.storage import resolved
from sublayer.loading import find_model, load_task
from sublayer.numbers import count
from sublayer.objective.supervised.heads import (
    BIAS,
    WEIGHT,
    AskedSplit,
    Listed,
    from_numbers,
    row_rule,
    to_numbers,
)
from sublayer.objective.supervised.scores import answer_split
from sublayer.objective.supervised.text import GREEDILY, WRITING_OPTIONS, Writing, write_part
from sublayer.system.terminal import note
from sublayer.tasks.predicting import (
    UNANSWERED,
    AskedRow,
    NamedPrediction,
    RowColumns,
    ToldColumns,
    find_columns,
    name_prediction,
)
from sublayer.tasks.registry import TASKS, TaskSpec, wording_of
from sublayer.tasks.scoring import with_threshold
from sublayer.tasks.task import Example, Prediction, Task
from sublayer.text_model import TextModel
from sublayer.values import given_rows

N_LISTED = 100
"""Spans that each member lists for a question."""
_SAME = ("kind", "labels", "fields", "numbers", "is_bounded", "has_unanswerable")
"""Properties of a task that all members share."""


def find_members(runs: Sequence[Path]) -> list[TaskSpec]:
    """Read the tasks of runs, before loading models.

    Raises CheckpointError for a missing run, ConfigError for one without a task or named twice.
    """
    named: dict[Path, Path] = {}
    specs = []
    for run in runs:
        folder = find_model(run)
        spec = load_task(folder)
        if spec is None:
            raise ConfigError(f"{run} answers no task: name a fine-tuned run")
        other = named.setdefault(resolved(folder), run)
        if other is not run:
            raise ConfigError(f"{run} and {other} are the same model: name each run once")
        specs.append(spec)
    return specs


def check_members(names: Sequence[str], specs: Sequence[TaskSpec]) -> None:
    """Raise ConfigError unless models answer the same tasks with averageable answers.

    ``names``: the models in messages.
    """
    first_tasks = {task.name: task for task in specs[0].tasks}
    for name, spec in zip(names, specs, strict=True):
        if {task.name for task in spec.tasks} != first_tasks.keys():
            titles = [", ".join(task.title for task in member.tasks) for member in (spec, specs[0])]
            raise ConfigError(
                f"{name} answers {titles[0]}, but {names[0]} {titles[1]}: an ensemble needs "
                "models of the same tasks"
            )
        for task in spec.tasks:
            for field in _SAME:
                got, first = (getattr(side, field) for side in (task, first_tasks[task.name]))
                if got != first:
                    raise ConfigError(
                        f"{name} answers {task.title} differently from {names[0]}: {field} is "
                        f"{got}, not {first}; an ensemble needs models with the same answers"
                    )
            is_ranked = spec.answer == "rank" and wording_of(task).has_ranks
            if spec.format == "text" and not is_ranked:
                raise ConfigError(
                    f"{name} writes its answers to {task.title} as text, which cannot be averaged: "
                    "let it rank labels, if the task has any (evaluate --answer rank, or "
                    "objective.answer = rank in training), or name models that read pairs or "
                    "traversals"
                )


def check_heads(names: Sequence[str], models: Sequence[TextModel]) -> None:
    """Raise ConfigError where span heads differ in how they score no answer.

    A joint head has a separate logit for it; independent ends use the margin of [CLS] over the best
    span. ``names``: the models in messages.
    """
    spec = models[0].task
    if spec is None or not spec.tasks[0].has_unanswerable:
        return
    kinds = ["independent" if model.model.joint_span_head is None else "joint" for model in models]
    for name, kind in zip(names, kinds, strict=True):
        if kind != kinds[0]:
            raise ConfigError(
                f"{name} has a head of {kind} spans, but {names[0]} one of {kinds[0]} spans: their "
                "no-answer scores are on different scales and cannot be averaged"
            )


@dataclass(frozen=True)
class MemberAnswers:
    """A member's answers to all examples of a split, in order."""

    predictions: Sequence[Prediction] = ()
    """Predicted labels, choices and numbers."""
    listed: Sequence[Listed] = ()
    """Best spans of questions about passages."""
    is_joint: bool = False
    """True where a separate logit scores no answer."""
    threshold: float | None = None
    """No-answer score above which the member gives no answer."""


def member_answers(request: AskedSplit) -> MemberAnswers:
    """Answer a split that is encoded for a member."""
    spec = request.spec
    if request.split.parts[0].task.kind == "span":
        is_joint = request.model.joint_span_head is not None
        listed, _ = request.list_spans(N_LISTED)
        return MemberAnswers(listed=listed, is_joint=is_joint, threshold=spec.threshold)
    if spec.format != "text":
        return MemberAnswers(request.answer_examples()[0])
    return MemberAnswers(
        [reply for part in request.split.parts for reply in write_part(request, part)]
    )


def mean(values: Sequence[float]) -> float:
    """Average numbers; exact for equal ones."""
    first = values[0]
    return first + math.fsum(value - first for value in values) / len(values)


def mean_threshold(members: Sequence[MemberAnswers]) -> float | None:
    """Return the mean of members' thresholds, consistent with averaged scores.

    None where a member has none, and so always answers.
    """
    thresholds = [member.threshold for member in members if member.threshold is not None]
    return mean(thresholds) if len(thresholds) == len(members) else None


def combine(
    parts: Sequence[TaskPart], members: Sequence[MemberAnswers], threshold: float | None
) -> list[Prediction]:
    """Average the members' answers to the examples of parts, in order.

    ``threshold``: the no-answer score above which none is given; None: always answer.
    """
    if parts[0].task.kind == "span":
        is_joint = all(member.is_joint for member in members)
        unanswerable = parts[0].task.has_unanswerable
        decoded = [
            average_listed(listed).prediction(is_joint=is_joint, has_unanswerable=unanswerable)
            for listed in zip(*(member.listed for member in members), strict=True)
        ]
        return decoded if threshold is None else with_threshold(decoded, threshold)
    examples = [(part.task, example) for part in parts for example in part.examples]
    answers = zip(*(member.predictions for member in members), strict=True)
    return [average(*pair, outputs) for pair, outputs in zip(examples, answers, strict=True)]


def average(task: Task, example: Example, answers: Sequence[Prediction]) -> Prediction:
    """Average the members' numbers, or probabilities, for an example.

    The answer is the label or choice with the highest average, the first of equals. Members that
    rank texts also give it as text.
    """
    if task.kind == "number":
        numbers = [answer.label for answer in answers if answer.label is not None]
        assert len(numbers) == len(answers), "every member gives a number"
        return Prediction(label=mean(numbers))
    n_outputs = len(example.choices) or len(task.labels)
    rows = np.zeros((len(answers), n_outputs))
    for row, answer in zip(rows, answers, strict=True):
        # The maximum number of choices differs between batches.
        shares = answer.probabilities[:n_outputs]
        row[: len(shares)] = shares
    means = rows[0] + (rows - rows[0]).mean(0)
    best = int(means.argmax())
    text = next((answer.text for answer in answers if answer.label == best and answer.text), "")
    return Prediction(label=best, probabilities=tuple(means.tolist()), text=text)


def average_listed(listed: Sequence[Listed]) -> Listed:
    """Average the scores of equal spans, by characters of the passage, and of no answer.

    A member that does not list a span contributes its lowest listed score. The source averages only
    over members that list it, so that one confident member outweighs agreement of all others. A
    constant added to a member's scores does not change the order: sums of logits serve as
    log-probabilities. Members that list nothing are skipped.
    """
    members: list[dict[tuple[int, int, int], Span]] = []
    for spans in (ranking.spans for ranking in listed if ranking.spans):
        # Spans exclude whitespace tokens at their ends, so that several may be the same text: the
        # key's third element counts earlier equal ones.
        seen: Counter[tuple[int, int]] = Counter()
        keyed = {}
        for span in spans:
            characters = span.start, len(span.text)
            keyed[*characters, seen[characters]] = span
            seen[characters] += 1
        members.append(keyed)
    lowest = [min(span.score for span in member.values()) for member in members]
    averaged = []
    for key in dict.fromkeys(key for member in members for key in member):
        equal = [member.get(key) for member in members]
        scores = [
            floor if span is None else span.score for span, floor in zip(equal, lowest, strict=True)
        ]
        text = next(span.text for span in equal if span is not None)
        averaged.append((mean(scores), text, key[0]))
    # The first member breaks ties.
    best = sorted(averaged, key=lambda scored: -scored[0])[:N_BEST]
    probabilities = probabilities_of(np.array([score for score, _, _ in best]))
    spans = [
        Span(text, start, score, p)
        for (score, text, start), p in zip(best, probabilities, strict=True)
    ]
    return Listed(spans, mean([ranking.no_answer for ranking in listed]))


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

    Rows of its head are reordered by the words of the task's labels, whatever their capitals, and
    whether they are joined by spaces, hyphens or underscores; numbers are put on the task's scale.
    Raises ConfigError for a model without a head of a task, for answers of another kind, and for
    other words: an order is never guessed.
    """
    spec, model = text_model.task, text_model.model
    if spec is None or spec.format == "text":
        raise ConfigError(f"the model has no head that answers a task such as {task.title}")
    current = spec.tasks[0]
    if current.kind != task.kind or current.has_unanswerable != task.has_unanswerable:
        asks, gives = (
            f"{each_task.kind}, or none" if each_task.has_unanswerable else each_task.kind
            for each_task in (task, current)
        )
        raise ConfigError(
            f"the model answers {current.title}, but {task.title} needs another kind of answer "
            f"({asks}, not {gives}): name another task"
        )
    weights = model.state_dict()
    if task.kind == "number":
        model.load_state_dict(from_numbers(to_numbers(weights, current), task))
    elif task.kind == "classes":
        words, wanted = (
            ["_".join(re.sub("[-_]", " ", label.casefold()).split()) for label in labels]
            for labels in (current.labels, task.labels)
        )
        if sorted(words) != sorted(wanted):
            named = ", ".join(current.labels)
            raise ConfigError(
                f"the model's labels are {named:.200}, but those of {task.title} are "
                f"{', '.join(task.labels)}, and labels are matched by name: write these names into "
                "id2label of config.json, and import the model again"
            )
        places = [words.index(label) for label in wanted]
        for name in (WEIGHT, BIAS):
            rows = weights[name]
            if len(rows) < len(places):
                # A single output is the second label's logit; the first label's is 0.
                weights[name] = rows if places == [0, 1] else -rows
            else:
                weights[name] = rows[places]
        model.load_state_dict(weights)
    text_model.task = replace(spec, tasks=(task,))


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
            raise ConfigError(f"a batch of {batch} rows is empty: give 1 or more")
        [self.task] = self.spec.tasks
        self.processes: Processes = ALONE
        """Processes that divide the examples; each returns all answers."""
        self._models, self._names, self._batch = models, names, batch
        self._writing = writing or GREEDILY
        if writing is not None and not self.is_written:
            raise ConfigError(
                f"{self.task.title} is answered with probabilities, not written text: leave "
                f"out {WRITING_OPTIONS}"
            )
        self._n_blocks = 0
        self._has_marks = False
        self.n_rows = self.n_cut = 0
        """Number of answered rows, and of those cut to the context."""
        self.first_cut = ""
        """Place of the first row that was cut."""

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
        request = unprepared(text_model, [part], self.spec, self._batch, self.processes, progress)
        answers, _ = answer_split(request, replace(self._writing, block=self._n_blocks))
        return _mark_cut(answers, _cut_examples(request))

    def note_cut(self) -> None:
        """Report the number of truncated rows in a line, if any."""
        if self.n_cut:
            note(
                f"{self.n_cut:,} of {count(self.n_rows, 'row')} ({self.n_cut / self.n_rows:.0%}) "
                f"exceeded the model's context of {self.spec.context:,} tokens and were cut to it; "
                f"the first is {self.first_cut}"
            )

    def _note(self, examples: Sequence[Example]) -> None:
        """Note once what each tokenizer drops from the rows, and special tokens in their texts."""
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

    def predict_rows(self, rows: Any) -> list[NamedPrediction]:
        """Answer rows: each a text, a tuple of texts or a mapping by names of the task's fields.

        ``rows`` may also be a DataFrame or a dict of columns. A tuple has the texts in field order,
        then the choices. A row with an empty or missing text is not answered. Raises DataError for
        a row that is none of these.
        """
        asked = (
            self.given_row(row, f"row {number}") for number, row in enumerate(given_rows(rows))
        )
        answers = [named for _, named in self.answer_rows(asked)]
        self.note_cut()
        return answers

    def answer_rows(
        self,
        rows: Iterable[AskedRow],
        choice_names: Sequence[str] = (),
        progress: Progress = silent,
    ) -> Iterator[tuple[AskedRow, NamedPrediction]]:
        """Answer rows in blocks, in order; ``progress`` counts the batches of each block."""
        waiting = iter(rows)
        while block := list(islice(waiting, BLOCK_ROWS)):
            examples = [row.example for row in block if row.example is not None]
            predictions = iter(self.answer(examples, progress))
            for row in block:
                if row.example is None:
                    yield row, UNANSWERED
                    continue
                prediction, written = next(predictions), self.is_written
                self.n_rows += 1
                if prediction.is_cut:
                    self.n_cut += 1
                    self.first_cut = self.first_cut or row.place
                named = name_prediction(
                    self.task, row.example, prediction, choice_names, is_written=written
                )
                yield row, replace(named, is_cut=prediction.is_cut)

    def given_row(self, row: "GivenRow", where: str) -> AskedRow:
        """Parse a row. Raises DataError, with its place, for invalid values."""
        task = self.task
        if isinstance(row, Mapping):
            columns = find_columns(task, self.spec.columns, ToldColumns(), row, where)
            return AskedRow(row, columns.example_of(task, row, 0, where), where)
        if row is None:
            return AskedRow({}, None, where)
        if not isinstance(row, str | list | tuple):
            raise DataError(
                f"{where} is {type(row).__name__}: give a text, a tuple of texts, a mapping, or "
                "None"
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
            raise DataError(
                f"{where} has {count(len(texts), 'text')}, but {task.title} reads {wanted}{more}"
            )
        columns = RowColumns({name: name for name in task.fields}, choice_list=_CHOICES)
        values[_CHOICES] = choices
        return AskedRow(values, columns.example_of(task, values, 0, where), where)


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
        assert model.task is not None, "models without a task are refused"
        spec = replace(model.task, tasks=tasks)
        request = unprepared(model, encoded, spec, batch, processes, progress)
        members.append(member_answers(request))
        is_cut.append(_cut_examples(request))
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
            raise CheckpointError(f"{name} has no tokenizer.json, and cannot read text without one")
        find_marks(model.tokenizer, model.task.format)
        tasks = {trained.name: trained for trained in model.task.tasks}
        listed = ", ".join(tasks)
        if task is None and len(tasks) > 1:
            raise ConfigError(f"{name} answers several tasks, {listed}: name one (--task)")
        chosen = model.task.tasks[0]
        if task is not None:
            named = tasks.get(task, TASKS.get(task))
            if named is None or not {named.name, named.trained_as} & tasks.keys():
                hint = nearest_hint(task, tuple(tasks))
                raise ConfigError(f"{name} does not answer {task:.60}, but {listed}{hint}")
            chosen = named
        specs.append(replace(model.task, tasks=(chosen,)))
    if together:
        check_members(names, specs)
        check_heads(names, models)
    return specs


def _cut_examples(request: AskedSplit) -> Bools:
    """Mark the truncated examples of a split: ``[N]``."""
    encoded = request.split.encoded
    if isinstance(encoded, SpanExamples):
        return np.zeros(request.split.n_examples, dtype=np.bool_)
    return Assembler(encoded, request.rule).cut_examples()


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


BLOCK_ROWS = 4096
"""Rows answered before the first of them is written."""
_CHOICES = " choices"
"""Key of a row's choices; the leading space keeps it distinct from fields."""
GivenRow = str | Sequence[Any] | Mapping[str, Any] | None
