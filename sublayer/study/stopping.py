"""Comparisons that stop where they are decided: which arms go on after a look."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sublayer.statistics.looks import undecided_arms
from sublayer.study.definition import Study
from sublayer.study.execution.arm_runs import ArmRuns, ArmWork
from sublayer.study.items.collecting import collect_items
from sublayer.study.items.file_header import RunItems
from sublayer.study.judging import Looking, StudyJudge
from sublayer.study.metrics import study_metrics
from sublayer.study.seeds import Seeds
from sublayer.system.stages import note


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
        going_on = _going_on(study, runs, collect_items(runs)[0], look, looking)
        if not going_on or look == looks.planned[-1]:
            return runs, look
        note(f"after {look} seeds, more runs are needed of {', '.join(sorted(going_on))}")
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
    study: Study,
    runs: Sequence[ArmRuns],
    items: Sequence[RunItems],
    arms: Collection[str],
    seeds: Seeds,
    looking: Looking,
) -> Reached:
    """Find the look that a comparison has reached.

    ``runs`` are those that ended, of ``arms``, and ``items`` are those of their tests.
    """
    ended = {each.matched_arm.arm.name: each.outcomes.keys() for each in runs}
    going_on = set(arms)
    last = 0
    for look in looking.looks.planned:
        wanted = set(seeds.compared(look))
        n_missing = sum(len(wanted - ended.get(arm, set())) for arm in going_on)
        if n_missing:
            return Reached(last or look, n_missing, is_judged=last > 0)
        last = look
        going_on = _going_on(study, runs, items, look, looking)
        if not going_on:
            break
    return Reached(last, 0, is_judged=True)


def _going_on(
    study: Study,
    runs: Sequence[ArmRuns],
    items: Sequence[RunItems],
    n_seeds: int,
    looking: Looking,
) -> set[str]:
    """Return the arms that are not decided yet."""
    metrics = study_metrics(study)
    values = {each.matched_arm.arm.name: each.values(metrics[0]) for each in runs}
    judged = StudyJudge(study, metrics, runs, items, n_seeds, looking).first(values)
    hypothesis = study.question.hypothesis
    return undecided_arms(judged, values, hypothesis.contrast if hypothesis else ())
