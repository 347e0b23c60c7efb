"""Ensembles: member checks, averaged answers, greedy selection.

Source of averaged spans: ALBERT's ``squad_utils.py``, which averages the scores of equal spans and
of no answer over models, and then decodes.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sublayer.data.tasks.batches import TaskPart
from sublayer.data.tasks.spans import N_BEST, Span, probabilities_of
from sublayer.errors import ConfigError
from sublayer.files.storage import resolved
from sublayer.loading import find_model, load_task
from sublayer.objective.supervised.batches import AskedSplit
from sublayer.objective.supervised.predictions import Listed, answer_examples, list_spans
from sublayer.objective.supervised.text import write_part
from sublayer.tasks.registry import wording_of
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.task import Example, Prediction, Task
from sublayer.tasks.unanswerable import with_threshold
from sublayer.text_model import TextModel

N_LISTED = 100
"""Spans of a question that a member lists."""
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
            raise ConfigError(f"{run} answers no task: name fine-tuned runs")
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
                f"{name} answers {titles[0]}, and {names[0]} {titles[1]}: an ensemble is of models "
                "of the same tasks"
            )
        for task in spec.tasks:
            for field in _SAME:
                got, first = (getattr(side, field) for side in (task, first_tasks[task.name]))
                if got != first:
                    raise ConfigError(
                        f"{name} answers {task.title} otherwise than {names[0]}: {field} is {got}, "
                        f"not {first}; an ensemble is of models with the same answers"
                    )
            is_ranked = spec.answer == "rank" and wording_of(task).has_ranks
            if spec.format == "text" and not is_ranked:
                raise ConfigError(
                    f"{name} writes its answers to {task.title} as text, which cannot be averaged: "
                    "have it rank labels, where there are some (evaluate --answer rank, or "
                    "objective.answer = rank in training), or name models that read pairs or "
                    "traversals"
                )


def check_heads(names: Sequence[str], models: Sequence[TextModel]) -> None:
    """Raise ConfigError where span heads score no answer in different ways.

    A joint head has a logit of its own for it; independent ends score by how much [CLS] is better
    than the best span. ``names``: the models in messages.
    """
    spec = models[0].task
    if spec is None or not spec.tasks[0].has_unanswerable:
        return
    kinds = ["independent" if model.model.joint_span_head is None else "joint" for model in models]
    for name, kind in zip(names, kinds, strict=True):
        if kind != kinds[0]:
            raise ConfigError(
                f"{name} has a head of {kind} spans and {names[0]} one of {kinds[0]}: their scores "
                "of no answer are on different scales, and have no average"
            )


@dataclass(frozen=True)
class MemberAnswers:
    """A member's answers to all examples of a split, in order."""

    predictions: Sequence[Prediction] = ()
    """Of labels, choices and numbers."""
    listed: Sequence[Listed] = ()
    """Of questions about passages."""
    is_joint: bool = False
    """True where a head of its own scores no answer to them."""
    threshold: float | None = None
    """The score of no answer above which the member gives none."""


def member_answers(asked: AskedSplit) -> MemberAnswers:
    """Answer a split that is encoded for a member."""
    spec = asked.spec
    if asked.split.parts[0].task.kind == "span":
        is_joint = asked.model.joint_span_head is not None
        listed, _ = list_spans(asked, N_LISTED)
        return MemberAnswers(listed=listed, is_joint=is_joint, threshold=spec.threshold)
    if spec.format != "text":
        return MemberAnswers(answer_examples(asked)[0])
    return MemberAnswers([reply for part in asked.split.parts for reply in write_part(asked, part)])


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
    return [average(*asked, outputs) for asked, outputs in zip(examples, answers, strict=True)]


def average(task: Task, example: Example, answers: Sequence[Prediction]) -> Prediction:
    """Average the members' numbers, or probabilities, for an example.

    The answer is the label or choice of highest average, the first of equals. Members that rank
    texts also give it as text.
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


class Step(NamedTuple):
    """An added run, and the ensemble's score with it."""

    member: int
    score: float


class Choice(NamedTuple):
    """Selected members, and the selection steps."""

    members: tuple[int, ...]
    """In the order of the runs."""
    score: float
    """On the rows that chose them: too high by that."""
    n_tried: int
    """Ensembles that were scored."""
    steps: tuple[Step, ...]
    """In the order in which members were added."""


def choose(n_runs: int, score: Callable[[Sequence[int]], float]) -> Choice:
    """Select members greedily: add the run that improves the score most, while any does.

    ``score`` scores an ensemble of run numbers. The first of equals is taken.
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
