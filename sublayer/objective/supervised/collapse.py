"""Find runs that learned nothing: one answer for all, or no better than the labels' frequencies."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.data.tasks.task_split import TaskSplit
from sublayer.tasks.example import Example
from sublayer.tasks.formats.text import UNRANKED
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.task import Task

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
    """Say in a few words why a run is one that collapsed; empty where it is none.

    ``predictions`` are those of all ``examples`` that are scored, ``loss`` is the mean loss at the
    end of training, as ``answer_losses`` has it; None where it is not known. One answer for all is
    no collapse where it is the right one for all.
    """
    answer = _one_answer(task, predictions)
    if answer and len(set(map(_gold, examples))) > 1:
        return answer
    floor = frequency_loss(task, train)
    if loss is not None and floor is not None and not loss < floor:
        return (
            f"its loss of training, {loss:.3f}, is not below {floor:.3f}, that of the labels' "
            "frequencies"
        )
    return ""


def _gold(example: Example) -> float | str | None:
    if example.label is None and example.answers:
        return example.answers[0].text
    return example.label


def _one_answer(task: Task, predictions: Sequence[Prediction]) -> str:
    if len(predictions) < 2:
        return ""
    if task.kind in ("span", "text"):
        text, *others = {each.text for each in predictions}
        cut = text[:_SHOWN] + ("..." if len(text) > _SHOWN else "")
        return (
            ""
            if others
            else f"it answers {cut!r} to all {'questions' if task.kind == 'span' else 'examples'}"
        )
    labels = {each.label for each in predictions}
    known = [label for label in labels if label is not None]
    if not known:
        what = "no number" if task.kind == "number" else "none of the labels"
        return f"it answers {what} to all examples"
    if task.kind == "number":
        low, high = task.numbers
        if len(known) == len(labels) and max(known) - min(known) < _SAME * (high - low):
            return f"it answers {known[0]:.2f} to all examples"
        return ""
    if len(labels) > 1:
        return ""
    [label] = known
    if task.kind == "choice":
        return f"it answers choice {int(label) + 1} to all examples"
    return f"it answers {task.labels[int(label)]} to all examples"


def frequency_loss(task: Task, train: Sequence[Example]) -> float | None:
    """Compute the mean loss of predicting the labels' frequencies, or the mean of numbers.

    None for spans, and where the labels do not differ, so that it would be nothing. In nats; of
    numbers half the squared error on the scale of -1 to 1. Of choices all are equally likely.
    """
    labelled = [example for example in train if example.label is not None]
    if not labelled or task.kind == "span":
        return None
    if task.kind == "choice":
        return math.fsum(math.log(len(each.choices)) for each in labelled) / len(labelled)
    labels = [float(each.label or 0.0) for each in labelled]
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
    """Return the mean loss of an answer, by the mean loss at the end of training.

    Of answers that are written that is one of tokens, and an answer has several: who knows only how
    often each label is right loses as much for them together as for the label. None where they are
    of several tasks, or where other texts than labels are written.
    """
    if loss is None or objective.format != "text":
        return loss
    [part, *others] = train.parts
    if others or part.task.kind != "classes" or part.task.name in UNRANKED:
        return None
    encoded = part.encoded
    # The target is the last text of a row, and has an end beside.
    targets = encoded.text_lengths[encoded.row_starts[1:] - 1] + 1
    return loss * float(np.minimum(targets, objective.target_length).mean())
