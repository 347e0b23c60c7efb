"""The verdicts on a study: contrasts, looks, which arms go on, and which difference it can find."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sublayer.errors import CheckpointError
from sublayer.files.parsing import read_json_object
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
from sublayer.study.columns import metric_columns, study_metrics
from sublayer.study.definition import Study
from sublayer.study.evidence import Looking, StudyJudge
from sublayer.study.plan_file import read_plan
from sublayer.study.question import Seeds
from sublayer.study.results import RESULTS
from sublayer.study.runs import RunMaker, Runs, of_seeds, read_runs
from sublayer.system.stages import note


def run_looks(
    work: RunMaker,
    folder: Path,
    study: Study,
    seeds: Seeds,
    looking: Looking,
) -> tuple[Runs, int]:
    """Make the runs of all looks, and return them with the number of seeds that was reached.

    Where arms stop when they are decided, each look makes the runs of those alone that go on.
    """
    metric = study_metrics(study)[0]
    going_on: set[str] | None = None
    before = 0
    for look in looking.looks.planned:
        work.run(seeds.compared(look)[before:], going_on)
        _, all_runs = read_runs(folder, read_plan(folder), metric)
        runs = of_seeds(all_runs, seeds.compared(look))
        if look == looking.looks.planned[-1]:
            break
        going_on = _going_on(study, runs, look, looking)
        if not going_on:
            break
        note(f"after {look} seeds, more runs are needed of {', '.join(sorted(going_on))}")
        before = look
    return runs, look


@dataclass(frozen=True)
class Reached:
    """The progress of a comparison that stops where it is decided."""

    look: int
    """The last of which all runs have ended; the first where none has."""
    n_missing: int
    """The runs that the next look lacks."""
    is_judged: bool
    """True where the first look has ended."""


def look_reached(
    study: Study,
    runs: Runs,
    arms: Collection[str],
    seeds: Seeds,
    looking: Looking,
) -> Reached:
    """Find the look that a comparison has reached.

    ``runs`` are those that ended, of ``arms``.
    """
    ended = {arm: stage_runs.outcomes.keys() for (arm, _), stage_runs in runs.items()}
    going_on = set(arms)
    last = 0
    for look in looking.looks.planned:
        wanted = set(seeds.compared(look))
        n_missing = sum(len(wanted - ended.get(arm, set())) for arm in going_on)
        if n_missing:
            return Reached(last or look, n_missing, is_judged=last > 0)
        last = look
        going_on = _going_on(study, runs, look, looking)
        if not going_on:
            break
    return Reached(last, 0, is_judged=True)


def _going_on(
    study: Study,
    runs: Runs,
    n_seeds: int,
    looking: Looking,
) -> set[str]:
    """Return the arms that are not decided yet."""
    columns = metric_columns(study)
    values = {arm: stage_runs.values(columns[0].metric) for (arm, _), stage_runs in runs.items()}
    judged = StudyJudge(study, columns, runs, n_seeds, looking).first(values)
    hypothesis = study.question.hypothesis
    return undecided_arms(judged, values, hypothesis.contrast if hypothesis else ())


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
    """Yield the detectable difference of a study, and a warning where it exceeds the margin.

    The spread is that which its folder's earlier results found, or the one that the study states.
    Without either, that is said. ``has_items``: whether intervals allow for other test items; by
    default, where the metric follows from items.
    """
    if looks.planned[-1] < FEWEST_SEEDS:
        return
    margin = study.question.margin_of(study.name, metric)
    earlier = _earlier_spread(folder, metric) if folder is not None else None
    spread, whence, item_error = None, "", 0.0
    if earlier is not None:
        spread, item_error = earlier
        whence = "at the spread of the earlier runs"
    else:
        spread = study.question.spread_of(study.name, metric)
        whence = "at the spread stated in the study"
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
    """Compute the true difference that is found four times in five, in the unit of ``spread``.

    ``spread`` is the standard deviation over seeds of one arm, the same of all, whose seeds do not
    vary together; ``item_error`` is the standard error of a difference over the items of the test,
    which no seed takes away. Of a comparison with several looks, at the last.
    """
    n_seeds = looks.planned[-1]
    level = looks.levels(looks.planned, n_arms - 1)[n_seeds]
    return spread * planned_detectable(n_arms, n_seeds, level, item_error / spread)


def _earlier_spread(folder: Path, metric: Metric) -> tuple[float, float] | None:
    """Return the spread over seeds and the error over items of a folder's earlier results.

    The spread is that of a run, less what arms share of a seed.
    """
    try:
        earlier = read_json_object(folder / RESULTS, CheckpointError)
    except (FileNotFoundError, CheckpointError):
        return None
    if earlier.get("metric") != metric.name:
        return None
    sds = [_number(arm, "sd") for arm in _rows(earlier, "arms")]
    known = [sd for sd in sds if sd]
    if not known:
        return None
    parts = [_number(row.get("parts") or {}, "items") for row in _rows(earlier, "differences")]
    errors = [part for part in parts if part]
    variance = sum(sd**2 for sd in known) / len(known)
    # The part of a seed that all arms share cancels in differences.
    shared = min(max(_number(earlier.get("pairing") or {}, "correlation") or 0.0, 0.0), 0.99)
    return (variance * (1.0 - shared)) ** 0.5, max(errors, default=0.0)


def _rows(content: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    rows = content.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _number(row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else None
