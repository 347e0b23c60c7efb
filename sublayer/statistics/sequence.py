"""Verdicts of a comparison that is looked at more than once: each at the look that decided it."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from sublayer.statistics.difference import DECIDED, Difference, Judgement

JudgeAt = Callable[[int], Judgement]
"""Judges by the first so many seeds."""


def judge_looks(judge_at: JudgeAt, looks: Iterable[int]) -> Judgement:
    """Judge at each look in turn; what one has decided stands, with the interval that it had.

    ``looks`` are numbers of seeds in order, of which all runs have ended that were still going on.
    """
    standing: dict[tuple[str, str], Difference] = {}
    latest = None
    for look in looks:
        latest = judge_at(look)
        for difference in latest.differences:
            key = difference.arm, difference.baseline
            earlier = standing.get(key)
            if earlier is None or earlier.verdict not in DECIDED:
                standing[key] = difference
    assert latest is not None, "a comparison is judged at a look"
    return replace(latest, differences=tuple(standing.values()))


def without_verdicts(judgement: Judgement) -> Judgement:
    """Return what is shown and not judged: differences without verdict and p."""
    shown = [replace(each, verdict="no verdict", p=None) for each in judgement.differences]
    return replace(judgement, differences=tuple(shown))


def unfinished(judgement: Judgement, n_seeds: int) -> Judgement:
    """Return what is known before all runs of ``n_seeds`` have ended: differences alone.

    An interval would be a look that is not counted.
    """
    note = f"unfinished: judged once all {n_seeds} seeds have ended"
    shown = [
        Difference(
            each.arm,
            each.baseline,
            each.seeds,
            each.mean,
            verdict="no verdict",
            n_failed=each.n_failed,
            n_seeds=each.n_seeds,
            note=note,
        )
        for each in judgement.differences
    ]
    return replace(judgement, differences=tuple(shown), pairing=None)


def undecided_arms(judgement: Judgement, arms: Iterable[str], weights: Iterable[str]) -> set[str]:
    """Return the arms that go on: those of differences that are not decided.

    ``weights`` are the arms of a contrast of several, which go on until it is decided.
    """
    known = set(arms)
    going_on = set()
    for difference in judgement.differences:
        # What is not judged at all will not be at another look either.
        if difference.verdict in DECIDED or difference.verdict == "no verdict":
            continue
        if difference.baseline:
            going_on |= {difference.arm, difference.baseline}
        else:
            going_on |= set(weights)
    return going_on & known
