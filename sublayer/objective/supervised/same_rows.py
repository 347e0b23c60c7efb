"""Whether two models are scored on the same rows of a task, as a comparison of them needs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sublayer.data.tasks.task_split import TaskPart
from sublayer.errors import ConfigError, DataError
from sublayer.tasks.example import Example


def check_same_rows(
    run: Path, part: TaskPart, other_run: Path, other: TaskPart, what: str = "is scored on"
) -> None:
    """Raise ConfigError where labels differ, and DataError where rows do.

    ``what`` says what is done with the rows.
    """
    if part.task.labels != other.task.labels:
        raise ConfigError(
            f"{other_run} answers {part.task.title} by other labels than {run}: take models "
            "of one task"
        )
    mine, theirs = map(_rows, (part.examples, other.examples))
    if mine != theirs:
        n_common = len(set(mine) & set(theirs))
        raise DataError(
            f"{other_run} {what} other rows of {part.task.title} than {run}: "
            f"{n_common:,} of {len(theirs):,} are the same; take models of the same data, "
            "divided alike, or a file that neither has seen (--path)"
        )


def _rows(examples: Sequence[Example]) -> list[tuple[Any, ...]]:
    return [(each.id, *each.texts, each.label, *each.answers) for each in examples]
