"""The plan of stages: runs, operations, time, memory and disk, before anything is spent."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sublayer.config.load import vary
from sublayer.config.recipe import Recipe
from sublayer.config.supervised import SupervisedObjective
from sublayer.data.tasks.encoded import TRAVERSAL_NAMES
from sublayer.errors import DataError
from sublayer.estimate.micro_batch import FLOAT32_BYTES
from sublayer.study.arms import Arm
from sublayer.study.budget.expected import (
    PROGRAM_BYTES,
    Clock,
    Resources,
    Vocabulary,
    expected_vocabulary,
)
from sublayer.study.budget.match import Budget, apply_match, excess_over
from sublayer.study.budget.plan import ArmPlan, Plan, make_plan
from sublayer.study.definition import Study
from sublayer.study.stage_recipes import StageRecipes, stage_trials, steps_of_tasks
from sublayer.study.stages import PRETRAINING, Chain, Stage


@dataclass(frozen=True)
class StagePlan:
    """The cost of the runs of a stage that some arms share."""

    stage: str
    after: str
    """Its start, in words."""
    arms: tuple[str, ...]
    n_runs: int
    each: ArmPlan
    """One of them."""

    @property
    def hours(self) -> float | None:
        """Of all of them, one after another; None where it is unknown."""
        return None if self.each.hours is None else self.n_runs * self.each.hours

    @property
    def model_bytes(self) -> int:
        """Bytes that they leave on the disk."""
        return self.n_runs * self.each.scored_bytes


def plan_stages(
    study: Study,
    plan: Plan,
    resources: Resources,
    clock: Clock | None,
    *,
    n_seeds: int,
) -> list[StagePlan]:
    """Plan all stages of a chain, those that arms share once; ``plan`` is that of its arms.

    Only the rows of tasks are counted, and only where their folder is named. Raises ConfigError for
    recipes that do not fit together.
    """
    chain = study.chain
    assert chain is not None, "a study without stages is none of chains"
    arms = {each.name: each for each in plan.arms}
    loaded = {arm.name: arm.loaded for arm in study.arms}
    for arm in study.arms:
        match = arms[arm.name].match
        if match is not None:
            loaded[arm.name] = apply_match(arm, match)
    with TemporaryDirectory(prefix="sublayer-chain-") as scratch:
        recipes = StageRecipes(study.name, chain, loaded, Path(scratch))

        def texts_of(arm: str, stage: Stage | None) -> list[str]:
            # Texts are taken to be the same where their paths are.
            if stage is None or stage.finetunes:
                return []
            return [str(recipes.planned(arm, stage.name).recipe.data.path)]

        keys = recipes.keys(texts_of)
        plans = []
        for name in (PRETRAINING, *(stage.name for stage in chain.stages)):
            by_key: dict[str, list[str]] = {}
            for sharer, by_stage in keys.items():
                if name in by_stage:
                    by_key.setdefault(by_stage[name], []).append(sharer)
            for sharing in by_key.values():
                if name == PRETRAINING:
                    each = arms[sharing[0]]
                    plans.append(StagePlan(name, "", tuple(sharing), n_seeds, each))
                else:
                    plans.append(
                        _plan_stage(recipes, chain.stage(name), sharing, resources, clock, n_seeds)
                    )
    return plans


def _plan_stage(
    recipes: StageRecipes,
    stage: Stage,
    arms: Sequence[str],
    resources: Resources,
    clock: Clock | None,
    n_seeds: int,
) -> StagePlan:
    """Plan the runs of a stage that arms share."""
    n_trials = len(stage_trials(recipes, stage))
    n_runs = n_seeds * recipes.chain.n_runs(stage) + (n_trials if n_trials > 1 else 0)
    loaded = recipes.planned(arms[0], stage.name)
    steps = _steps(loaded.recipe, stage)
    if steps is not None:
        loaded = vary(loaded, {"train.steps": steps}, origin="study")
    size = expected_vocabulary(recipes.arms[arms[0]].recipe).size
    objective = loaded.recipe.objective
    if isinstance(objective, SupervisedObjective) and objective.format == "traversal":
        size += len(TRAVERSAL_NAMES)
    shared = Arm(f"{', '.join(arms)}: {stage.name}", loaded, {})
    timed = None if stage.ensemble else clock
    [each] = make_plan([shared], "none", resources, timed, vocabularies=[Vocabulary(size)]).arms
    if stage.ensemble:
        # Its members' weights in memory and no training; its answers cost what those after a
        # training do, which is not counted.
        each = replace(
            each,
            memory_bytes=len(stage.ensemble) * FLOAT32_BYTES * each.parameters.total,
            disk_bytes=0,
            scored_bytes=0,
            step_time=None,
            steps=0,
            tokens=0,
            hours=0.0,
        )
    return StagePlan(stage.name, stage.start, tuple(arms), n_runs, each)


def _steps(recipe: Recipe, stage: Stage) -> int | None:
    """Count the steps of a stage of tasks by its rows; None where they are not counted."""
    if not stage.finetunes or recipe.train.steps is not None:
        return None
    path = recipe.data.path
    if not isinstance(path, str) or not Path(path).expanduser().exists():
        return None
    try:
        return steps_of_tasks(recipe)
    except DataError:
        return None  # the comparison says it


def stages_to_json(plans: Sequence[StagePlan], resources: Resources, jobs: int) -> dict[str, Any]:
    """Write the stages, and what all runs take together, as plain values."""
    known = [plan.hours for plan in plans if plan.hours is not None]
    n_runs = sum(plan.n_runs for plan in plans)
    at_once = min(jobs, n_runs)
    program_bytes = PROGRAM_BYTES if resources.device == "cpu" else 0
    memory = at_once * (max(plan.each.memory_bytes for plan in plans) + program_bytes)
    disk = sum(plan.model_bytes for plan in plans)
    disk += at_once * max(plan.each.disk_bytes for plan in plans)
    free_memory, free_disk = resources.memory_bytes, resources.disk_bytes
    return {
        "stages": [
            {
                "stage": plan.stage,
                "after": plan.after,
                "arms": list(plan.arms),
                "runs": plan.n_runs,
                "steps": plan.each.steps,
                "seconds_per_step": plan.each.step_time.seconds if plan.each.step_time else None,
                "hours": plan.hours,
                "memory_bytes": plan.each.memory_bytes,
                "disk_bytes": plan.model_bytes,
            }
            for plan in plans
        ],
        "total": {
            "runs": n_runs,
            "jobs": at_once,
            "hours": sum(known) / at_once if len(known) == len(plans) else None,
            "memory_bytes": memory,
            "fits_memory": None if free_memory is None else memory <= free_memory,
            "disk_bytes": disk,
            "fits_disk": None if free_disk is None else disk <= free_disk,
        },
    }


def with_stages(plan: Plan, stages: Sequence[StagePlan], chain: Chain) -> Plan:
    """Return the plan of a chain's arms, whose budgets are those of all stages.

    Of two arms that are both pre-trained a stage whose length is not known is left out: it is the
    smallest part. Where that is the pre-training, they differ by their operations for a token.
    """
    parameters = {arm.name: arm.parameters.total for arm in plan.arms}
    spent: dict[str, dict[str, float | None]] = {}
    for arm in plan.arms:
        spent[arm.name] = {} if chain.of(arm.name).pretrains else {PRETRAINING: 0.0}
        for stage in stages:
            if arm.name in stage.arms:
                tokens, per_token = stage.each.tokens, stage.each.flops_per_token
                spent[arm.name][stage.stage] = None if tokens is None else float(tokens * per_token)
    arms = []
    for arm in plan.arms:
        other = arm.budget.against
        if other is None:
            arms.append(arm)
            continue
        operations = arm.budget.planned.operations
        mine, others = spent[arm.name], spent[other]
        are_pretrained = chain.of(arm.name).pretrains and chain.of(other).pretrains
        both = {
            stage: (spent_here, theirs)
            for stage, spent_here in mine.items()
            if spent_here is not None and (theirs := others.get(stage)) is not None
        }
        if both.keys() == mine.keys() | others.keys() or (are_pretrained and PRETRAINING in both):
            sums = [sum(each) for each in zip(*both.values(), strict=True)] or [0.0, 0.0]
            budgets = map(Budget, (parameters[arm.name], parameters[other]), sums)
            operations = excess_over(*budgets).operations
        elif not are_pretrained:
            operations = None
        planned = replace(arm.budget.planned, operations=operations)
        arms.append(replace(arm, budget=replace(arm.budget, planned=planned)))
    return replace(plan, arms=tuple(arms))
