"""A study judged: scores by seed, effects of test items, failed runs, tuning, and the verdicts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sublayer.evaluation.items import FromItems, ItemTable, Sums
from sublayer.objective.metric import Metric
from sublayer.objective.supervised.scores import SCORE, moved_by
from sublayer.statistics.difference import FEWEST_SEEDS, Judgement
from sublayer.statistics.items import (
    FEWEST_DOCUMENTS,
    FEWEST_UNITS,
    Effects,
    shares_of,
    units_of,
)
from sublayer.statistics.judge import judge
from sublayer.statistics.looks import Looks, judge_looks, unfinished, without_verdicts
from sublayer.statistics.scores import Scores, Tuned, against_baseline
from sublayer.study.columns import Column
from sublayer.study.definition import Study
from sublayer.study.jobs.run import BEST
from sublayer.study.question import further_contrasts
from sublayer.study.runs import Runs, failed_runs, trial_losses
from sublayer.study.stages import Chain, names_of

_STEP = 1e-3
Values = Mapping[str, Mapping[int, float]]
"""A metric's value of each seed that finished, by arm."""


@dataclass(frozen=True)
class TestUnits:
    """The effects of a test's units on a metric."""

    effects: Effects
    step: float
    """Its resolution: the most that one count more or less moves it, in its unit."""
    n_items: int
    n_documents: int | None
    """None where items belong to no documents."""
    shares: Effects | None = None
    """``[U]``, the share of the test in each unit; None: units are of equal size."""


def item_effects(table: ItemTable, from_items: FromItems) -> TestUnits | None:
    """Compute how much the metric of a table moves with each unit of its test, around 0.

    That is the derivative of the metric with respect to the weight of a unit (the infinitesimal
    jackknife, Jaeckel 1972): the variance of the metric over tests of as many units is
    ``sum(effects**2) * N / (N - 1)``. Units are documents, three at least, items where they belong
    to none, and stretches of neighbouring items of one or two documents. None where there are
    fewer than ``FEWEST_UNITS`` items or stretches, or the metric has no value.
    """
    documents = None if table.documents is None else np.asarray(table.documents)
    labels, n_units = units_of(table.n_items, documents)
    n_documents = None if documents is None else len(np.unique(documents))
    if n_units < FEWEST_UNITS and (n_documents or 0) < FEWEST_DOCUMENTS:
        return None
    sums = table.sums()
    value = from_items.value(sums)
    if not np.isfinite(value):
        return None
    effects = np.zeros(n_units)
    step = 0.0
    for name, column in table.columns.items():
        numbers = column.reshape(len(column), -1).astype(np.float64)  # [N, K]
        is_count = np.issubdtype(column.dtype, np.integer)
        for k in range(numbers.shape[1]):
            slope = _slope(from_items, sums, name, k, is_count=is_count)
            if is_count:
                step = max(step, abs(slope))
            if slope:
                effects += slope * np.bincount(labels, numbers[:, k], n_units)
    centred: Effects = effects - effects.mean()
    if not np.isfinite(centred).all():
        return None
    shares = shares_of(labels, documents)
    return TestUnits(centred, step, table.n_items, n_documents, shares)


def _slope(from_items: FromItems, sums: Sums, name: str, k: int, *, is_count: bool) -> float:
    """Compute the derivative of a metric with respect to one sum, from values to either side."""
    total = np.atleast_1d(np.array(sums[name], dtype=np.float64))
    step = abs(float(total[k])) * _STEP
    if is_count:
        step = max(1.0, round(step))
    elif not step:
        return 0.0
    low, high = float(total[k]) - step, float(total[k]) + step
    low = float(total[k]) if low < 0.0 <= total[k] else low
    values = []
    for moved in (low, high):
        total[k] = moved
        shaped = total.reshape(np.shape(sums[name]))
        values.append(from_items.value({**sums, name: shaped.copy()}))
    return (values[1] - values[0]) / (high - low)


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
        for arm, trials in self.tuned.items():
            kept = {seed: trials.compared[seed] for seed in scores.seeds if seed in trials.compared}
            tuned[arm] = replace(trials, compared=kept)
        return replace(self, scores=scores, tuned=tuned)


def scores_of(
    values: Values,
    failed: Mapping[str, Collection[int]],
    units: Mapping[str, Mapping[int, TestUnits]],
) -> Scores:
    """Arrange values, failed seeds and test units, all by arm, as scores."""
    effects = {
        arm: {seed: each.effects for seed, each in by_seed.items()}
        for arm, by_seed in units.items()
    }
    first = next((each for by_seed in units.values() for each in by_seed.values()), None)
    return Scores.of(
        values,
        failed=failed,
        effects=effects,
        n_items=None if first is None else first.n_items,
        n_documents=None if first is None else first.n_documents,
        shares=None if first is None else first.shares,
    )


def scored_elsewhere(
    runs: Runs, baseline: str, metric: Metric, against: Mapping[str, str] | None = None
) -> list[str]:
    """Return the arms that a metric scored on other items than their baseline, in order.

    That is ``baseline``, or their arm in ``against``. A metric that follows from no items tells of
    none. Raises CheckpointError where items are damaged.
    """
    if metric.from_items is None:
        return []
    against = against or {}
    digests: dict[str, str] = {}
    for (arm, _), stage_runs in runs.items():
        for _, _, outcome in stage_runs.scored():
            table = outcome.table(metric.from_items.table)
            if table is not None:
                digests[arm] = table.digest
    return [
        arm
        for arm, digest in digests.items()
        if digest != digests.get(against.get(arm, baseline), digest)
    ]


def has_items(chain: Chain, column: Column) -> bool:
    """Return whether intervals of a column allow for other test items."""
    return bool(column.members) or _rule_of(chain, column, "") is not None


def _members(column: Column) -> Iterator[tuple[float, str]]:
    """Yield the names of an average's members with their shares; of another column its own."""
    if not column.members:
        yield 1.0, column.name
    for member in column.members:
        names = names_of(member)
        for name in names:
            yield 1.0 / len(column.members) / len(names), name


def _joined(parts: Sequence[tuple[float, TestUnits]]) -> TestUnits:
    """Return the units of a mean over tests, one test after another, each with its share."""
    if len(parts) == 1:
        return parts[0][1]
    units = [each for _, each in parts]
    sizes = []
    for share, each in parts:
        equal = np.full(len(each.effects), 1.0 / len(each.effects))
        sizes.append(share * (equal if each.shares is None else each.shares))
    shares: Effects = np.concatenate(sizes)
    counts = [each.n_documents for each in units]
    return replace(
        units[0],
        effects=np.concatenate([share * each.effects for share, each in parts]),
        n_items=sum(each.n_items for each in units),
        n_documents=None if None in counts else sum(n or 0 for n in counts),
        shares=None if np.allclose(shares, shares[0], rtol=1e-9) else shares / shares.sum(),
    )


def _rule_of(chain: Chain, column: Column, metric: str) -> FromItems | None:
    """Return how a column of one stage follows from its items; None where it does not."""
    if not any(stage.name == column.stage and stage.finetunes for stage in chain.stages):
        return column.metric.from_items
    table, _, usual = column.key.partition(":")
    is_kept = table and not table.startswith(BEST)
    return moved_by(metric or usual or SCORE, table) if is_kept else None


@dataclass(frozen=True)
class Looking:
    """The looks of a study, planned and taken."""

    looks: Looks
    taken: tuple[int, ...] = ()
    """The numbers of seeds that it was reported with, in turn."""
    n_tuning: int = 1
    """The runs of each trial, where arms were tuned."""
    is_unfinished: bool = False
    """True where runs of planned seeds are missing: then there is no verdict yet."""


_Marked = tuple[TestUnits, str]
"""Test units, and the checksum of their items."""


@dataclass(frozen=True)
class StudyJudge:
    """Judges the columns of a study, or its metrics, by its runs; the first column decides."""

    study: Study
    columns: Sequence[Column]
    runs: Runs
    n_seeds: int
    """Those that are compared."""
    looking: Looking
    n_awaited: int = 0
    """Arms that have no run yet."""
    within: int = field(default=0, kw_only=True)
    """As ``StageRuns.scored`` has it."""

    @property
    def chain(self) -> Chain:
        """The stages after the pre-training; a plain study has none."""
        return self.study.chain or Chain(())

    def first(self, values: Values) -> Judgement:
        """Judge the column that decides."""
        column = self.columns[0]
        margin = self.study.question.margin_of(self.study.name, column.metric)
        return self._judged(column, values, margin)

    def further(self, column: Column, values: Values) -> Judgement:
        """Judge another column: without a verdict, unless the study asks for one."""
        judged = self._judged(column, values, None)
        if column.name in self.study.question.also:
            return judged
        return without_verdicts(judged)

    def _judged(self, column: Column, values: Values, margin: float | None) -> Judgement:
        study, question, baseline = self.study, self.study.question, self.study.arms[0].name
        looks, taken = self.looking.looks, self.looking.taken
        evidence = self.evidence(column, values)
        contrasts = against_baseline(values, baseline, study.against)
        contrasts += further_contrasts(question, values, baseline, study.against)
        n_all = len(contrasts) + self.n_awaited
        n_more = self.n_awaited + len(question.also) * n_all
        n_comparisons = len(contrasts) + n_more
        next_level = looks.next_level(taken, n_comparisons)

        def judged_by(evidence: Evidence, n_seeds: int) -> Judgement:
            return judge(
                evidence.scores,
                contrasts,
                is_lower_better=column.metric.is_lower_better,
                n_seeds=n_seeds,
                level=looks.level_of(n_seeds, taken, n_comparisons),
                next_level=next_level,
                margin=margin,
                n_awaited=n_more,
                tuned=evidence.tuned,
                resolution=evidence.resolution,
                scored_elsewhere=evidence.scored_elsewhere,
            )

        if not looks.is_sequential:
            judged = judged_by(evidence, self.n_seeds)
        else:
            reached = [look for look in looks.planned if look <= self.n_seeds]
            judged = judge_looks(lambda look: judged_by(evidence.first(look), look), reached)
        if self.looking.is_unfinished and self.n_seeds >= FEWEST_SEEDS:
            return unfinished(judged, self.n_seeds)
        return judged

    def evidence(self, column: Column, values: Values) -> Evidence:
        """Gather the evidence on a column, of which ``values`` are the scores.

        Where a metric follows from no items, or too few, the variance over seeds alone is known.
        """
        study, metric = self.study, column.metric
        units = self.units(column, list(values))
        failed: dict[str, list[int]] = {}
        for arm, _, seed, _ in failed_runs(self.runs):
            failed.setdefault(arm, []).append(seed)
        resolution = 10.0 ** -(metric.decimals + 1) / metric.factor
        elsewhere: Collection[str] = ()
        if study.chain is None:
            steps = (each.step for by_seed in units.values() for each in by_seed.values())
            resolution = max([resolution, *steps])
            if metric.basis == "items":
                elsewhere = scored_elsewhere(self.runs, study.arms[0].name, metric, study.against)
        else:
            # A seed's score takes runs of several stages.
            failed = {
                arm: [seed for seed in range(self.n_seeds) if seed not in by_seed]
                for arm, by_seed in values.items()
                if arm in failed
            }
        tuned = {}
        for (arm, _), stage_runs in self.runs.items():
            if not stage_runs.is_chosen_by(metric):
                continue
            ended = {name: loss for name, loss in stage_runs.losses.items() if loss is not None}
            runs_of = tuple(stage_runs.trial_runs.get(name, ()) for name in ended)
            compared = {}
            for seed, outcome in stage_runs.seeded():
                for loss in trial_losses([outcome], stage_runs.chosen_by):
                    compared[seed] = loss
            tuned[arm] = Tuned(tuple(ended.values()), self.looking.n_tuning, compared, runs_of)
        return Evidence(scores_of(values, failed, units), tuned, resolution, elsewhere)

    def units(self, column: Column, arms: Sequence[str]) -> dict[str, dict[int, TestUnits]]:
        """Return how much each test unit moves a column, by arm and by the seed that is compared.

        Of a pre-training that is the mean over its fine-tunings, and of an average that of its
        members, one after another. Runs that kept no items, or others than the first, have none.
        """
        by_name = {column.name: column for column in self.columns}
        moved: dict[str, dict[int, TestUnits]] = {}
        first = None
        for arm in arms:
            parts: list[tuple[float, dict[int, _Marked]]] = []
            for share, name in _members(column):
                title, _, metric = name.partition(":")
                known = column if name == column.name else by_name.get(name)
                if known is not None:
                    metric = ""
                else:
                    known = by_name.get(title)
                marked = {} if known is None else self._marked(arm, known, metric)
                parts.append((share, marked))
            for seed in sorted(set.intersection(*(set(part) for _, part in parts))):
                mark = " ".join(part[seed][1] for _, part in parts)
                first = first or mark
                if mark == first:
                    pieces = [(share, part[seed][0]) for share, part in parts]
                    moved.setdefault(arm, {})[seed] = _joined(pieces)
        return moved

    def _marked(self, arm: str, column: Column, metric: str) -> dict[int, _Marked]:
        """Return the effects on a column of one stage, or on a metric of it, by compared seed."""
        rule = _rule_of(self.chain, column, metric)
        stage_runs = self.runs.get((arm, column.stage))
        by_seed: dict[int, list[_Marked]] = {}
        for _, seeds, outcome in stage_runs.scored(self.within) if stage_runs and rule else ():
            assert rule is not None, "nothing is scored without"
            table = outcome.table(rule.table)
            try:
                units = item_effects(table, rule) if table is not None else None
            except KeyError:
                units = None  # the run has no such metric
            if table is not None and units is not None:
                for seed in seeds:
                    by_seed.setdefault(seed, []).append((units, table.digest))
            elif self.chain.stages:
                return {}
        by_compared = {}
        for seed, marked in by_seed.items():
            if len({mark for _, mark in marked}) != 1:
                return {}
            mean = np.mean([units.effects for units, _ in marked], axis=0)
            by_compared[seed] = replace(marked[0][0], effects=mean), marked[0][1]
        return by_compared
