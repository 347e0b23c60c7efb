"""The averages of what several models answer: probabilities of labels and choices, and numbers."""

import math
from collections.abc import Sequence

import numpy as np

from sublayer.data.arrays import Floats
from sublayer.tasks.example import Example
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.task import Task


def mean(values: Sequence[float]) -> float:
    """Average numbers; that of equal ones is that number to the bit."""
    first = values[0]
    return first + math.fsum(value - first for value in values) / len(values)


def average_predictions(
    task: Task, examples: Sequence[Example], members: Sequence[Sequence[Prediction]]
) -> list[Prediction]:
    """Average what each member answers to each example: numbers, or probabilities.

    The answer is the label or the choice whose average is highest, of equals the first. Members
    that rank texts give it as a text, too.
    """
    return [
        _averaged(task, example, given) for example, *given in zip(examples, *members, strict=True)
    ]


def _averaged(task: Task, example: Example, given: Sequence[Prediction]) -> Prediction:
    if task.kind == "number":
        numbers = [each.label for each in given if each.label is not None]
        assert len(numbers) == len(given), "every member gives a number"
        return Prediction(label=mean(numbers))
    n_outputs = len(example.choices) or len(task.labels)
    shares = _mean_rows(np.array([_filled(each, n_outputs) for each in given]))
    best = int(shares.argmax())
    text = next((each.text for each in given if each.label == best and each.text), "")
    return Prediction(label=best, probabilities=tuple(shares.tolist()), text=text)


def _filled(prediction: Prediction, n_outputs: int) -> list[float]:
    # How many choices the longest example of a batch has is another number in every batch.
    own = list(prediction.probabilities[:n_outputs])
    return own + [0.0] * (n_outputs - len(own))


def _mean_rows(rows: Floats) -> Floats:
    result: Floats = rows[0] + (rows - rows[0]).mean(0)
    return result
