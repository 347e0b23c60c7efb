"""What a comparison is judged by beside its values: failed runs, and what each item scored."""

from collections.abc import Collection, Mapping, Sequence

from sublayer.objective.metric import Metric
from sublayer.statistics.items import ArmEffects
from sublayer.statistics.judge import Evidence
from sublayer.statistics.tuning import Tuned
from sublayer.study.execution.arm_runs import ArmRuns, trial_loss
from sublayer.study.items.file_header import RunItems
from sublayer.study.items.item_effects import TestUnits, item_effects


def gather_evidence(
    runs: Sequence[ArmRuns],
    kept: Sequence[RunItems],
    metric: Metric,
    *,
    margin: float | None = None,
    scored_elsewhere: Collection[str] = (),
    n_tuning: int = 1,
) -> Evidence:
    """Gather what a metric is judged by; ``kept`` are the items of the runs.

    ``n_tuning`` are the runs of each trial, where arms were tuned.

    Where a metric follows from no items, or too few, seeds alone are known to spread.
    """
    failed = {
        each.matched_arm.arm.name: tuple(
            seed for seed, outcome in each.outcomes.items() if outcome.failure
        )
        for each in runs
    }
    effects, step = _effects(kept, metric)
    shown = 10.0 ** -(metric.decimals + 1) / metric.factor
    return Evidence(
        effects=effects or None,
        failed=failed,
        scored_elsewhere=scored_elsewhere,
        margin=margin,
        tuned=_tuned(runs, metric, n_tuning),
        resolution=max(shown, step),
    )


def _tuned(runs: Sequence[ArmRuns], metric: Metric, n_tuning: int) -> Mapping[str, Tuned]:
    """Return what the trials of arms scored that were tuned by the metric, of each that ended."""
    tuned = {}
    for each in runs:
        if each.is_chosen_by(metric):
            scores = tuple(loss for loss in each.losses.values() if loss is not None)
            compared = {
                seed: loss
                for seed, outcome in each.outcomes.items()
                if (loss := trial_loss([outcome], each.chosen_by)) is not None
            }
            tuned[each.matched_arm.arm.name] = Tuned(scores, n_tuning, compared)
    return tuned


def scored_elsewhere(
    kept: Sequence[RunItems],
    baseline: str,
    metric: Metric,
    against: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the arms that a metric scored on other items than their baseline, in order.

    That is ``baseline``, or their arm in ``against``. A metric that follows from no items tells of
    none.
    """
    if metric.from_items is None:
        return []
    against = against or {}
    digests: dict[str, str] = {}
    for run in kept:
        table = run.items.tables.get(metric.from_items.table)
        if table is not None:
            digests[run.arm] = table.digest
    found = []
    for arm, digest in digests.items():
        expected = digests.get(against.get(arm, baseline), digest)
        if digest != expected:
            found.append(arm)
    return found


def _effects(kept: Sequence[RunItems], metric: Metric) -> tuple[Mapping[str, ArmEffects], float]:
    """Return the effects of the items of runs by arm and seed, and the metric's step."""
    rule = metric.from_items
    if rule is None:
        return {}, 0.0
    found: dict[str, dict[int, TestUnits]] = {}
    digest = None
    for run in kept:
        table = run.items.tables.get(rule.table)
        if table is None:
            continue
        # What was scored on other items than the first run shares none with it.
        digest = digest or table.digest
        if table.digest != digest:
            continue
        units = item_effects(table, rule)
        if units is not None:
            found.setdefault(run.arm, {})[run.seed] = units
    effects = {
        arm: {seed: units.effects for seed, units in own.items()} for arm, own in found.items()
    }
    steps = [units.step for own in found.values() for units in own.values()]
    return effects, max(steps, default=0.0)
