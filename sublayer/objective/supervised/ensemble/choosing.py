"""Which members an ensemble has: those that together score best on what was held out of train."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

How = Literal["greedy", "all"]
Score = Callable[[Sequence[int]], float]
"""Scores an ensemble of some runs, by their numbers, on what was held out."""
MOST_FOR_ALL = 12
"""Runs of which all ensembles are tried, at most: 4,095."""


@dataclass(frozen=True)
class Step:
    """A run that was added, and what the ensemble scores with it."""

    member: int
    score: float


@dataclass(frozen=True)
class Choice:
    """The members that were chosen, and what led there."""

    members: tuple[int, ...]
    """In the order of the runs."""
    score: float
    """On what was held out, which chose them: too high by that."""
    n_tried: int
    """How many ensembles were scored."""
    steps: tuple[Step, ...] = ()
    """Of the greedy choice: in the order in which they were added."""


def choose(n_runs: int, score: Score, how: How) -> Choice:
    """Choose among runs by the score: one by one, or the best of all ensembles."""
    return _greedily(n_runs, score) if how == "greedy" else _best_of_all(n_runs, score)


def _greedily(n_runs: int, score: Score) -> Choice:
    """Begin with the best run, and add the one that raises the score most, while any does.

    Of equals the first is taken.
    """
    steps: list[Step] = []
    left = list(range(n_runs))
    n_tried = 0
    while left:
        chosen = [step.member for step in steps]
        tried = [Step(each, score(sorted([*chosen, each]))) for each in left]
        n_tried += len(tried)
        best = max(tried, key=lambda step: step.score)
        if steps and not best.score > steps[-1].score:
            break
        steps.append(best)
        left.remove(best.member)
    members = tuple(sorted(step.member for step in steps))
    return Choice(members, steps[-1].score, n_tried, tuple(steps))


def _best_of_all(n_runs: int, score: Score) -> Choice:
    """Try every ensemble; of equals that of fewer runs, and then the first, is taken."""
    tried = [
        (score(members), members)
        for n in range(1, n_runs + 1)
        for members in combinations(range(n_runs), n)
    ]
    best_score, members = max(tried, key=lambda each: each[0])
    return Choice(members, best_score, len(tried))
