"""Evidence of a comparison: scores of runs, failed ones, test items, trials of tuning."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sublayer.objective.metric import Metric
from sublayer.statistics.scores import Scores
from sublayer.statistics.tuning import Tuned
from sublayer.study.execution.arm_runs import ArmRuns, trial_loss
from sublayer.study.items.file_header import RunItems
from sublayer.study.items.item_effects import TestUnits, item_effects

Values = Mapping[str, Mapping[int, float]]
"""A metric's value of each seed that finished, by arm."""


@dataclass(frozen=True)
class Evidence:
    """The scores that a metric is judged by, and what else its intervals depend on."""

    scores: Scores
    tuned: Mapping[str, Tuned] = field(default_factory=dict)
    """By arm, the trials of those that were tuned by this metric."""
    resolution: float = 0.0
    """The smallest step of the metric, in its unit."""
    scored_elsewhere: Collection[str] = ()
    """Arms that were scored on other items than their baseline."""

    def first(self, n_seeds: int) -> "Evidence":
        """Return the evidence of the first ``n_seeds`` seeds."""
        scores = self.scores.first(n_seeds)
        tuned = {}
        for arm, own in self.tuned.items():
            compared = {seed: own.compared[seed] for seed in scores.seeds if seed in own.compared}
            tuned[arm] = replace(own, compared=compared)
        return replace(self, scores=scores, tuned=tuned)


def gather_evidence(
    values: Values,
    runs: Sequence[ArmRuns],
    kept: Sequence[RunItems],
    metric: Metric,
    *,
    scored_elsewhere: Collection[str] = (),
    n_tuning: int = 1,
) -> Evidence:
    """Gather the evidence on a metric; ``kept`` are the items of the runs.

    ``n_tuning`` are the runs of each trial, where arms were tuned. Where a metric follows from no
    items, or too few, the variance over seeds alone is known.
    """
    failed = {
        each.matched_arm.arm.name: tuple(
            seed for seed, outcome in each.outcomes.items() if outcome.failure
        )
        for each in runs
    }
    units = _units(kept, metric)
    scores = scores_of(values, failed, units)
    steps = [each.step for own in units.values() for each in own.values()]
    shown = 10.0 ** -(metric.decimals + 1) / metric.factor
    resolution = max([shown, *steps])
    return Evidence(scores, _tuned(runs, metric, n_tuning), resolution, scored_elsewhere)


def scores_of(
    values: Values,
    failed: Mapping[str, Collection[int]],
    units: Mapping[str, Mapping[int, TestUnits]],
) -> Scores:
    """Arrange values, failed seeds and test units, all by arm, as scores."""
    known = [each for own in units.values() for each in own.values()]
    effects = {
        arm: {seed: each.effects for seed, each in own.items()} for arm, own in units.items()
    }
    return Scores.of(
        values,
        failed=failed,
        effects=effects,
        n_items=known[0].n_items if known else None,
        n_documents=known[0].n_documents if known else None,
        shares=known[0].shares if known else None,
    )


def _tuned(runs: Sequence[ArmRuns], metric: Metric, n_tuning: int) -> Mapping[str, Tuned]:
    """Return what the trials of arms scored that were tuned by the metric, of each that ended."""
    tuned = {}
    for each in runs:
        if each.is_chosen_by(metric):
            names = [name for name, loss in each.losses.items() if loss is not None]
            scores = tuple(loss for loss in each.losses.values() if loss is not None)
            runs_of = tuple(each.trial_runs.get(name, ()) for name in names)
            compared = {
                seed: loss
                for seed, outcome in each.outcomes.items()
                if (loss := trial_loss([outcome], each.chosen_by)) is not None
            }
            tuned[each.matched_arm.arm.name] = Tuned(scores, n_tuning, compared, runs_of)
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


def _units(kept: Sequence[RunItems], metric: Metric) -> dict[str, dict[int, TestUnits]]:
    """Return how runs' test units move the metric, by arm and seed."""
    rule = metric.from_items
    found: dict[str, dict[int, TestUnits]] = {}
    if rule is None:
        return found
    digest = None
    for run in kept:
        table = run.items.tables.get(rule.table)
        if table is None:
            continue
        # Runs that were scored on other items than the first share none with it.
        digest = digest or table.digest
        if table.digest != digest:
            continue
        units = item_effects(table, rule)
        if units is not None:
            found.setdefault(run.arm, {})[run.seed] = units
    return found
