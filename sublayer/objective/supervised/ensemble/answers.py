"""What the members of an ensemble answer to a split, each by itself, and all together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sublayer.data.tasks.assembly import RowRule
from sublayer.data.tasks.task_split import TaskPart, TaskSplit
from sublayer.evaluation.split_work import ALONE, Processes
from sublayer.model.transformer import Transformer
from sublayer.objective.evaluation import Progress
from sublayer.objective.supervised.ensemble.averages import average_predictions, mean
from sublayer.objective.supervised.ensemble.listing import list_spans
from sublayer.objective.supervised.ensemble.spans import Listed, decode
from sublayer.objective.supervised.predictions import answer_examples
from sublayer.objective.supervised.text_predictions import write_part
from sublayer.tasks.metrics.thresholds import with_threshold
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.spec import TaskSpec


@dataclass(frozen=True)
class MemberAnswers:
    """What a member answers to all examples of a split, in its order."""

    predictions: Sequence[Prediction] = ()
    """Those of labels, choices and numbers."""
    listed: Sequence[Listed] = ()
    """Those of questions about passages."""
    is_joint: bool = False
    """Whether a head of its own scores no answer to them."""
    threshold: float | None = None
    """The score of no answer above which the member gives none."""


def answers_of(
    model: Transformer,
    split: TaskSplit,
    rule: RowRule,
    spec: TaskSpec,
    progress: Progress = lambda n_done, n_all: None,
    processes: Processes = ALONE,
) -> MemberAnswers:
    """Have a member answer a split that is encoded for it; ``progress`` hears of batches.

    ``processes`` divide the work, but for spans, which each of them lists.
    """
    task = split.parts[0].task
    if task.kind == "span":
        listed = list_spans(model, split, rule, spec, progress)
        is_joint = model.joint_span_head is not None
        return MemberAnswers(listed=listed, is_joint=is_joint, threshold=spec.threshold)
    if spec.format != "text":
        return MemberAnswers(answer_examples(model, split, rule, task, processes, progress)[0])
    ranked: list[Prediction] = []
    for part in split.parts:
        ranked += write_part(model, part, rule, spec, processes, progress)
    return MemberAnswers(ranked)


def combine(
    parts: Sequence[TaskPart], members: Sequence[MemberAnswers], threshold: float | None
) -> list[Prediction]:
    """Average the answers of members to the examples of parts, in their order.

    ``threshold`` is the score of no answer above which none is given; None: always one.
    """
    if parts[0].task.kind == "span":
        [part] = parts
        is_joint = all(each.is_joint for each in members)
        decoded = [
            decode(given, is_joint=is_joint, has_unanswerable=part.task.has_unanswerable)
            for given in zip(*(each.listed for each in members), strict=True)
        ]
        return decoded if threshold is None else with_threshold(decoded, threshold)
    found: list[Prediction] = []
    first = 0
    for part in parts:
        stop = first + len(part.examples)
        own = [each.predictions[first:stop] for each in members]
        found += average_predictions(part.task, part.examples, own)
        first = stop
    return found


def mean_threshold(members: Sequence[MemberAnswers]) -> float | None:
    """Return the mean of members' thresholds: by how much scores exceed them is averaged, too.

    None where a member has none, and always answers.
    """
    thresholds = [math.inf if each.threshold is None else each.threshold for each in members]
    return None if math.inf in thresholds else mean(thresholds)
