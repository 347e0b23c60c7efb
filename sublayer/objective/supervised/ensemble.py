"""Ensembles: members are checked, their answers averaged, and members chosen greedily.

Source of averaged spans: ALBERT's ``squad_utils.py``, which averages the scores of equal spans and
of no answer over models, and then decodes.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from sublayer.data.arrays import Bools
from sublayer.data.packing import PackedBatch
from sublayer.data.tasks.assembly import RowRule
from sublayer.data.tasks.batches import TaskPart, TaskSplit
from sublayer.data.tasks.encoded import SpanExamples, find_marks
from sublayer.data.tasks.spans import (
    N_BEST,
    Span,
    independent_prediction,
    joint_prediction,
    probabilities_of,
    rank_spans,
)
from sublayer.errors import CheckpointError, ConfigError
from sublayer.evaluation.split_work import ALONE, Processes
from sublayer.files.paths import resolved
from sublayer.loading import find_model, load_task
from sublayer.model.transformer import Transformer
from sublayer.objective.evaluation import Progress
from sublayer.objective.supervised.answering import (
    Answerer,
    chosen_task,
    cut_examples,
    mark_cut,
    model_rule,
    unprepared_part,
    unprepared_split,
)
from sublayer.objective.supervised.loss import packed_hidden
from sublayer.objective.supervised.predictions import (
    answer_examples,
    each_batch,
    passages_of,
    window_scores,
)
from sublayer.objective.supervised.text import write_part
from sublayer.tasks.registry import wording_of
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.task import Example, Prediction, Task
from sublayer.tasks.text_metrics import with_threshold
from sublayer.text_model import TextModel

N_LISTED = 100
"""Spans of a question that a member lists."""
_SAME = {
    "kind": "asks for another kind of answer",
    "labels": "has other labels",
    "fields": "reads other texts",
    "numbers": "has numbers of another range",
    "is_bounded": "has numbers of another range",
    "has_unanswerable": "says otherwise whether questions may have no answer",
}
"""Properties of a task that all members share, with the message for one that differs."""


def find_members(runs: Sequence[Path]) -> list[TaskSpec]:
    """Read the tasks of runs before any model is loaded.

    Raises CheckpointError for a run that is not there, and ConfigError for one that answers no
    task or is named twice.
    """
    named: dict[Path, Path] = {}
    specs = []
    for run in runs:
        folder = find_model(run)
        spec = load_task(folder)
        if spec is None:
            raise ConfigError(f"{run} answers no task: name fine-tuned runs")
        other = named.setdefault(resolved(folder), run)
        if other is not run:
            raise ConfigError(f"{run} and {other} are the same model: name each run once")
        specs.append(spec)
    return specs


def check_members(names: Sequence[str], specs: Sequence[TaskSpec]) -> None:
    """Raise ConfigError unless models answer the same tasks in a way that can be averaged.

    ``names`` are those of the models in messages.
    """
    first_tasks = {task.name: task for task in specs[0].tasks}
    for name, spec in zip(names, specs, strict=True):
        tasks = {task.name: task for task in spec.tasks}
        if set(tasks) != set(first_tasks):
            raise ConfigError(
                f"{name} answers {_titles(spec)}, and {names[0]} {_titles(specs[0])}: an ensemble "
                "is of models of the same tasks"
            )
        for task_name, task in tasks.items():
            _check_same(names[0], first_tasks[task_name], name, task)
            if spec.format != "text":
                continue
            if not wording_of(task).has_ranks:
                remedy = "name models that read it as pairs or traversals"
            elif spec.answer != "rank":
                remedy = (
                    "have it rank the labels (evaluate --answer rank, or objective.answer = rank "
                    "in training)"
                )
            else:
                continue
            raise ConfigError(
                f"{name} writes its answers to {task.title} as text, which cannot be averaged: "
                f"{remedy}"
            )


def _titles(spec: TaskSpec) -> str:
    return ", ".join(task.title for task in spec.tasks)


def _check_same(first_name: str, first: Task, name: str, task: Task) -> None:
    for field, message in _SAME.items():
        values = [getattr(task, field), getattr(first, field)]
        if values[0] == values[1]:
            continue
        shown = []
        for value in values:
            if isinstance(value, bool):
                shown.append("yes" if value else "no")
            elif isinstance(value, tuple):
                shown.append(", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in value))
            else:
                shown.append(str(value))
        raise ConfigError(
            f"{name} {message} in {task.title} than {first_name}: {shown[0]}, not {shown[1]}; an "
            "ensemble is of models with the same answers"
        )


def check_heads(names: Sequence[str], models: Sequence[TextModel]) -> None:
    """Raise ConfigError where heads of spans score no answer in different ways.

    A joint head has a logit of its own for it; independent ends score by how much [CLS] is better
    than the best span. ``names`` are those of the models in messages.
    """
    spec = models[0].task
    if spec is None or not spec.tasks[0].has_unanswerable:
        return
    kinds = ["independent" if each.model.joint_span_head is None else "joint" for each in models]
    for name, kind in zip(names, kinds, strict=True):
        if kind != kinds[0]:
            raise ConfigError(
                f"{name} has a head of {kind} spans and {names[0]} one of {kinds[0]}: their scores "
                "of no answer are on different scales, and have no average"
            )


class Listed(NamedTuple):
    """The best spans of a question by one model, and the score of no answer."""

    spans: Sequence[Span]
    """Best first."""
    no_answer: float
    """The lowest over windows; of independent ends the score of [CLS], on the spans' scale."""


@dataclass(frozen=True)
class MemberAnswers:
    """Answers of a member to all examples of a split, in its order."""

    predictions: Sequence[Prediction] = ()
    """Of labels, choices and numbers."""
    listed: Sequence[Listed] = ()
    """Of questions about passages."""
    is_joint: bool = False
    """True where a head of its own scores no answer to them."""
    threshold: float | None = None
    """The score of no answer above which the member gives none."""


def member_answers(
    model: Transformer,
    split: TaskSplit,
    rule: RowRule,
    spec: TaskSpec,
    progress: Progress = lambda n_done, n_all: None,
    processes: Processes = ALONE,
) -> MemberAnswers:
    """Answer a split that is encoded for a member; ``progress`` hears of batches.

    ``processes`` divide the work, but for spans, which each of them lists.
    """
    task = split.parts[0].task
    if task.kind == "span":
        listed = _list_spans(model, split, rule, spec, progress)
        is_joint = model.joint_span_head is not None
        return MemberAnswers(listed=listed, is_joint=is_joint, threshold=spec.threshold)
    if spec.format != "text":
        return MemberAnswers(answer_examples(model, split, rule, task, processes, progress)[0])
    ranked: list[Prediction] = []
    for part in split.parts:
        ranked += write_part(model, split.tokenizer, part, rule, spec, processes, progress)
    return MemberAnswers(ranked)


@torch.inference_mode()
def _list_spans(
    model: Transformer, split: TaskSplit, rule: RowRule, spec: TaskSpec, progress: Progress
) -> list[Listed]:
    """List the best spans of every question; ``answer_questions`` answers with the first."""
    (part,) = split.parts
    encoded = split.encoded
    assert isinstance(encoded, SpanExamples), "a passage is read in windows"
    passages = passages_of(part)
    listed = [Listed((), 0.0)] * len(passages)

    def answered(batch: PackedBatch) -> list[float]:
        scores = window_scores(model, batch, packed_hidden(model, batch).final)
        owners = batch.owners.tolist()
        for owner, number in enumerate(batch.numbers):
            windows = [w for w, its in zip(scores, owners, strict=True) if its == owner]
            spans = rank_spans(
                encoded.windows(number),
                [window.candidates for window in windows],
                offset=encoded.offset(number),
                placed=encoded.placed(number),
                passage=passages[number],
                most_tokens=spec.max_answer,
                n_best=N_LISTED,
            )
            listed[number] = Listed(spans, min(window.no_answer for window in windows))
        return []

    each_batch(model, split, rule, answered, ALONE, progress)
    return listed


def mean(values: Sequence[float]) -> float:
    """Average numbers; that of equal ones is that number to the bit."""
    first = values[0]
    return first + math.fsum(value - first for value in values) / len(values)


def mean_threshold(members: Sequence[MemberAnswers]) -> float | None:
    """Return the mean of members' thresholds: by how much scores exceed them is averaged, too.

    None where a member has none, and always answers.
    """
    thresholds = [member.threshold for member in members if member.threshold is not None]
    return mean(thresholds) if len(thresholds) == len(members) else None


def combine(
    parts: Sequence[TaskPart], members: Sequence[MemberAnswers], threshold: float | None
) -> list[Prediction]:
    """Average the answers of members to the examples of parts, in their order.

    ``threshold`` is the score of no answer above which none is given; None: always one.
    """
    if parts[0].task.kind == "span":
        [part] = parts
        is_joint = all(member.is_joint for member in members)
        decoded = [
            decode(listed, is_joint=is_joint, has_unanswerable=part.task.has_unanswerable)
            for listed in zip(*(member.listed for member in members), strict=True)
        ]
        return decoded if threshold is None else with_threshold(decoded, threshold)
    predictions: list[Prediction] = []
    for part in parts:
        first = len(predictions)
        stop = first + len(part.examples)
        answers = [member.predictions[first:stop] for member in members]
        predictions += average_predictions(part.task, part.examples, answers)
    return predictions


def average_predictions(
    task: Task, examples: Sequence[Example], members: Sequence[Sequence[Prediction]]
) -> list[Prediction]:
    """Average numbers, or probabilities, of each example over members.

    The answer is the label or the choice whose average is highest, of equals the first. Members
    that rank texts give it as a text, too.
    """
    averaged = []
    for example, *answers in zip(examples, *members, strict=True):
        if task.kind == "number":
            numbers = [answer.label for answer in answers if answer.label is not None]
            assert len(numbers) == len(answers), "every member gives a number"
            averaged.append(Prediction(label=mean(numbers)))
            continue
        n_outputs = len(example.choices) or len(task.labels)
        rows = np.zeros((len(answers), n_outputs))
        for row, answer in zip(rows, answers, strict=True):
            # The choices of the longest example of a batch differ in number from batch to batch.
            shares = answer.probabilities[:n_outputs]
            row[: len(shares)] = shares
        means = rows[0] + (rows - rows[0]).mean(0)
        best = int(means.argmax())
        text = next((answer.text for answer in answers if answer.label == best and answer.text), "")
        averaged.append(Prediction(label=best, probabilities=tuple(means.tolist()), text=text))
    return averaged


def decode(listed: Sequence[Listed], *, is_joint: bool, has_unanswerable: bool) -> Prediction:
    """Answer a question with the best span on average; of one member it is that member's answer.

    ``is_joint``: of heads whose score of no answer is a logit of its own.
    """
    spans = average_spans([member.spans for member in listed])
    null = mean([member.no_answer for member in listed])
    if is_joint:
        return joint_prediction(spans, [null])
    return independent_prediction(spans, null if has_unanswerable else None)


def average_spans(listed: Sequence[Sequence[Span]]) -> list[Span]:
    """Average the scores of equal spans, the same characters of a passage; the best first.

    Of a member that does not list a span the lowest score counts that it lists. The source averages
    over those alone that list it, so that a span that one member is sure of outweighs one that all
    others agree on. A constant added to all scores of a member changes no order: sums of logits
    count as log-probabilities do. A member that lists nothing is left out.
    """
    members: list[dict[tuple[int, int, int], Span]] = []
    for spans in filter(None, listed):
        # Tokens of whitespace at its ends are no part of a span, so that several may be the same
        # text: the third of a key is how many of the same were listed before.
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
    # Of equals that which the first member finds better comes first.
    averaged.sort(key=lambda scored: -scored[0])
    best = averaged[:N_BEST]
    probabilities = probabilities_of(np.array([score for score, _, _ in best]))
    return [
        Span(text, start, score, p)
        for (score, text, start), p in zip(best, probabilities, strict=True)
    ]


@dataclass(frozen=True)
class Step:
    """A run that was added, and the score of the ensemble with it."""

    member: int
    score: float


@dataclass(frozen=True)
class Choice:
    """The chosen members, and the steps that led there."""

    members: tuple[int, ...]
    """In the order of the runs."""
    score: float
    """On the rows that chose them: too high by that."""
    n_tried: int
    """Ensembles that were scored."""
    steps: tuple[Step, ...]
    """In the order in which members were added."""


def choose(n_runs: int, score: Callable[[Sequence[int]], float]) -> Choice:
    """Choose members greedily: add the run that raises the score most, while any does.

    ``score`` is that of an ensemble of some runs, by their numbers. Of equals the first is taken.
    """
    steps: list[Step] = []
    left = list(range(n_runs))
    n_tried = 0
    while left:
        chosen = [step.member for step in steps]
        tried = [Step(run, score(sorted([*chosen, run]))) for run in left]
        n_tried += len(tried)
        best = max(tried, key=lambda step: step.score)
        if steps and not best.score > steps[-1].score:
            break
        steps.append(best)
        left.remove(best.member)
    return Choice(tuple(sorted(s.member for s in steps)), steps[-1].score, n_tried, tuple(steps))


def answer_together(
    models: Sequence[TextModel],
    parts: Sequence[TaskPart],
    *,
    names: Sequence[str] = (),
    batch: int | None = None,
    progress: Progress = lambda n_done, n_all: None,
    processes: Processes = ALONE,
) -> list[Prediction]:
    """Answer all examples of a split's parts by the average of fine-tuned models, in order.

    However the parts are encoded, each model reads their examples in its own format, by its own
    tokenizer. ``names`` are those of the models in messages; ``progress`` hears of the batches of
    each. Raises ConfigError where models do not answer the same.
    """
    names = names or [f"model {number}" for number, _ in enumerate(models, 1)]
    for part in parts:
        _check_models(models, names, part.task.name)
    answers: list[MemberAnswers] = []
    is_cut: list[Bools] = []
    for model in models:
        encoded = [unprepared_part(model, p.task, p.examples, p.published) for p in parts]
        assert model.task is not None, "models that answer nothing are refused"
        spec = replace(model.task, tasks=tuple(dict.fromkeys(part.task for part in parts)))
        split = unprepared_split(model, encoded, spec)
        rule = replace(model_rule(model, split), n_rows=batch)
        answers.append(member_answers(model.model, split, rule, spec, progress, processes))
        is_cut.append(cut_examples(split, rule))
    predictions = combine(parts, answers, mean_threshold(answers))
    return mark_cut(predictions, np.logical_or.reduce(is_cut))


class EnsembleAnswerer(Answerer):
    """Answers examples of one task by the average of several models.

    ``name`` is that of the task, as ``Answerer`` has it. Raises as that does, and ConfigError where
    models do not answer the same.
    """

    def __init__(
        self,
        models: Sequence[TextModel],
        names: Sequence[str],
        name: str | None = None,
        *,
        batch: int | None = None,
    ) -> None:
        super().__init__(models[0], name, batch=batch)
        self._models = models
        self._names = names
        _check_models(models, names, name)

    def _answered(self, examples: Sequence[Example], progress: Progress) -> list[Prediction]:
        return answer_together(
            self._models,
            [unprepared_part(self._models[0], self.task, examples, "test")],
            names=self._names,
            batch=self._batch,
            progress=progress,
            processes=self.processes,
        )


def _check_models(models: Sequence[TextModel], names: Sequence[str], task: str | None) -> None:
    """Raise ConfigError unless models answer a task alike; None: the only one of each."""
    specs = []
    for name, model in zip(names, models, strict=True):
        if model.tokenizer is None:
            raise CheckpointError(f"{name} has no tokenizer.json, without which it reads no text")
        assert model.task is not None, "only models that answer tasks are put together"
        find_marks(model.tokenizer, model.task.format)
        specs.append(replace(model.task, tasks=(chosen_task(model.task, task, name),)))
    check_members(names, specs)
    check_heads(names, models)
