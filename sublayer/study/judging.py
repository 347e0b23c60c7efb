"""Judge a study's runs: which contrasts, at which looks, by which items and margin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sublayer.objective.metric import Metric
from sublayer.statistics.contrast import Contrast
from sublayer.statistics.difference import CONFIDENCE, FEWEST_SEEDS, Judgement
from sublayer.statistics.judge import Evidence, judge
from sublayer.statistics.looks import Looks
from sublayer.statistics.seeds import Values
from sublayer.statistics.sequence import (
    judge_looks,
    unfinished,
    without_verdicts,
)
from sublayer.study.definition import Study
from sublayer.study.evidence import gather_evidence, scored_elsewhere
from sublayer.study.execution.arm_runs import ArmRuns
from sublayer.study.items.file_header import RunItems
from sublayer.study.question import further_contrasts


@dataclass(frozen=True)
class Looking:
    """When a study is judged, and how far it has come."""

    looks: Looks
    taken: tuple[int, ...] = ()
    """The numbers of seeds that it was reported with, in turn."""
    n_tuning: int = 1
    """The runs of each trial, where arms were tuned."""
    is_unfinished: bool = False
    """Whether runs of the seeds that were planned are missing: then there is no verdict yet."""


class StudyJudge:
    """Judges the metrics of a study."""

    def __init__(
        self,
        study: Study,
        metrics: Sequence[Metric],
        runs: Sequence[ArmRuns],
        items: Sequence[RunItems],
        n_seeds: int,
        looking: Looking,
        n_awaited: int = 0,
    ) -> None:
        self._study = study
        self._metrics = metrics
        self._runs = runs
        self._items = items
        self._n_seeds = n_seeds
        self._looking = looking
        self._n_awaited = n_awaited
        self._baseline = runs[0].matched_arm.arm.name

    @property
    def looks(self) -> tuple[int, ...]:
        """The numbers of seeds of all looks, planned or taken."""
        return self._looking.looks.all_after(self._looking.taken)

    @property
    def hypothesis_of(self) -> tuple[str, str] | None:
        """The names of the difference that decides on the hypothesis."""
        hypothesis = self._study.question.hypothesis
        return None if hypothesis is None else hypothesis.names

    def first(self, values: Values) -> Judgement:
        """Judge the metric that decides."""
        metric = self._metrics[0]
        margin = self._study.question.margin_of(self._study.name, metric)
        return self._judged(metric, values, margin)

    def further(self, metric: Metric, values: Values) -> Judgement:
        """Judge another metric: without a verdict, unless the study asks for one."""
        judged = self._judged(metric, values, None)
        if metric.name in self._study.question.also:
            return judged
        return without_verdicts(judged)

    def _judged(self, metric: Metric, values: Values, margin: float | None) -> Judgement:
        elsewhere = (
            scored_elsewhere(self._items, self._baseline, metric, self._study.against)
            if metric.basis == "items"
            else ()
        )
        evidence = gather_evidence(
            self._runs,
            self._items,
            metric,
            margin=margin,
            scored_elsewhere=elsewhere,
            n_tuning=self._looking.n_tuning,
        )
        further, n_more = self._more(values)
        n_comparisons = self._n_comparisons(values) + len(further) + n_more
        levels = self._looking.looks.levels(self._looking.taken, n_comparisons)

        def judged_by(values: Values, evidence: Evidence, n_seeds: int) -> Judgement:
            return judge(
                self._baseline,
                values,
                metric,
                planned_seeds=n_seeds,
                against=self._study.against,
                further=further,
                n_awaited=n_more,
                evidence=evidence,
                level=levels.get(n_seeds, 1.0 - CONFIDENCE),
            )

        def judge_at(look: int) -> Judgement:
            seeds = self._seeds[:look]
            return judged_by(_of_first(values, seeds), _evidence_of_first(evidence, seeds), look)

        if not self._looking.looks.is_sequential:
            judged = judged_by(values, evidence, self._n_seeds)
        else:
            reached = [look for look in self._looking.looks.planned if look <= self._n_seeds]
            judged = judge_looks(judge_at, reached)
        return self._unless_unfinished(judged)

    @property
    def _seeds(self) -> Sequence[int]:
        """All seeds, in the order in which they are run."""
        return sorted({seed for each in self._runs for seed in each.outcomes})

    def _n_comparisons(self, values: Values) -> int:
        against = self._study.against
        return sum(against.get(arm, self._baseline) != arm for arm in values)

    def _more(self, values: Values) -> tuple[list[Contrast], int]:
        """Return contrasts beside those of arms, and how many comparisons are counted besides."""
        question = self._study.question
        further = further_contrasts(question, values, self._baseline, self._study.against)
        n_own = self._n_comparisons(values) + len(further)
        return further, self._n_awaited + len(question.also) * (n_own + self._n_awaited)

    def _unless_unfinished(self, judged: Judgement) -> Judgement:
        if not self._looking.is_unfinished or self._n_seeds < FEWEST_SEEDS:
            return judged
        return unfinished(judged, self._n_seeds)


def _of_first(values: Values, seeds: Sequence[int]) -> dict[str, dict[int, float]]:
    chosen = set(seeds)
    return {
        arm: {seed: value for seed, value in own.items() if seed in chosen}
        for arm, own in values.items()
    }


def _evidence_of_first(evidence: Evidence, seeds: Sequence[int]) -> Evidence:
    chosen = set(seeds)
    effects = None
    if evidence.effects is not None:
        effects = {
            arm: {seed: each for seed, each in own.items() if seed in chosen}
            for arm, own in evidence.effects.items()
        }
    failed: Mapping[str, Sequence[int]] = {
        arm: [seed for seed in own if seed in chosen]
        for arm, own in (evidence.failed or {}).items()
    }
    tuned = {
        arm: replace(
            own, compared={seed: own.compared[seed] for seed in seeds if seed in own.compared}
        )
        for arm, own in (evidence.tuned or {}).items()
    }
    return replace(evidence, effects=effects, failed=failed, tuned=tuned)
