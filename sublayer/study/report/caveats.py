"""The caveats of a report: what its numbers do not show."""

from collections.abc import Sequence

from sublayer.objective.metric import Metric
from sublayer.statistics.difference import FEWEST_SEEDS
from sublayer.study.report.number_format import format_duration
from sublayer.study.results import Results
from sublayer.study.scoring import WHOLE_TEST, Scoring


def list_caveats(
    texts: Sequence[str],
    *,
    metric: Metric,
    elsewhere: Sequence[str] = (),
    jobs: Sequence[int] = (),
    clusters: Sequence[str] = (),
    machines: Sequence[str] = (),
    scoring: Scoring = WHOLE_TEST,
    chosen: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return what weakens a comparison, a sentence or two each.

    ``texts`` are the caveats of its text; ``metric`` decides; ``elsewhere`` are arms that it scored
    on other items than their baseline; ``jobs`` are numbers of runs that were made at a time, other
    than one, ``clusters`` the kinds of clusters that made runs, and ``machines`` what is said of
    those that differ; ``scoring`` is what was scored, and ``chosen`` is what was chosen by the
    validation split.
    """
    notes = []
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
    if clusters:
        notes.append(
            f"Runs were made on a cluster ({', '.join(clusters)}): seconds and tokens/s are those "
            "of nodes that other work may share, and do not compare with those of a run alone."
        )
    notes += machines
    return tuple(notes)


def explain_one_seed(results: Results, looks: Sequence[int] = ()) -> str:
    """Return why so few seeds give no verdict, and what one costs, in a few sentences.

    ``looks`` are the numbers of seeds of all reports so far: what was trained for them is there.
    """
    n_trained = max((*looks, results.n_seeds))
    return (
        f"{_few(results.n_seeds)} and no verdict: how much another seed would change them is not "
        f"known. {_remedy(results, n_trained)}"
    )


def _few(n_seeds: int) -> str:
    return "One seed gives values" if n_seeds == 1 else f"{n_seeds} seeds give values"


def _remedy(results: Results, n_trained: int) -> str:
    if n_trained >= FEWEST_SEEDS:
        return f"{n_trained} seeds were trained: --seeds {n_trained} gives an interval."
    n_arms = len(results.arms)
    seconds = [arm.costs.seconds for arm in results.arms if arm.costs.seconds is not None]
    cost = f"{n_arms} runs"
    if len(seconds) == n_arms:
        cost += f" of {format_duration(sum(seconds))} together"
    times = "twice " if FEWEST_SEEDS - n_trained == 2 else ""
    return f"Three give an interval: --seeds 3 continues from these runs with {times}{cost}."
