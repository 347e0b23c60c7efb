"""The caveats of a report: what its numbers do not show."""

from collections.abc import Sequence

from sublayer.objective.metric import Metric
from sublayer.study.report.number_format import format_duration
from sublayer.study.results import Results
from sublayer.study.scoring import WHOLE_TEST, Scoring
from sublayer.study.statistics import critical_t

FEW_SEEDS = 5
"""Fewer seeds than these, the default, are called few."""


def list_caveats(
    looks: Sequence[int],
    texts: Sequence[str],
    *,
    n_seeds: int,
    n_comparisons: int,
    metric: Metric,
    elsewhere: Sequence[str] = (),
    jobs: Sequence[int] = (),
    scoring: Scoring = WHOLE_TEST,
    chosen: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return what weakens a comparison, a sentence or two each.

    ``looks`` are the numbers of seeds of its reports, in order; ``texts`` are the caveats of its
    text; ``n_comparisons`` is what intervals are corrected for; ``metric`` decides; ``elsewhere``
    are arms that it scored on other items than their baseline; ``jobs`` are numbers of runs that
    were made at a time, other than one; ``scoring`` is what was scored, and ``chosen`` is what was
    chosen by the validation split. Where there is no interval, none has a caveat: of one seed (see
    ``explain_one_seed``), or while no two arms are compared.
    """
    notes = []
    if n_seeds > 1 and n_comparisons:
        notes += _of_intervals(looks, n_seeds, n_comparisons)
    if scoring.split == "valid" and chosen:
        notes.append(
            f"Scored on the validation split, which also chose {' and '.join(chosen)}: values are "
            "better than those of a text that had no part in it."
        )
    notes += texts
    if elsewhere and metric.basis == "items":
        notes.append(
            f"{', '.join(elsewhere)}: scored on other targets than the baseline, so that "
            f"{metric.label} do not compare, and no verdict on them means anything."
        )
    if jobs:
        notes.append(
            f"Up to {max(jobs)} runs were trained at a time: seconds and tokens/s are those of "
            "runs that share the machine, and do not compare with those of a run alone."
        )
    return tuple(notes)


def _of_intervals(looks: Sequence[int], n_seeds: int, n_comparisons: int) -> list[str]:
    notes = []
    if n_seeds < FEW_SEEDS:
        notes.append(_few_seeds(n_seeds, n_comparisons))
    if len(looks) > 1:
        notes.append(
            f"This study was reported with {', '.join(map(str, looks))} seeds in turn. The "
            "intervals assume that the number of seeds was chosen beforehand: a verdict that came "
            "with added seeds is less sure than it says."
        )
    return notes


def explain_one_seed(results: Results, looks: Sequence[int] = ()) -> str:
    """Return why one seed gives no verdict, and what a second costs, in a few sentences.

    ``looks`` are the numbers of seeds of all reports so far: what was trained for them is there.
    """
    text = (
        "One seed gives values and no verdict: how much another seed would change them is not "
        f"known. {_remedy(results, max(looks, default=1))}"
    )
    if any(arm.tuned for arm in results.arms):
        text += " What was tuned was chosen on the validation split by the runs that are reported."
    return text


def _remedy(results: Results, n_trained: int) -> str:
    if n_trained > 1:
        return f"{n_trained} seeds were trained: --seeds {n_trained} gives an interval."
    n_arms = len(results.arms)
    seconds = [arm.costs.seconds for arm in results.arms if arm.costs.seconds is not None]
    cost = f"{n_arms} runs"
    if len(seconds) == n_arms:
        cost += f" of {format_duration(sum(seconds))} together"
    return f"A second gives an interval: --seeds 2 continues from these runs with {cost}."


def _few_seeds(n_seeds: int, n_comparisons: int) -> str:
    compared = "one comparison" if n_comparisons == 1 else f"{n_comparisons} comparisons"
    return (
        f"{n_seeds} seeds are few: with {compared} an interval reaches "
        f"{critical_t(n_seeds, n_comparisons):.1f} "
        'standard errors to either side. "undecided" does not say that arms are equal: '
        "a difference below the "
        "detectable one was likely to be missed."
    )
