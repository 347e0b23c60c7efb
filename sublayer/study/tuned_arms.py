"""Tune the arms of a comparison, and extend a grid whose edge an arm has chosen."""

from collections.abc import Sequence

from sublayer.objective.metric import Metric
from sublayer.study.execution.arm_runs import ArmWork
from sublayer.study.folder import StudyFolder
from sublayer.study.seeds import Seeds
from sublayer.study.tuning import Trial, beyond_edge, trial_at
from sublayer.system.stages import note


def tune_arms(
    work: ArmWork,
    folder: StudyFolder,
    trials: Sequence[Trial],
    seeds: Seeds,
    metric: Metric,
    *,
    n_extensions: int,
) -> list[Trial]:
    """Make the trials, the same for every arm, choose each arm's best, and return all trials.

    Where an arm's best number lies at an edge of the grid, the next one beyond is tried by every
    arm, ``n_extensions`` times at most.
    """
    extended = folder.extended()
    tried = [*trials, *(trial_at(trials, value) for value in extended)]
    new = tried
    while True:
        work.tune(new, list(seeds.tuning), metric)
        work.choose(tried)
        n_left = n_extensions - len(extended)
        added = beyond_edge(work.chosen, tried) if n_left > 0 else None
        if added is None:
            return tried
        note(f"the best lies at an edge of the grid: every arm tries {added.name} too")
        (value,) = added.settings.values()
        folder.add_extended(value)
        extended = folder.extended()
        new = [added]
        tried = [*tried, added]
