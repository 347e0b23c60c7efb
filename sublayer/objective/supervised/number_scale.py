"""The head of a task of numbers: its outputs on our scale, from -1 to 1, and as the numbers.

A model that writes the number as text has no such head: its weights stay as they are.
"""

from collections.abc import Mapping

from torch import Tensor

from sublayer.tasks.task import Task

WEIGHT, BIAS = "label_head.weight", "label_head.bias"


def to_numbers(weights: Mapping[str, Tensor], task: Task | None) -> dict[str, Tensor]:
    """Return weights by which the head's output is the number itself; others are as they were."""
    if task is None or task.kind != "number" or WEIGHT not in weights:
        return dict(weights)
    half, middle = _scale(task)
    return {**weights, WEIGHT: weights[WEIGHT] * half, BIAS: weights[BIAS] * half + middle}


def from_numbers(weights: Mapping[str, Tensor], task: Task) -> dict[str, Tensor]:
    """Return weights of a head whose output is a number by which it is on the task's scale.

    Those of other tasks are as they were.
    """
    if task.kind != "number" or WEIGHT not in weights:
        return dict(weights)
    half, middle = _scale(task)
    return {**weights, WEIGHT: weights[WEIGHT] / half, BIAS: (weights[BIAS] - middle) / half}


def _scale(task: Task) -> tuple[float, float]:
    low, high = task.numbers
    return (high - low) / 2.0, (low + high) / 2.0
