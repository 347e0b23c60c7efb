"""Scores of a split: model, baselines, and collapsed runs."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import numpy as np

from sublayer.config.objective import SupervisedObjective
from sublayer.config.recipe import Recipe
from sublayer.data.store import Split
from sublayer.data.tasks.batches import TaskPart, TaskSplit, of_tasks
from sublayer.evaluation.items import Digest, FromItems, Items, ItemTable
from sublayer.evaluation.split_work import Processes
from sublayer.objective.family import Effort, Scored
from sublayer.objective.supervised.batches import AskedSplit, recipe_rule
from sublayer.objective.supervised.predictions import answer_examples, answer_questions
from sublayer.objective.supervised.text import SCORED, Writing, text_loss, write_part
from sublayer.system.stages import stage
from sublayer.tasks.baselines import BASELINES
from sublayer.tasks.registry import suite_averages, wording_of
from sublayer.tasks.scoring import TaskScore, score
from sublayer.tasks.task import Example, Prediction, Task
from sublayer.tasks.unanswerable import (
    ByAnswerable,
    best_threshold,
    by_answerable,
    with_threshold,
)
from sublayer.text_model import TextModel


def task_scores(
    text_model: TextModel, split: Split, recipe: Recipe, effort: Effort, processes: Processes
) -> Scored:
    """Score a model on all examples of a split: mean loss, score, and metrics.

    On held-out examples the no-answer threshold of best F1 is selected, and becomes part of the
    model's task.
    """
    examples = of_tasks(split)
    spec = text_model.task
    assert spec is not None, "a fine-tuned model answers a task"
    model = text_model.model
    rule = recipe_rule(recipe, examples)
    selects = split.name == "valid" and spec.threshold is not None
    if selects:
        # All answers are given, to select the threshold.
        spec = spec.with_threshold(math.inf)
    predictions, loss = answer_split(AskedSplit(model, examples, rule, spec, processes))
    if selects:
        part = examples.parts[0]
        threshold = best_threshold(part.examples, predictions).threshold
        text_model.task = spec.with_threshold(threshold)
        predictions = with_threshold(predictions, threshold)
    scores: dict[str, Any] = {"loss": loss}
    scores.update(score_parts(examples, predictions))
    return Scored(scores, items=None)


def answer_split(asked: AskedSplit, writing: Writing = SCORED) -> tuple[list[Prediction], float]:
    """Answer all examples of a split, in order; return answers and mean loss."""
    spec, parts = asked.spec, asked.split.parts
    if spec.format != "text":
        is_span = spec.format == "pair" and parts[0].task.kind == "span"
        answers, losses = (answer_questions if is_span else answer_examples)(asked)
        if is_span and spec.threshold is not None:
            answers = with_threshold(answers, spec.threshold)
        return answers, math.fsum(losses) / len(losses)
    written: list[Prediction] = []
    nats, n_tokens = 0.0, 0
    for part in parts:
        loss = text_loss(asked, part, looks=writing.is_scored)
        written += write_part(asked, part, writing, loss.begun)
        nats += loss.nats
        n_tokens += loss.n_tokens
    return written, nats / n_tokens if n_tokens else math.nan


def score_parts(split: TaskSplit, predictions: Sequence[Prediction]) -> Mapping[str, float]:
    """Compute the score and the metrics of the predictions of a split's parts.

    With several parts the score is their mean, and score names are prefixed with the part.
    """
    scores: dict[str, float] = {}
    values = []
    for part, answers in split.by_part(predictions):
        result = score(part.examples, answers, part.task.metrics)
        values.append(result.value)
        prefix = "" if len(split.parts) == 1 else f"{part_name(part, split.parts)}/"
        scores[f"{prefix}score"] = result.value
        for name, metric in result.metrics.items():
            scores[f"{prefix}{name}"] = metric.value
    scores["score"] = math.fsum(values) / len(values)
    return scores


def part_name(part: TaskPart, parts: tuple[TaskPart, ...]) -> str:
    """Name a part among others: by its task, or by its split within a task."""
    names = [other.task.name for other in parts]
    return name_part(part.task.name, part.published, names.count(part.task.name))


def name_part(task: str, published: str, n_parts: int) -> str:
    """Name a part of a task with ``n_parts`` parts."""
    return f"{task}_{published.removeprefix('dev_')}" if n_parts > 1 else task


class BaselineScores:
    """Scores of the baselines.

    They learn from the examples that ``read_train`` returns by task, read on first use; tasks
    without examples have no baselines. With ``are_scored`` False only the examples are available.
    """

    def __init__(
        self,
        read_train: Callable[[], Mapping[str, Sequence[Example]]],
        *,
        are_scored: bool = True,
    ) -> None:
        self._read_train = cache(read_train)
        self._are_scored = are_scored
        self._scores: dict[tuple[str, str], Mapping[str, TaskScore]] = {}

    def learned_from(self, part: TaskPart) -> Sequence[Example]:
        """Return the training examples of a part's task."""
        return self._read_train().get(part.task.name, ())

    def of(self, part: TaskPart) -> Mapping[str, TaskScore]:
        """Return the baselines' scores on a part, by name."""
        key = part.task.name, part.published
        if key not in self._scores:
            task, train = part.task, self.learned_from(part)
            scores = {}
            for baseline in BASELINES.values() if train and self._are_scored else ():
                if task.kind in baseline.kinds:
                    with stage(f"scoring the baseline {baseline.name} of {task.title}"):
                        predictions = baseline.predict(task, train, part.examples)
                    scores[baseline.name] = score(part.examples, predictions, task.metrics)
            self._scores[key] = scores
        return self._scores[key]


REMEDY = "a lower optimizer.lr, a longer warm-up (optimizer.warmup_share), more train.steps"
_SAME = 1e-3
"""Of the range of numbers: predictions that differ by less are one."""
_SHOWN = 40
"""Characters of an answer that are shown."""


def find_collapse(
    task: Task,
    examples: Sequence[Example],
    predictions: Sequence[Prediction],
    train: Sequence[Example],
    loss: float | None,
) -> str:
    """Describe why a run collapsed; empty if it did not.

    ``predictions`` are for all scored ``examples``; ``loss`` is the mean training loss at the end,
    in the units of ``answer_losses``, None where unknown. A single answer for all is no collapse
    where it is always right.
    """
    answer = _one_answer(task, predictions)
    golds = {
        example.answers[0].text if example.label is None and example.answers else example.label
        for example in examples
    }
    if answer and len(golds) > 1 and len(predictions) > 1:
        noun = "questions" if task.kind == "span" else "examples"
        return f"it answers {answer} to all {noun}"
    floor = frequency_loss(task, train)
    if loss is not None and floor is not None and not loss < floor:
        return (
            f"its loss of training, {loss:.3f}, is not below {floor:.3f}, that of the labels' "
            "frequencies"
        )
    return ""


def _one_answer(task: Task, predictions: Sequence[Prediction]) -> str:
    """Return the single answer given to all, in words; empty where answers differ."""
    if task.kind in ("span", "text"):
        texts = {prediction.text for prediction in predictions}
        text = next(iter(texts), "")
        shown = text[:_SHOWN] + ("..." if len(text) > _SHOWN else "")
        return repr(shown) if len(texts) == 1 else ""
    labels = {prediction.label for prediction in predictions}
    known = [label for label in labels if label is not None]
    if not known:
        return "no number" if task.kind == "number" else "none of the labels"
    if task.kind == "number":
        low, high = task.numbers
        are_alike = max(known) - min(known) < _SAME * (high - low)
        return f"{known[0]:.2f}" if len(known) == len(labels) and are_alike else ""
    if len(labels) > 1:
        return ""
    index = int(known[0])
    return f"choice {index + 1}" if task.kind == "choice" else task.labels[index]


def frequency_loss(task: Task, train: Sequence[Example]) -> float | None:
    """Compute the mean loss of predicting the labels' frequencies, or the mean of numbers.

    None for spans, and for constant labels, whose loss is 0. In nats; for numbers half the squared
    error on the scale of -1 to 1. Choices are equally likely.
    """
    labelled = [example for example in train if example.label is not None]
    if not labelled or task.kind == "span":
        return None
    if task.kind == "choice":
        return math.fsum(math.log(len(example.choices)) for example in labelled) / len(labelled)
    labels = [float(example.label or 0.0) for example in labelled]
    if len(set(labels)) == 1:
        return None
    if task.kind == "number":
        low, high = task.numbers
        mean = math.fsum(labels) / len(labels)
        spread = math.fsum((2 * (label - mean) / (high - low)) ** 2 for label in labels)
        return spread / len(labels) / 2
    counts = Counter(labels)
    shares = [n / len(labels) for n in counts.values()]
    return -math.fsum(share * math.log(share) for share in shares)


def answer_loss(
    train: TaskSplit, objective: SupervisedObjective, loss: float | None
) -> float | None:
    """Return the mean loss of an answer, from the final mean training loss.

    For written answers the training loss is per token, and is multiplied by the tokens of an
    answer: a model that knows only the labels' frequencies loses as much on all of these together
    as on the label. None for several tasks, or texts other than labels. ``loss`` None gives None.
    """
    if loss is None or objective.format != "text":
        return loss
    [part, *others] = train.parts
    if others or part.task.kind != "classes" or not wording_of(part.task).has_ranks:
        return None
    encoded = part.encoded
    # The target is the last text of a row, plus an end.
    targets = encoded.text_lengths[encoded.row_starts[1:] - 1] + 1
    return loss * float(np.minimum(targets, objective.target_length).mean())


@dataclass(frozen=True)
class PartReport:
    """Scores of a model and baselines on a part."""

    name: str
    task: Task
    split: str
    """The publisher's, such as ``dev_matched``."""
    score: TaskScore
    baselines: Mapping[str, TaskScore]
    collapse: str
    """Reason why the model answers nothing; empty where it does."""
    by_answerable: Mapping[bool, ByAnswerable] = field(default_factory=dict)
    """Scores of questions with an answer and of those without, where there are both kinds."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "task": self.name,
            "title": self.task.title,
            "split": self.split,
            "examples": self.score.n_examples,
            "outside": self.score.n_outside,
            **_values(self.score),
            "baselines": {
                name: {"description": BASELINES[name].describe(self.task), **_values(result)}
                for name, result in self.baselines.items()
            },
            "collapse": self.collapse,
            **{
                "answerable" if kind else "unanswerable": asdict(result)
                for kind, result in self.by_answerable.items()
            },
        }


def report_split(
    split: TaskSplit,
    baselines: BaselineScores,
    predictions: Sequence[Prediction],
    loss: float | None = None,
) -> list[PartReport]:
    """Report every part of a split, from predictions in its order.

    ``loss``: the final training loss, if known, to detect a collapse.
    """
    reports = []
    for part, answers in split.by_part(predictions):
        task, examples = part.task, part.examples
        reports.append(
            PartReport(
                name=part_name(part, split.parts),
                task=task,
                split=part.published,
                score=score(examples, answers, task.metrics),
                baselines=baselines.of(part),
                collapse=find_collapse(task, examples, answers, baselines.learned_from(part), loss),
                by_answerable=by_answerable(examples, answers) if task.has_unanswerable else {},
            )
        )
    return reports


def average_reports(reports: Sequence[PartReport]) -> dict[str, float]:
    """Average the scores over each complete suite, by title."""
    scores: dict[str, list[float]] = {}
    for report in reports:
        scores.setdefault(report.task.name, []).append(report.score.value)
    return suite_averages(scores)


def _values(result: TaskScore) -> dict[str, Any]:
    metrics = {name: asdict(metric) for name, metric in result.metrics.items()}
    return {"score": result.value, "standard_error": result.standard_error, "metrics": metrics}


SCORE = "score"
"""The column of the mean of a task's metrics; each metric has one of its own name."""


def moved_by(column: str, table: str) -> FromItems:
    """Return a score's movement as the sum of its examples' derivatives.

    The sum is the movement, not the score.
    """
    return FromItems(table, lambda sums: float(sums[column]))


def task_items(split: TaskSplit, reports: Sequence[PartReport]) -> Items:
    """Return the derivatives of all parts' scores by example, or group.

    ``reports`` are of the split's parts, in order. A row is the derivative of a score with respect
    to the example's weight, from pseudo-values (Efron 1982, the jackknife).
    """
    tables = {}
    for part, report in zip(split.parts, reports, strict=True):
        digest = Digest(report.name, part.digest)
        digest.add(np.unique(part.encoded.numbers))
        columns = {}
        for name, influences in report.score.influences.items():
            known = np.where(np.isfinite(influences), influences, 0.0)
            columns[name or SCORE] = known / len(known)
        tables[report.name] = ItemTable(
            unit=f"{report.task.title}: an example, or those of one group",
            digest=digest.hexdigest(),
            columns=columns,
            documents=None,
        )
    return Items(split.name, split.store.sha256, tables)
