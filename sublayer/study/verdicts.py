"""Sequential looks at a study, the arms that continue, and its detectable difference."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sublayer.errors import CheckpointError
from sublayer.files.parsing import Number, Typed, read_typed
from sublayer.objective.metric import Metric
from sublayer.statistics.difference import FEWEST_SEEDS, MOST_SEEDS
from sublayer.statistics.looks import (
    Looks,
    fixed,
    planned_detectable,
    seeds_for,
    undecided_arms,
    until_decided,
)
from sublayer.study.columns import metric_columns
from sublayer.study.definition import Study
from sublayer.study.evidence import StudyJudge
from sublayer.study.plan_file import read_plan
from sublayer.study.question import Seeds
from sublayer.study.results import RESULTS
from sublayer.study.runs import RunMaker, Runs, finder_of_plan, has_ended
from sublayer.system.stages import note


def run_looks(
    work: RunMaker, folder: Path, study: Study, seeds: Seeds, looks: Looks
) -> tuple[Runs, int]:
    """Make the runs of all looks; return them with the number of seeds reached.

    In a sequential study a look makes only the runs of undecided arms.
    """
    going_on: set[str] | None = None
    before = 0
    for look in looks.planned:
        work.run(seeds.compared(look)[before:], going_on)
        plan = read_plan(folder)
        finder = finder_of_plan(folder, plan)
        finder.seeds = seeds.compared(look)
        runs = finder.gathered()
        if look == looks.planned[-1]:
            break
        taken = tuple(plan.reported_seeds)
        judge = StudyJudge(
            study, metric_columns(study), runs, look, looks, taken, n_tuning=seeds.n_tuning
        )
        going_on = _going_on(judge)
        if not going_on:
            break
        note(f"after {look} seeds, more runs are needed of {', '.join(sorted(going_on))}")
        before = look
    return runs, look


@dataclass(frozen=True)
class Reached:
    """Progress of a sequential study."""

    look: int
    """Last look whose runs have all ended; the first if there is none."""
    n_missing: int
    """Missing runs of the next look."""
    is_judged: bool
    """True if the first look has ended."""


def look_reached(judge: StudyJudge, arms: Collection[str], seeds: Seeds) -> Reached:
    """Return the look that a sequential study of ``arms`` has reached."""
    ended = {
        arm: {seed for seed, run in stage_runs.seeded() if has_ended(run)}
        for (arm, _), stage_runs in judge.runs.items()
    }
    going_on = set(arms)
    last = 0
    for look in judge.looks.planned:
        wanted = set(seeds.compared(look))
        n_missing = sum(len(wanted - ended.get(arm, set())) for arm in going_on)
        if n_missing:
            return Reached(last or look, n_missing, is_judged=last > 0)
        last = look
        going_on = _going_on(replace(judge, n_seeds=look, n_awaited=0))
        if not going_on:
            break
    return Reached(last, 0, is_judged=True)


def _going_on(judge: StudyJudge) -> set[str]:
    """Return the undecided arms."""
    hypothesis = judge.study.question.hypothesis
    return undecided_arms(judge.first(), judge.scored, hypothesis.contrast if hypothesis else ())


UNKNOWN = (
    "detectable difference: unknown without earlier runs of this study or a spread stated in it"
)


def foresee(
    study: Study,
    metric: Metric,
    looks: Looks,
    folder: Path | None = None,
    *,
    has_items: bool | None = None,
) -> Iterator[str]:
    """Yield the detectable difference of a study, and a warning if it exceeds the margin.

    The spread over seeds is from earlier results in its folder, or as stated by the study.
    ``has_items``: whether intervals include the variance over test items; by default if the metric
    follows from items.
    """
    if looks.planned[-1] < FEWEST_SEEDS:
        return
    margin = study.question.margin_of(study.name, metric)
    spread, item_error = study.question.spread_of(study.name, metric), 0.0
    whence = "at the spread stated in the study"
    try:
        earlier = None if folder is None else _earlier_spread(folder, metric)
    except CheckpointError as error:
        earlier = None
        yield f"the spread of the earlier runs is not used: {error}"
    if earlier is not None:
        spread, item_error = earlier
        whence = "at the spread of the earlier runs"
    n_seeds = looks.planned[-1]
    if not (metric.from_items is not None if has_items is None else has_items):
        yield (
            f"{metric.label} is no mean over test items: intervals allow for other seeds, not for "
            "other test items"
        )
    if spread is None:
        yield UNKNOWN
        return
    n_arms = len(study.arms)
    size = _detectable(spread, n_arms=n_arms, looks=looks, item_error=item_error)
    unit = metric.difference
    shown = f"{size * metric.factor:.3g} {unit}"
    yield f"detectable difference: {shown} with {n_seeds} seeds, four times in five, {whence}"
    if margin is not None and size > margin:
        enough = _enough(spread, item_error, n_arms, margin, is_sequential=looks.is_sequential)
        yield (
            f"warning: that is more than the margin of {margin * metric.factor:.3g}, so a "
            f"difference that matters is likely to be missed{enough}"
        )


def _enough(
    spread: float, item_error: float, n_arms: int, margin: float, *, is_sequential: bool
) -> str:
    """Format the number of seeds that would detect the margin."""

    def detectable(n_seeds: int) -> float:
        has_several = is_sequential and n_seeds > FEWEST_SEEDS
        looks = until_decided(n_seeds) if has_several else fixed(n_seeds)
        return _detectable(spread, n_arms=n_arms, looks=looks, item_error=item_error)

    n_seeds = seeds_for(detectable, margin)
    if n_seeds is None:
        of_items = "more test items" if item_error else f"more than {MOST_SEEDS} seeds"
        return f"; {of_items} are needed to detect it"
    return f"; about {n_seeds} seeds would detect it"


def _detectable(spread: float, *, n_arms: int, looks: Looks, item_error: float = 0.0) -> float:
    """Compute the true difference that is detected with power 0.8 at the last look.

    ``spread`` is the standard deviation over seeds of each arm, without correlation between arms;
    ``item_error`` is the standard error of a difference over test items. All have one unit.
    """
    n_seeds = looks.planned[-1]
    level = looks.levels(looks.planned, n_arms - 1)[n_seeds]
    return spread * planned_detectable(n_arms, n_seeds, level, item_error / spread)


class _SpreadEntry(Typed):
    sd: Number | None = None
    """Spread of an arm."""
    parts: dict[str, Number | None] | None = None
    """Standard errors of a difference, by source."""
    correlation: Number | None = None
    """Correlation of arms over seeds."""


class _Earlier(Typed):
    """Spreads in the results of earlier runs."""

    metric: str
    arms: list[_SpreadEntry]
    differences: list[_SpreadEntry]
    pairing: _SpreadEntry | None = None


def _earlier_spread(folder: Path, metric: Metric) -> tuple[float, float] | None:
    """Return spread over seeds and standard error over items of earlier results in a folder.

    Without the shared part of the spread, which cancels in differences. Raises CheckpointError for
    damaged results.
    """
    try:
        earlier = read_typed(folder / RESULTS, _Earlier, CheckpointError)
    except FileNotFoundError:
        return None
    known = [arm.sd for arm in earlier.arms if arm.sd]
    if earlier.metric != metric.name or not known:
        return None
    errors = [(row.parts or {}).get("items") or 0.0 for row in earlier.differences]
    variance = sum(sd**2 for sd in known) / len(known)
    correlation = (earlier.pairing and earlier.pairing.correlation) or 0.0
    shared = min(max(correlation, 0.0), 0.99)
    return (variance * (1.0 - shared)) ** 0.5, max(errors, default=0.0)
