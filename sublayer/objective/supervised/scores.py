"""How well a model answers the examples of tasks, during training and at its end."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sublayer.config.recipe import Recipe
from sublayer.data.split import Split
from sublayer.data.tasks.assembly import RowRule
from sublayer.data.tasks.task_split import TaskPart, TaskSplit, of_tasks
from sublayer.evaluation.split_work import Processes
from sublayer.model.transformer import Transformer
from sublayer.objective.evaluation import Progress
from sublayer.objective.family import Effort, Scored
from sublayer.objective.supervised.batches import rule_of_model
from sublayer.objective.supervised.predictions import answer_examples
from sublayer.objective.supervised.span_predictions import answer_questions
from sublayer.objective.supervised.text import SCORED, Writing
from sublayer.objective.supervised.text_predictions import text_loss, write_part
from sublayer.tasks.metrics.score import score
from sublayer.tasks.metrics.thresholds import best_thresholds, with_threshold
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.spec import TaskSpec


def task_scores(
    model: Transformer, split: Split, recipe: Recipe, effort: Effort, processes: Processes
) -> Scored:
    """Score a model on all examples of a split: the mean loss, the score, and each metric of it.

    On what is held out the threshold of no answer is chosen, by which F1 is best, and becomes part
    of what the model says of its task.
    """
    examples = of_tasks(split)
    rule = rule_of_model(model, recipe, examples)
    spec: TaskSpec = model.task
    selects = split.name == "valid" and spec.threshold is not None
    if selects:
        # All answers are given, to find which had better not be.
        spec = spec.with_threshold(math.inf)
    predictions, loss = answer_split(model, examples, rule, spec, processes)
    if selects:
        predictions = _choose_threshold(model, examples.parts[0], predictions)
    scores: dict[str, Any] = {"loss": loss}
    scores.update(score_parts(examples, predictions))
    return Scored(scores, items=None)


def answer_split(
    model: Transformer,
    split: TaskSplit,
    rule: RowRule,
    spec: TaskSpec,
    processes: Processes,
    progress: Progress = lambda n_done, n_all: None,
    writing: Writing = SCORED,
) -> tuple[list[Prediction], float]:
    """Answer all examples of a split, in its order; return the answers and the mean loss."""
    task = split.parts[0].task
    if spec.format == "pair" and task.kind == "span":
        spans, losses = answer_questions(model, split, rule, spec, processes, progress)
        if spec.threshold is not None:
            spans = with_threshold(spans, spec.threshold)
        return spans, math.fsum(losses) / len(losses)
    if spec.format != "text":
        answers, losses = answer_examples(model, split, rule, task, processes, progress)
        return answers, math.fsum(losses) / len(losses)
    written: list[Prediction] = []
    nats, n_tokens = 0.0, 0
    for part in split.parts:
        loss = text_loss(model, part, rule, processes, looks=writing.is_scored)
        written += write_part(model, part, rule, spec, processes, progress, writing, loss.begun)
        nats += loss.nats
        n_tokens += loss.n_tokens
    return written, nats / n_tokens if n_tokens else math.nan


def _choose_threshold(
    model: Transformer, part: TaskPart, predictions: list[Prediction]
) -> list[Prediction]:
    threshold = best_thresholds(part.examples, predictions).f1.threshold
    model.task = model.task.with_threshold(threshold)
    return with_threshold(predictions, threshold)


def score_parts(split: TaskSplit, predictions: Sequence[Prediction]) -> Mapping[str, float]:
    """Compute the score and the metrics of the predictions of a split's parts.

    Of several parts the score is the mean of theirs, and what each has stands behind its name.
    """
    scores: dict[str, float] = {}
    values = []
    for part, own in split.by_part(predictions):
        found = score(part.examples, own, part.task.metrics)
        values.append(found.value)
        prefix = "" if len(split.parts) == 1 else f"{part_name(part, split.parts)}/"
        scores[f"{prefix}score"] = found.value
        for name, metric in found.metrics.items():
            scores[f"{prefix}{name}"] = metric.value
    scores["score"] = math.fsum(values) / len(values)
    return scores


def part_name(part: TaskPart, parts: tuple[TaskPart, ...]) -> str:
    """Name a part among others: by its task, or of one task's by its split."""
    names = [each.task.name for each in parts]
    return name_part(part.task.name, part.published, names.count(part.task.name))


def name_part(task: str, published: str, n_parts: int) -> str:
    """Name what a task is scored on, where it has so many parts."""
    return f"{task}_{published.removeprefix('dev_')}" if n_parts > 1 else task
