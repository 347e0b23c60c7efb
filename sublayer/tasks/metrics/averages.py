"""Averages over the tasks of a suite, as GLUE and SuperGLUE define them."""

from collections.abc import Mapping, Sequence

_GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")

AVERAGES: dict[str, tuple[str, ...]] = {
    "GLUE": (*_GLUE, "wnli"),
    "GLUE without WNLI": _GLUE,
    "SuperGLUE": ("boolq", "cb", "copa", "multirc", "record", "sg_rte", "wic", "wsc"),
}
"""Tasks by the title of their average: GLUE's leaderboard counts nine, the papers eight; diagnostic
sets are never counted."""


def suite_averages(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Average the scores of tasks over each suite of which none is missing.

    ``scores`` has those of a task's sets: MNLI's score is the mean of matched and mismatched.
    """
    of_tasks = {task: mean_score(sets) for task, sets in scores.items()}
    return {
        title: mean_score([of_tasks[task] for task in tasks])
        for title, tasks in AVERAGES.items()
        if of_tasks.keys() >= set(tasks)
    }


def mean_score(scores: Sequence[float]) -> float:
    """Return the mean of scores."""
    return sum(scores) / len(scores)
