"""Averages over the tasks of a suite, as GLUE and SuperGLUE define them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")

AVERAGES: dict[str, tuple[str, ...]] = {
    "glue": (*_GLUE, "wnli"),
    "glue_without_wnli": _GLUE,
    "superglue": ("boolq", "cb", "copa", "multirc", "record", "sg_rte", "wic", "wsc"),
}
"""Tasks by the name of their average: GLUE's leaderboard counts nine, the papers eight; diagnostic
sets are never counted."""


@dataclass(frozen=True)
class Average:
    """The mean of the scores of a suite's tasks."""

    value: float | None
    """None where a task is missing."""
    missing: tuple[str, ...]
    """Tasks that have no score."""


def average(name: str, scores: Mapping[str, float]) -> Average:
    """Average the scores of the tasks of a row of ``AVERAGES``; others are left out."""
    tasks = AVERAGES[name]
    missing = tuple(task for task in tasks if task not in scores)
    if missing:
        return Average(None, missing)
    return Average(mean_score([scores[task] for task in tasks]), ())


def mean_score(scores: Sequence[float]) -> float:
    """Return a task's score over its sets: MNLI's is the mean of matched and mismatched."""
    return sum(scores) / len(scores)
