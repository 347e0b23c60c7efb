"""Judge a study's runs: which contrasts, at which looks, by which items and margin."""

from collections.abc import Sequence
from dataclasses import dataclass

from sublayer.objective.metric import Metric
from sublayer.statistics.difference import FEWEST_SEEDS, Judgement
from sublayer.statistics.judge import judge
from sublayer.statistics.looks import Looks, judge_looks, unfinished, without_verdicts
from sublayer.statistics.scores import Contrast, against_baseline
from sublayer.study.definition import Study
from sublayer.study.evidence import Evidence, Values, gather_evidence, scored_elsewhere
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
            values,
            self._runs,
            self._items,
            metric,
            scored_elsewhere=elsewhere,
            n_tuning=self._looking.n_tuning,
        )
        further, n_more = self._more(values)
        contrasts = [*against_baseline(values, self._baseline, self._study.against), *further]
        n_comparisons = len(contrasts) + n_more
        looks, taken = self._looking.looks, self._looking.taken
        next_level = looks.next_level(taken, n_comparisons)

        def judged_by(evidence: Evidence, n_seeds: int) -> Judgement:
            return judge(
                evidence.scores,
                contrasts,
                is_lower_better=metric.is_lower_better,
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
            judged = judged_by(evidence, self._n_seeds)
        else:
            reached = [look for look in looks.planned if look <= self._n_seeds]
            judged = judge_looks(lambda look: judged_by(evidence.first(look), look), reached)
        return self._unless_unfinished(judged)

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
