"""Judgement of a study: scores by seed, effects of test items, verdicts, looks, power foreseen."""

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from sublayer.errors import CheckpointError
from sublayer.evaluation.effects import TestUnits, item_effects
from sublayer.evaluation.items import FromItems, Metric
from sublayer.files.parsing import Number, Typed, read_typed
from sublayer.objective.supervised.scores import SCORE
from sublayer.statistics.contrasts import (
    FEWEST_SEEDS,
    MOST_SEEDS,
    Judgement,
    RunScores,
    Tuned,
    against_baseline,
)
from sublayer.statistics.covariance import Effects
from sublayer.statistics.judge import ContrastFamily
from sublayer.statistics.looks import (
    Looks,
    fixed,
    judge_looks,
    planned_detectable,
    seeds_for,
    undecided_arms,
    unfinished,
    until_decided,
    without_verdicts,
)
from sublayer.study.arms import Chain, names_of
from sublayer.study.columns import Column, primary_column, run_scores
from sublayer.study.definition import Study
from sublayer.study.jobs.run import BEST, COLLAPSED, ERROR
from sublayer.study.question import Seeds
from sublayer.study.results import RESULTS, Cell, Further
from sublayer.study.runs import (
    Runs,
    StageRuns,
    failed_runs,
    has_ended,
    trial_losses,
)

Values = Mapping[str, Mapping[int, float]]
"""Values of a metric by arm and finished seed."""


def scores_of(
    values: Values,
    failed: Mapping[str, Collection[int]],
    units: Mapping[str, Mapping[int, TestUnits]],
) -> RunScores:
    """Arrange values, failed seeds and test units, all by arm, as scores."""
    first = next((test for by_seed in units.values() for test in by_seed.values()), None)
    return RunScores.of(
        values,
        failed=failed,
        effects={
            arm: {seed: test.effects for seed, test in by_seed.items()}
            for arm, by_seed in units.items()
        },
        n_items=None if first is None else first.n_items,
        n_documents=None if first is None else first.n_documents,
        shares=None if first is None else first.shares,
    )


def scored_elsewhere(
    runs: Runs, baseline: str, metric: Metric, against: Mapping[str, str] | None = None
) -> list[str]:
    """Return the arms scored on other items than their baseline, in order.

    The baseline is ``baseline``, or the arm in ``against``. Empty for a metric without items.
    Raises CheckpointError if items are damaged.
    """
    if metric.from_items is None:
        return []
    digests = {
        arm: table.digest
        for (arm, _), stage_runs in runs.items()
        for _, _, outcome in stage_runs.scored()
        if (table := outcome.table(metric.from_items.table)) is not None
    }
    compared = {arm: (against or {}).get(arm, baseline) for arm in digests}
    return [arm for arm in digests if digests[arm] != digests.get(compared[arm], digests[arm])]


def has_items(chain: Chain, column: Column) -> bool:
    """Return whether intervals of a column include the variance over test items."""
    return bool(column.members) or _rule_of(chain, column, "") is not None


def _joined(parts: Sequence[tuple[float, TestUnits]]) -> TestUnits:
    """Concatenate the units of several tests into units of their weighted mean."""
    if len(parts) == 1:
        return parts[0][1]
    units = [test for _, test in parts]
    shares: Effects = np.concatenate(
        [
            share * (np.full(n, 1.0 / n) if test.shares is None else test.shares)
            for share, test in parts
            for n in (len(test.effects),)
        ]
    )
    counts = [test.n_documents for test in units]
    return TestUnits(
        np.concatenate([share * test.effects for share, test in parts]),
        units[0].step,
        n_items=sum(test.n_items for test in units),
        n_documents=None if None in counts else sum(n or 0 for n in counts),
        shares=None if np.allclose(shares, shares[0], rtol=1e-9) else shares / shares.sum(),
        digest=" ".join(test.digest for test in units),
    )


def _rule_of(chain: Chain, column: Column, metric: str) -> FromItems | None:
    """Return the function from items to a column of one stage; None without one."""
    if not any(stage.name == column.stage and stage.finetunes for stage in chain.stages):
        return column.metric.from_items
    table, _, usual = column.key.partition(":")
    is_kept = table and not table.startswith(BEST)
    score = metric or usual or SCORE
    # The sum of the examples' derivatives is the score's movement, not the score.
    return FromItems(table, lambda sums: float(sums[score])) if is_kept else None


def arm_scores(
    chain: Chain, runs: Mapping[str, StageRuns], columns: Sequence[Column], *, within: int
) -> tuple[dict[str, dict[int, float]], dict[str, Cell]]:
    """Compute the scores of an arm by column and compared seed, and its cells by column.

    ``runs`` are by stage.
    """
    by_start: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    by_seed: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for stage, stage_runs in runs.items():
        for start, seeds, outcome in stage_runs.scored(within):
            for name, value in run_scores(columns, stage, outcome.test or {}).items():
                by_start[name][start].append(value)
                for seed in seeds:
                    by_seed[seed][name].append(value)
    average = statistics.median if chain.nested == "median" else statistics.fmean
    compared: dict[str, dict[int, float]] = {}
    for seed, values in sorted(by_seed.items()):
        scores = {name: average(scored) for name, scored in values.items()}
        for column in columns:
            shown = column.value_of(scores)
            if shown is not None:
                compared.setdefault(column.name, {})[seed] = shown
    cells = {}
    for name, of_seeds in compared.items():
        errors, every, collapsed = (
            [value for scored in by_start[f"{name}{what}"].values() for value in scored]
            for what in (ERROR, "", COLLAPSED)
        )
        # The standard deviation within pre-trainings, pooled.
        inner, groups = None, by_start[name].values()
        freedom = sum(len(group) - 1 for group in groups)
        if freedom and not within:
            squares = 0.0
            for group in groups:
                mean = statistics.fmean(group)
                squares += math.fsum((value - mean) ** 2 for value in group)
            inner = math.sqrt(squares / freedom)
        cells[name] = Cell(
            mean=statistics.fmean(of_seeds.values()),
            sd=statistics.stdev(of_seeds.values()) if len(of_seeds) > 1 else None,
            inner_sd=inner,
            error=statistics.fmean(errors) if errors else None,
            n_runs=len(every) or len(of_seeds),
            n_collapsed=round(sum(collapsed)),
        )
    return compared, cells


@dataclass(frozen=True)
class StudyJudge:
    """Judge of a study's columns, which are metrics in a study without stages."""

    study: Study
    columns: Sequence[Column]
    runs: Runs
    n_seeds: int
    """Compared seeds."""
    looks: Looks
    taken: tuple[int, ...] = ()
    """Numbers of seeds of earlier reports, in order."""
    n_tuning: int = 1
    """Runs of each trial, if arms were tuned."""
    is_unfinished: bool = False
    """True if planned runs are missing, which defers the verdict."""
    n_awaited: int = 0
    """Planned comparisons with arms without runs."""
    within: int = 0
    """As in ``StageRuns.scored``."""

    @property
    def chain(self) -> Chain:
        """The stages after the pre-training; empty in a plain study."""
        return self.study.chain or Chain(())

    @property
    def primary(self) -> Column:
        """The deciding column. Raises ConfigError for an unknown one."""
        return primary_column(self.study.name, self.columns, self.study.metric)

    @property
    def elsewhere(self) -> list[str]:
        """Arms of a plain study with a deciding metric scored on other items."""
        return self._elsewhere(self.primary.metric)

    def _elsewhere(self, metric: Metric) -> list[str]:
        if self.chain.stages or metric.basis != "items":
            return []
        return scored_elsewhere(self.runs, self.study.arms[0].name, metric, self.study.against)

    @cached_property
    def scored(self) -> dict[str, tuple[dict[str, dict[int, float]], dict[str, Cell]]]:
        """Scores of each arm by column and compared seed, and its cells by column."""
        return {
            arm: arm_scores(self.chain, self.stages(arm), self.columns, within=self.within)
            for arm in dict.fromkeys(arm for arm, _ in self.runs)
        }

    def stages(self, arm: str) -> dict[str, StageRuns]:
        """Return the runs of an arm by stage."""
        return {stage: runs for (of, stage), runs in self.runs.items() if of == arm}

    def values(self, column: Column, arms: Iterable[str]) -> dict[str, Mapping[int, float]]:
        """Return the scores of arms in a column, by compared seed."""
        return {arm: self.scored[arm][0].get(column.name, {}) for arm in arms}

    def first(self) -> Judgement:
        """Judge the deciding column."""
        column = self.primary
        margin = self.study.question.amount("margin", self.study.name, column.metric)
        return self._judged(column, self.values(column, self.scored), margin)

    def further(self) -> Iterator[Further]:
        """Judge the other columns: without verdicts, unless the study asks for them.

        A metric of a plain study is of the arms that it applies to, and their comparison partners.
        """
        study, names = self.study, list(self.scored)
        pairs = [{name, study.against.get(name, names[0])} for name in names]
        for column in self.columns:
            measured = names
            if not self.chain.stages:
                having = {
                    arm.name for arm in study.arms if column.metric.has_head(arm.loaded.recipe)
                }
                shown = set[str]().union(*(pair for pair in pairs if pair & having))
                measured = [name for name in names if name in shown]
            values = self.values(column, measured)
            if column is not self.primary and any(values.values()):
                judged = self._judged(column, values, None)
                if column.name not in study.question.also:
                    judged = without_verdicts(judged)
                yield Further(column.metric, judged.differences)

    def _judged(self, column: Column, values: Values, margin: float | None) -> Judgement:
        question, against = self.study.question, self.study.against
        baseline, metric = self.study.arms[0].name, column.metric
        looks, taken = self.looks, self.taken
        units = self.units(column, list(values))
        scores = scores_of(values, self.failed(values), units)
        # Without items, or with too few, only the variance over seeds is known.
        resolution = 10.0 ** -(metric.decimals + 1) / metric.factor
        if not self.chain.stages:
            steps = (test.step for by_seed in units.values() for test in by_seed.values())
            resolution = max([resolution, *steps])
        contrasts = against_baseline(values, baseline, against)
        if question.hypothesis is not None:  # unless it is of arms that are compared anyway
            contrast = question.hypothesis.as_contrast
            one, other = contrast.arm, contrast.baseline
            is_compared = other == against.get(one, baseline) or one == against.get(other, baseline)
            if not is_compared and {*contrast.weights} <= {*values}:
                contrasts.append(contrast)
        n_all = len(contrasts) + self.n_awaited
        n_more = self.n_awaited + len(question.also) * n_all
        tuned, elsewhere = {}, self._elsewhere(metric)
        # The trials of the arms whose selection metric is this one.
        for (arm, _), stage_runs in self.runs.items():
            if stage_runs.is_chosen_by(metric):
                ended = {name: loss for name, loss in stage_runs.losses.items() if loss is not None}
                tuned[arm] = Tuned(
                    tuple(ended.values()),
                    self.n_tuning,
                    compared={
                        seed: loss
                        for seed, outcome in stage_runs.seeded()
                        for loss in trial_losses([outcome], stage_runs.chosen_by)
                    },
                    runs=tuple(stage_runs.trial_runs.get(name, ()) for name in ended),
                )

        def judge_at(look: int) -> Judgement:
            family = ContrastFamily(
                scores.first(look) if looks.is_sequential else scores,
                contrasts,
                is_lower_better=metric.is_lower_better,
                n_seeds=look,
                level=looks.level_of(look, taken, len(contrasts) + n_more),
                next_level=looks.next_level(taken, len(contrasts) + n_more),
                margin=margin,
                n_awaited=n_more,
                tuned=tuned,
                resolution=resolution,
                scored_elsewhere=elsewhere,
            )
            return family.judge()

        reached = [self.n_seeds]
        if looks.is_sequential:
            reached = [look for look in looks.planned if look <= self.n_seeds]
        judged = judge_looks(judge_at, reached)
        if self.is_unfinished and self.n_seeds >= FEWEST_SEEDS:
            return unfinished(judged, self.n_seeds)
        return judged

    def failed(self, values: Values) -> dict[str, list[int]]:
        """Return the seeds of failed runs by arm."""
        failed: dict[str, list[int]] = {}
        for arm, _, seed, _ in failed_runs(self.runs):
            failed.setdefault(arm, []).append(seed)
        if not self.chain.stages:
            return failed
        # A seed's score needs runs of several stages.
        return {
            arm: [seed for seed in range(self.n_seeds) if seed not in by_seed]
            for arm, by_seed in values.items()
            if arm in failed
        }

    def units(self, column: Column, arms: Sequence[str]) -> dict[str, dict[int, TestUnits]]:
        """Return the effects of test units on a column, by arm and compared seed.

        A pre-training has the mean effects of its fine-tunings, an average the units of all
        members. Runs without items, or with other items than the first run's, are left out.
        """
        members: list[tuple[float, Column | None, str]] = []
        by_name = {column.name: column for column in self.columns}
        for member in column.members:
            names = names_of(member)
            for name in names:
                title, _, metric = name.partition(":")
                match = by_name.get(name)
                share = 1.0 / len(column.members) / len(names)
                members.append((share, match or by_name.get(title), "" if match else metric))
        moved: dict[str, dict[int, TestUnits]] = {}
        first = None
        for arm in arms:
            parts = [
                (share, self._units(arm, member, metric))
                for share, member, metric in members or [(1.0, column, "")]
            ]
            for seed in sorted(set.intersection(*(set(part) for _, part in parts))):
                units = _joined([(share, part[seed]) for share, part in parts])
                first = first or units.digest
                if units.digest == first:
                    moved.setdefault(arm, {})[seed] = units
        return moved

    def _units(self, arm: str, column: Column | None, metric: str) -> dict[int, TestUnits]:
        """Return the effects on a column of one stage, or a metric of it, by compared seed."""
        rule = _rule_of(self.chain, column, metric) if column else None
        stage_runs = self.runs.get((arm, column.stage)) if column else None
        by_seed: dict[int, list[TestUnits]] = {}
        if rule is None or stage_runs is None:
            return {}
        for _, seeds, outcome in stage_runs.scored(self.within):
            table = outcome.table(rule.table)
            try:
                units = item_effects(table, rule) if table is not None else None
            except KeyError:
                units = None  # the run has no such metric
            if units is not None:
                for seed in seeds:
                    by_seed.setdefault(seed, []).append(units)
            elif self.chain.stages:
                return {}
        if any(len({test.digest for test in units}) != 1 for units in by_seed.values()):
            return {}
        return {
            seed: replace(units[0], effects=np.mean([test.effects for test in units], axis=0))
            for seed, units in by_seed.items()
        }

    def look_reached(self, arms: Collection[str], seeds: Seeds) -> tuple[int, int, bool]:
        """Return the look that a sequential study of ``arms`` has reached.

        Returns the last look with all runs ended (else the first look), the number of missing runs
        of the next look, and whether the first look has ended.
        """
        ended = {
            arm: {seed for seed, run in stage_runs.seeded() if has_ended(run)}
            for (arm, _), stage_runs in self.runs.items()
        }
        going_on = set(arms)
        last = 0
        for look in self.looks.planned:
            wanted = set(seeds.compared(look))
            n_missing = sum(len(wanted - ended.get(arm, set())) for arm in going_on)
            if n_missing:
                return last or look, n_missing, last > 0
            last = look
            going_on = replace(self, n_seeds=look, n_awaited=0).undecided()
            if not going_on:
                break
        return last, 0, True

    def undecided(self) -> set[str]:
        """Return the arms that would get more runs for a further look."""
        hypothesis = self.study.question.hypothesis
        return undecided_arms(self.first(), self.scored, hypothesis.contrast if hypothesis else ())


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
    margin = study.question.amount("margin", study.name, metric)
    spread, item_error = study.question.amount("spread", study.name, metric), 0.0
    whence = "at the spread stated in the study"
    earlier = None
    try:
        earlier = (
            None if folder is None else read_typed(folder / RESULTS, _Earlier, CheckpointError)
        )
    except FileNotFoundError:
        pass
    except CheckpointError as error:
        yield f"the spread of the earlier runs is not used: {error}"
    sds = [arm.sd for arm in earlier.arms if arm.sd] if earlier is not None else []
    if earlier is not None and earlier.metric == metric.name and sds:
        # Without the shared part of the spread, which cancels in differences.
        variance = sum(sd**2 for sd in sds) / len(sds)
        correlation = (earlier.pairing and earlier.pairing.correlation) or 0.0
        spread = (variance * (1.0 - min(max(correlation, 0.0), 0.99))) ** 0.5
        errors = [(row.parts or {}).get("items") or 0.0 for row in earlier.differences]
        item_error = max(errors, default=0.0)
        whence = "at the spread of the earlier runs"
    n_seeds = looks.planned[-1]
    if not (metric.from_items is not None if has_items is None else has_items):
        yield (
            f"{metric.label} is not a mean over test items: intervals allow for other seeds, not "
            "for other test items"
        )
    if spread is None:
        yield UNKNOWN
        return
    n_arms = len(study.arms)
    size = _detectable(spread, n_arms=n_arms, looks=looks, item_error=item_error)
    shown = f"{size * metric.factor:.3g} {metric.difference}"
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
