"""The rows that a baseline learns from."""

from collections.abc import Sequence

from sublayer.errors import DataError
from sublayer.tasks.example import Example
from sublayer.tasks.task import Task


def labelled_rows(task: Task, train: Sequence[Example]) -> list[Example]:
    """Return the training rows that have a label. Raises DataError where there are none."""
    rows = [example for example in train if example.is_labelled]
    if not rows:
        raise DataError(
            f"{task.title} has no training rows with a label: without them its baselines are not "
            "known"
        )
    return rows
