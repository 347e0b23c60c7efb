"""The runs of a comparison's folder that have ended: what each arm chose, and what came of it."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sublayer.config.layering.layers import LoadedRecipe
from sublayer.config.layering.sources import RUN_RECIPE
from sublayer.objective.metric import Metric
from sublayer.runs.folder import RunFolder
from sublayer.study.arms import Arm
from sublayer.study.budget.match import MatchedArm
from sublayer.study.execution.arm_runs import ArmRuns, chosen_by, trial_loss, trial_losses
from sublayer.study.execution.one_run import Outcome, read_outcome, read_trial
from sublayer.study.plan_file import Plan
from sublayer.study.seeds import Seeds
from sublayer.study.tuning import Trial


def find_ended(
    place: Path,
    name: str,
    plan: Plan,
    n_trials: int,
    varied: Mapping[str, Any] | None,
    metric: Metric | None,
) -> ArmRuns | None:
    """Return the runs of an arm that have ended; None where none has, or trials are missing."""
    fields = [text.partition("=")[0].strip() for text in plan.asked.tune]
    seeds = plan.asked.seeds
    chosen = place
    losses: dict[str, float | None] = {}
    trial_runs: dict[str, Sequence[float]] = {}
    by = None
    if fields and n_trials > 1:
        by_metric = metric if plan.asked.tune_by == "metric" else None
        losses, trial_runs, by = _tried(place, plan, by_metric)
        if len(losses) < n_trials:
            return None
        chosen = place / _best(place, losses, plan.asked.seeds)
    outcomes: dict[int, Outcome] = {}
    for path in sorted(chosen.glob("seed-*"), key=lambda each: int(each.name[5:])):
        seed = int(path.name[5:])
        if fields and seed in seeds.tuning and plan.asked.tuning_seeds != [0]:
            continue
        outcome = read_outcome(path)
        if outcome is not None:
            outcomes[seed] = outcome
    begun = [each.path for each in outcomes.values() if (each.path / RUN_RECIPE).is_file()]
    if not begun:
        return None
    recipe = RunFolder(begun[0]).recipe()
    arm = Arm(name, LoadedRecipe(recipe, {}, name, ()), varied or {}, is_varied=bool(varied))
    tuned = {field: _value(recipe, field) for field in fields}
    trial = Trial(chosen.name, tuned)
    return ArmRuns(MatchedArm(arm, {}, (), 0.0), trial, outcomes, losses, trial_runs, by)


def of_seeds(runs: ArmRuns, seeds: Sequence[int]) -> ArmRuns:
    """Return the runs of the seeds that were asked for last; more may have been before."""
    outcomes = {seed: each for seed, each in runs.outcomes.items() if seed in seeds}
    return replace(runs, outcomes=outcomes)


def _tried(
    place: Path, plan: Plan, metric: Metric | None
) -> tuple[dict[str, float | None], dict[str, Sequence[float]], Metric | None]:
    """Return the scores of trials whose runs have all ended, of their runs, and by which metric.

    They are by their folders' names.
    """
    tried = {}
    for each in sorted(place.glob("*")):
        runs = [read_trial(each / f"seed-{seed}") for seed in plan.asked.tuning_seeds]
        ended = [run for run in runs if run is not None]
        if runs and len(ended) == len(runs):
            tried[each.name] = ended
    by = chosen_by(itertools.chain(*tried.values()), metric)
    losses = {name: trial_loss(runs, by) for name, runs in tried.items()}
    return losses, {name: trial_losses(runs, by) for name, runs in tried.items()}, by


def _best(place: Path, losses: Mapping[str, float | None], seeds: Seeds) -> str:
    """Return the name of the trial that was chosen.

    Of equal ones the one whose runs are compared, and of failed ones too.
    """

    def rank(name: str) -> tuple[float, bool]:
        loss = losses[name]
        is_compared = any(
            int(path.name[5:]) not in seeds.tuning for path in (place / name).glob("seed-*")
        )
        return (math.inf if loss is None else loss, not is_compared)

    return min(losses, key=rank)


def _value(recipe: Any, field: str) -> Any:
    table, _, name = field.partition(".")
    return getattr(getattr(recipe, table), name)
