"""Judge a study's runs: which contrasts, at which looks, by which items and margin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sublayer.objective.metric import Metric
from sublayer.study.definition import Study
from sublayer.study.execution.arm_runs import ArmRuns, ArmWork
from sublayer.study.items.collecting import collect_items
from sublayer.study.items.file_header import RunItems
from sublayer.study.judgement.contrast import Contrast
from sublayer.study.judgement.difference import FEWEST_SEEDS, Judgement
from sublayer.study.judgement.evidence import gather_evidence, scored_elsewhere
from sublayer.study.judgement.judge import Evidence, judge
from sublayer.study.judgement.looks import Looks
from sublayer.study.judgement.seed_spread import Values
from sublayer.study.judgement.sequence import judge_looks, undecided_arms, without_verdicts
from sublayer.study.metrics import study_metrics
from sublayer.study.seeds import Seeds
from sublayer.system.stages import note


@dataclass(frozen=True)
class Looking:
    """When a study is judged, and how far it has come."""

    looks: Looks
    taken: tuple[int, ...] = ()
    """The numbers of seeds that it was reported with, in turn."""
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
        looks = self._looking.looks
        if looks.is_sequential:
            return looks.planned
        return tuple(dict.fromkeys((*self._looking.taken, self._n_seeds)))

    @property
    def hypothesis_of(self) -> tuple[str, str] | None:
        """The names of the difference that decides on the hypothesis."""
        hypothesis = self._study.question.hypothesis
        if hypothesis is None:
            return None
        contrast = hypothesis.as_contrast
        return contrast.arm, contrast.baseline

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
            self._runs, self._items, metric, margin=margin, scored_elsewhere=elsewhere
        )
        further, n_more = self._more(values)
        n_comparisons = self._n_comparisons(values) + len(further) + n_more
        levels = self._looking.looks.levels(self.looks, n_comparisons)

        def judge_at(look: int) -> Judgement:
            return judge(
                self._baseline,
                _of_first(values, self._seeds[:look]),
                metric,
                planned_seeds=look,
                against=self._study.against,
                further=further,
                n_awaited=n_more,
                evidence=_evidence_of_first(evidence, self._seeds[:look]),
                level=levels[look],
            )

        if self._n_seeds < FEWEST_SEEDS:
            levels[self._n_seeds] = levels.get(self._n_seeds, 0.05)
            return judge_at(self._n_seeds)
        if self._looking.looks.is_sequential:
            reached = [look for look in self._looking.looks.planned if look <= self._n_seeds]
            judged = judge_looks(judge_at, reached or [self._looking.looks.planned[0]])
        else:
            judged = judge_at(self._n_seeds)
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
        further = []
        hypothesis = self._study.question.hypothesis
        if hypothesis is not None:
            contrast = hypothesis.as_contrast
            expected = self._study.against.get(contrast.arm, self._baseline)
            is_one_of_them = contrast.baseline and contrast.baseline == expected
            if not is_one_of_them and set(contrast.weights) <= set(values):
                further.append(contrast)
        n_metrics = len(self._study.question.also)
        n_own = self._n_comparisons(values) + len(further)
        return further, self._n_awaited + n_metrics * n_own

    def _unless_unfinished(self, judged: Judgement) -> Judgement:
        if not self._looking.is_unfinished:
            return judged
        note = f"unfinished: judged once all {self._n_seeds} seeds have ended"
        return without_verdicts(judged, note)


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
