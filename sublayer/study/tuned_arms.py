"""Tune the arms of a comparison, and extend a grid whose edge an arm has chosen."""

from collections.abc import Sequence

from sublayer.objective.metric import Metric
from sublayer.study.execution.arm_runs import ArmWork
from sublayer.study.folder import StudyFolder
from sublayer.study.seeds import Seeds
from sublayer.study.tuning import Trial, beyond_edges, trial_at
from sublayer.system.stages import note


def tune_arms(
    work: ArmWork,
    folder: StudyFolder,
    trials: Sequence[Trial],
    seeds: Seeds,
    metric: Metric | None,
    *,
    n_extensions: int,
) -> list[Trial]:
    """Make the trials, the same for every arm, choose each arm's best, and return all trials.

    ``metric`` chooses on validation; None: the loss.
    Where an arm's best number lies at an edge of the grid, the next one beyond is tried by every
    arm, ``n_extensions`` times at most.
    """
    extended = folder.extended()
    tried = [*trials, *(trial_at(trials, value) for value in extended)]
    new = tried
    while True:
        work.tune(new, list(seeds.tuning), metric)
        work.choose(tried)
        if len(extended) >= n_extensions:
            return tried
        added = _next(work, tried)
        if added is None:
            return tried
        note(f"the best lies at an edge of the grid: every arm tries {added.name} too")
        (value,) = added.settings.values()
        folder.add_extended(value)
        extended = folder.extended()
        new = [added]
        tried = [*tried, added]


def _next(work: ArmWork, tried: Sequence[Trial]) -> Trial | None:
    """Return the next trial beyond an edge that fits the recipes of all arms; None without any."""
    for trial in beyond_edges(work.chosen, tried):
        problem = work.problem_of(trial)
        if not problem:
            return trial
        note(f"the best lies at an edge of the grid, and {trial.name} is not tried: {problem}")
    return None
