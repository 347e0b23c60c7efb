"""The plan of stages: runs, operations, time, memory and disk, before anything is spent."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sublayer.config.load import LoadedRecipe, vary
from sublayer.config.recipe import Recipe
from sublayer.config.supervised import SupervisedObjective
from sublayer.data.tasks.marks import TRAVERSAL_NAMES
from sublayer.errors import DataError
from sublayer.estimate.micro_batch import FLOAT32_BYTES
from sublayer.study.arm_runs import StageRuns
from sublayer.study.arms import Arm
from sublayer.study.budget.capacity import PROGRAM_BYTES, Resources
from sublayer.study.budget.excess import Budget, excess_over
from sublayer.study.budget.expected import Clock, Vocabulary, expected_vocabulary
from sublayer.study.budget.match import apply_match
from sublayer.study.budget.plan import ArmPlan, Plan, make_plan
from sublayer.study.definition import Study
from sublayer.study.stage_recipes import (
    StageRecipes,
    ensemble_key,
    stage_key,
    stage_trials,
    steps_of_tasks,
)
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
    loaded = {
        arm.name: _matched(arm, each) for arm, each in zip(study.arms, plan.arms, strict=True)
    }
    with StageRecipes(study.name, chain, loaded) as recipes:
        plans = _pretrainings(chain, plan, loaded, n_seeds)
        for stage in chain.stages:
            plans += _stage(recipes, stage, resources, clock, n_seeds)
    return plans


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


def _matched(arm: Arm, plan: ArmPlan) -> LoadedRecipe:
    return arm.loaded if plan.match is None else apply_match(arm, plan.match)


def _pretrainings(
    chain: Chain, plan: Plan, loaded: Mapping[str, LoadedRecipe], n_seeds: int
) -> list[StagePlan]:
    by_key: dict[str, list[ArmPlan]] = {}
    for each in plan.arms:
        if chain.of(each.name).pretrains:
            key = stage_key(loaded[each.name].recipe, "", [])
            by_key.setdefault(key, []).append(each)
    return [
        StagePlan(PRETRAINING, "", tuple(arm.name for arm in own), n_seeds, own[0])
        for own in by_key.values()
    ]


def _stage(
    recipes: StageRecipes,
    stage: Stage,
    resources: Resources,
    clock: Clock | None,
    n_seeds: int,
) -> list[StagePlan]:
    chain = recipes.chain
    by_key: dict[str, list[str]] = {}
    for arm in recipes.arms:
        by_key.setdefault(_key(recipes, arm, stage.name), []).append(arm)
    planned = {arm: recipes.planned(arm, stage.name) for arm in recipes.arms}
    n_trials = len(stage_trials(recipes, list(recipes.arms), stage))
    n_runs = n_seeds * chain.n_runs(stage) + (n_trials if n_trials > 1 else 0)
    plans = []
    for arms in by_key.values():
        loaded = planned[arms[0]]
        steps = _steps(loaded.recipe, stage)
        if steps is not None:
            loaded = vary(loaded, {"train.steps": steps}, origin="study")
        shared = Arm(f"{', '.join(arms)}: {stage.name}", loaded, {})
        size = _vocabulary(recipes, arms[0], loaded.recipe)
        own_clock = None if stage.ensemble else clock
        [each] = make_plan([shared], "none", resources, own_clock, vocabularies=[size]).arms
        if stage.ensemble:
            each = _untrained(each, len(stage.ensemble))
        plans.append(StagePlan(stage.name, stage.start, tuple(arms), n_runs, each))
    return plans


def _untrained(member: ArmPlan, n_members: int) -> ArmPlan:
    """Return the cost of an ensemble: its members' weights in memory, and no training.

    The cost of its answers is not counted, as after a training.
    """
    return replace(
        member,
        memory_bytes=n_members * FLOAT32_BYTES * member.parameters.total,
        disk_bytes=0,
        scored_bytes=0,
        step_time=None,
        steps=0,
        tokens=0,
        hours=0.0,
    )


def _key(recipes: StageRecipes, arm: str, stage: str) -> str:
    """Return what tells whether arms share a stage, whose texts are taken to be the same."""
    recipe = recipes.planned(arm, stage).recipe
    if stage == PRETRAINING:
        start = recipes.chain.of(arm).start
        return stage_key(recipe, _key(recipes, start, PRETRAINING) if start else "", [])
    if recipes.starts_fresh(arm, stage):
        return stage_key(recipe, "", [])
    own = recipes.chain.stage(stage)
    if own.ensemble:
        return ensemble_key([_key(recipes, *member) for member in own.members(arm)])
    texts = [] if own.finetunes else [str(recipe.data.path)]
    parent = _key(recipes, arm, own.after)
    return stage_key(recipe, parent, texts, from_step=own.from_step)


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


def _vocabulary(recipes: StageRecipes, arm: str, recipe: Recipe) -> Vocabulary:
    """Return the size of the pre-training's vocabulary with the additions of the format."""
    size = expected_vocabulary(recipes.arms[arm].recipe)
    objective = recipe.objective
    adds = isinstance(objective, SupervisedObjective) and objective.format == "traversal"
    added = len(TRAVERSAL_NAMES) if adds else 0
    return Vocabulary(size.size + added)


def trained_operations(chain: Chain, runs: Mapping[str, StageRuns]) -> float | None:
    """Add up the operations of an arm's stages, by the tokens that their runs were trained on.

    ``runs`` are an arm's by stage; of each stage it is the median over its runs. None where a stage
    has no run that has ended. Ensembles train nothing.
    """
    total = 0.0
    for name, own in runs.items():
        if name != PRETRAINING and chain.stage(name).ensemble:
            continue
        spent = []
        for outcomes in own.outcomes.values():
            for outcome in outcomes:
                record = outcome.record or {}
                if record.get("flops_per_token") is not None:
                    spent.append(float(record["tokens"] * record["flops_per_token"]))
        if not spent:
            return None
        total += statistics.median(spent)
    return total


def with_stages(plan: Plan, stages: Sequence[StagePlan], chain: Chain) -> Plan:
    """Return the plan of a chain's arms, whose budgets are those of all stages.

    Of two arms that are both pre-trained a stage whose length is not known is left out: it is the
    smallest part. Where that is the pre-training, they differ by what they take for a token.
    """
    parameters = {arm.name: arm.parameters.total for arm in plan.arms}
    spent = {arm.name: _planned(arm, stages, chain) for arm in plan.arms}
    arms = []
    for arm in plan.arms:
        other = arm.budget.against
        if other is None:
            arms.append(arm)
            continue
        operations = arm.budget.planned.operations
        own, others = spent[arm.name], spent[other]
        are_pretrained = chain.of(arm.name).pretrains and chain.of(other).pretrains
        known = _known(own) & _known(others)
        if known == own.keys() | others.keys() or (are_pretrained and PRETRAINING in known):
            mine = Budget(parameters[arm.name], sum(own[stage] or 0.0 for stage in known))
            theirs = Budget(parameters[other], sum(others[stage] or 0.0 for stage in known))
            operations = excess_over(mine, theirs).operations
        elif not are_pretrained:
            operations = None
        planned = replace(arm.budget.planned, operations=operations)
        arms.append(replace(arm, budget=replace(arm.budget, planned=planned)))
    return replace(plan, arms=tuple(arms))


def _known(spent: Mapping[str, float | None]) -> set[str]:
    return {stage for stage, operations in spent.items() if operations is not None}


def _planned(arm: ArmPlan, stages: Sequence[StagePlan], chain: Chain) -> dict[str, float | None]:
    """Return the operations of each stage of an arm, None where its length is not known."""
    found: dict[str, float | None] = {}
    if not chain.of(arm.name).pretrains:
        found[PRETRAINING] = 0.0
    for stage in stages:
        if arm.name in stage.arms:
            tokens, per_token = stage.each.tokens, stage.each.flops_per_token
            found[stage.stage] = None if tokens is None else float(tokens * per_token)
    return found
