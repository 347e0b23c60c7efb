"""Labels as files write them: words, or the numbers that the hub's copies have."""

import math
from collections.abc import Sequence

from sublayer.errors import ConfigError, DataError
from sublayer.tasks.task import Task

NO_LABEL = -1
"""What the hub's copies have where the publisher keeps the labels to himself."""

_DECIMALS = 6
"""Those that a number keeps that was stored in single precision."""


def read_class(task: Task, written: object, place: str) -> int | None:
    """Return the index of a label, or None where none is given: -1, an empty text, null.

    Raises DataError, with its place and the labels there are, for anything else.
    """
    label = _stripped(written)
    if label is None or label == "":
        return None
    if label in task.labels:
        return task.labels.index(str(label))
    for index in range(NO_LABEL, len(task.labels)):
        # A table with gaps, as pandas writes it, has whole numbers with a decimal point.
        if label in (index, str(index), f"{index}.0"):
            return None if index == NO_LABEL else index
    raise DataError(f"{place}: {written!r} is no label of {task.title}: {labels_of(task)}")


def read_number(task: Task, written: object, place: str) -> float | None:
    """Return a number, or None where none is given: -1, an empty text, null.

    Raises DataError, with its place, for what is no number within the task's bounds.
    """
    low, high = task.numbers
    label = _stripped(written)
    if label is None or label == "":
        return None
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    if number == NO_LABEL:
        return None
    if not low <= number <= high:
        raise DataError(
            f"{place}: {written!r} is no number from {low:g} to {high:g}, as {task.title} has them"
        )
    return round(number, _DECIMALS)


def label_places(words: Sequence[str], task: Task) -> tuple[int, ...]:
    """Return for each label of a task the place of its word among ``words``.

    Capitals do not count, nor whether words are joined by spaces, hyphens or underscores. Raises
    ConfigError where the words are not those of the labels: an order is never guessed.
    """
    plain = [_plain(word) for word in words]
    wanted = [_plain(label) for label in task.labels]
    if sorted(plain) != sorted(wanted):
        named = ", ".join(words)
        raise ConfigError(
            f"the model's labels are {named:.200}, those of {task.title} {', '.join(task.labels)}: "
            "which is which is not guessed; write the words into id2label of config.json, and "
            "import it again"
        )
    return tuple(plain.index(label) for label in wanted)


def _plain(label: str) -> str:
    return "_".join(label.casefold().replace("-", " ").replace("_", " ").split())


def labels_of(task: Task) -> str:
    """List a task's labels for a message, each with its number."""
    return ", ".join(f"{label} ({index})" for index, label in enumerate(task.labels))


def _stripped(written: object) -> str | int | float | None:
    """Return a label without blanks, None for none at all, and what is no label as it is shown."""
    if written is None or (isinstance(written, float) and math.isnan(written)):
        return None
    if isinstance(written, str):
        return written.strip()
    if isinstance(written, int | float) and not isinstance(written, bool):
        return written
    return repr(written)
