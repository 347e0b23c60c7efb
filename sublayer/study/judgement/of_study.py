"""Judge a study's runs: which contrasts, at which looks, by which items and margin."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sublayer.objective.metric import Metric
from sublayer.study.definition import Study
from sublayer.study.execution.arm_runs import ArmRuns, ArmWork
from sublayer.study.items.collecting import collect_items
from sublayer.study.items.file_header import RunItems
from sublayer.study.judgement.contrast import Contrast
from sublayer.study.judgement.difference import CONFIDENCE, FEWEST_SEEDS, Judgement
from sublayer.study.judgement.evidence import gather_evidence, scored_elsewhere
from sublayer.study.judgement.judge import Evidence, judge
from sublayer.study.judgement.looks import Looks
from sublayer.study.judgement.seed_spread import Values
from sublayer.study.judgement.sequence import (
    judge_looks,
    undecided_arms,
    unfinished,
    without_verdicts,
)
from sublayer.study.metrics import study_metrics
from sublayer.study.question import further_contrasts
from sublayer.study.seeds import Seeds
from sublayer.system.stages import note


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
        self._names = [each.matched_arm.arm.name for each in runs]

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


def run_looks(
    work: ArmWork, study: Study, seeds: Seeds, looking: Looking
) -> tuple[list[ArmRuns], int]:
    """Make the runs of all looks, and return them with the number of seeds that was reached.

    Where arms stop when they are decided, each look makes the runs of those alone that go on.
    """
    looks = looking.looks
    if not looks.is_sequential:
        (n_seeds,) = looks.planned
        return work.run(seeds.compared(n_seeds)), n_seeds
    going_on: set[str] | None = None
    before = 0
    for look in looks.planned:
        runs = work.run(seeds.compared(look)[before:], going_on)
        going_on = _going_on(study, runs, look, looking)
        if not going_on or look == looks.planned[-1]:
            return runs, look
        note(f"{look} seeds: {', '.join(sorted(going_on))} are not decided and go on")
        before = look
    raise AssertionError("the last look ends a comparison")


@dataclass(frozen=True)
class Reached:
    """How far a comparison has come that stops where it is decided."""

    look: int
    """The last of which all runs have ended; the first where none has."""
    n_missing: int
    """The runs that the next look lacks."""
    is_judged: bool
    """Whether the first look has ended."""


def look_reached(
    study: Study, runs: list[ArmRuns], arms: Collection[str], seeds: Seeds, looking: Looking
) -> Reached:
    """Find the look that a comparison has reached; ``runs`` are those that ended, of ``arms``."""
    ended = {each.matched_arm.arm.name: each.outcomes.keys() for each in runs}
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


def _going_on(study: Study, runs: list[ArmRuns], n_seeds: int, looking: Looking) -> set[str]:
    """Return the arms that are not decided yet."""
    metrics = study_metrics(study)
    values = {}
    for each in runs:
        own = {}
        for seed, outcome in each.outcomes.items():
            value = None if outcome.test is None else outcome.test.get(metrics[0].name)
            if value is not None:
                own[seed] = float(value)
        values[each.matched_arm.arm.name] = own
    items, _ = collect_items(runs)
    judged = StudyJudge(study, metrics, runs, items, n_seeds, looking).first(values)
    hypothesis = study.question.hypothesis
    return undecided_arms(judged, values, hypothesis.contrast if hypothesis else ())


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
    return replace(evidence, effects=effects, failed=failed)
