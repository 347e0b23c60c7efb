"""Cost plan of stages: runs, operations, time, memory and disk, before anything is spent."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sublayer.config.objective import SupervisedObjective
from sublayer.data.tasks.encoded import TRAVERSAL_NAMES
from sublayer.errors import DataError
from sublayer.model.estimates import FLOAT32_BYTES
from sublayer.study.arms import PRETRAINING, Arm, Chain, Stage
from sublayer.study.budget.expected import Clock, Resources, Vocabulary, expected_vocabulary
from sublayer.study.budget.match import Budget, apply_match
from sublayer.study.budget.plan import ArmPlan, BudgetPlan, make_plan, total_to_json
from sublayer.study.definition import Study
from sublayer.study.stage_recipes import StageRecipes, steps_of_tasks


@dataclass(frozen=True)
class StagePlan:
    """The cost of the runs of a stage shared by some arms."""

    stage: str
    after: str
    """Its start, in words."""
    arms: tuple[str, ...]
    n_runs: int
    run: ArmPlan
    """Cost of one of them."""


def plan_stages(
    study: Study,
    plan: BudgetPlan,
    resources: Resources,
    clock: Clock | None,
    *,
    n_seeds: int,
) -> list[StagePlan]:
    """Plan all stages of a chain, shared ones once; ``plan`` is its arms' plan.

    Only the rows of tasks are counted, and only if their folder is named. Raises ConfigError for
    recipes that do not fit together.
    """
    chain = study.chain
    assert chain is not None, "a study with stages has a chain"
    arms = {planned.name: planned for planned in plan.arms}
    loaded = {arm.name: apply_match(arm, arms[arm.name].match) for arm in study.arms}
    with TemporaryDirectory(prefix="sublayer-chain-") as scratch:
        recipes = StageRecipes(study.name, chain, loaded, Path(scratch))

        def texts_of(arm: str, stage: Stage) -> list[str]:
            # Texts count as equal if their paths are.
            if stage.name == PRETRAINING or stage.finetunes:
                return []
            return [str(recipes.planned(arm, stage.name).recipe.data.path)]

        keys, plans = recipes.keys(texts_of), []
        for stage in chain.all_stages:
            sharing: dict[str, list[str]] = {}
            for arm, of_arm in keys.items():
                if stage.name in of_arm:
                    sharing.setdefault(of_arm[stage.name], []).append(arm)
            n_trials = len(recipes.trials(stage))
            n_runs = n_seeds * chain.n_runs(stage) + (n_trials if n_trials > 1 else 0)
            for sharers in sharing.values():
                arm_plan = arms[sharers[0]]
                if stage.name != PRETRAINING:
                    arm_plan = _plan_run(recipes, stage, sharers, resources, clock)
                plans.append(StagePlan(stage.name, stage.start, tuple(sharers), n_runs, arm_plan))
    return plans


def _plan_run(
    recipes: StageRecipes,
    stage: Stage,
    arms: Sequence[str],
    resources: Resources,
    clock: Clock | None,
) -> ArmPlan:
    """Plan a run of a stage shared by arms."""
    loaded = recipes.planned(arms[0], stage.name)
    data, steps = loaded.recipe.data, None
    is_there = isinstance(data.path, str) and Path(data.path).expanduser().exists()
    if stage.finetunes and is_there:
        with suppress(DataError):  # reported by the comparison
            steps = steps_of_tasks(loaded.recipe)
    if steps is not None:
        loaded = loaded.vary({"train.steps": steps}, origin="study")
    size = expected_vocabulary(recipes.arms[arms[0]].recipe).size
    objective = loaded.recipe.objective
    if isinstance(objective, SupervisedObjective) and objective.format == "traversal":
        size += len(TRAVERSAL_NAMES)
    shared = Arm(f"{', '.join(arms)}: {stage.name}", loaded, {})
    timed = None if stage.ensemble else clock
    [arm_plan] = make_plan([shared], "none", resources, timed, vocabularies=[Vocabulary(size)]).arms
    if not stage.ensemble:
        return arm_plan
    # Its members' weights in memory and no training; the cost of answers is not counted, as after a
    # training.
    memory = len(stage.ensemble) * FLOAT32_BYTES * arm_plan.parameters.total
    return replace(
        arm_plan,
        memory_bytes=memory,
        disk_bytes=0,
        scored_bytes=0,
        seconds_per_step=None,
        is_extrapolated=None,
        steps=0,
        tokens=0,
        hours=0.0,
    )


def stages_to_json(plans: Sequence[StagePlan], resources: Resources, jobs: int) -> dict[str, Any]:
    """Write the stages, and the total of all runs, as plain values."""
    stages: list[dict[str, Any]] = []
    for plan in plans:
        arm_plan, hours = plan.run, plan.run.hours
        stages.append(
            {
                "stage": plan.stage,
                "after": plan.after,
                "arms": list(plan.arms),
                "runs": plan.n_runs,
                "steps": arm_plan.steps,
                "seconds_per_step": arm_plan.seconds_per_step,
                "hours": None if hours is None else plan.n_runs * hours,
                "memory_bytes": arm_plan.memory_bytes,
                "disk_bytes": plan.n_runs * arm_plan.scored_bytes,
            }
        )
    total = total_to_json([(plan.run, plan.n_runs) for plan in plans], resources, jobs, None)
    hours_known = [stage["hours"] for stage in stages if stage["hours"] is not None]
    if len(hours_known) == len(plans):
        total["hours"] = sum(hours_known) / total["jobs"]
    return {"stages": stages, "total": total}


def with_stages(plan: BudgetPlan, stages: Sequence[StagePlan], chain: Chain) -> BudgetPlan:
    """Return the plan of a chain's arms, with budgets over all stages.

    For two pre-trained arms a stage of unknown length is left out: it is the smallest part. If that
    is the pre-training, they differ by their operations per token.
    """
    spent: dict[str, dict[str, float | None]] = {}
    for arm in plan.arms:
        spent[arm.name] = {} if chain.of(arm.name).pretrains else {PRETRAINING: 0.0}
        for stage in stages:
            if arm.name in stage.arms:
                tokens, per_token = stage.run.tokens, stage.run.flops_per_token
                spent[arm.name][stage.stage] = None if tokens is None else float(tokens * per_token)
    arms = []
    for arm in plan.arms:
        other = arm.excess.against
        if other is not None:
            mine, others = spent[arm.name], spent[other]
            are_pretrained = chain.of(arm.name).pretrains and chain.of(other).pretrains
            both = [
                name for name in mine if mine[name] is not None and others.get(name) is not None
            ]
            operations = arm.excess.planned.operations if are_pretrained else None
            if {*both} == {*mine, *others} or (are_pretrained and PRETRAINING in both):
                one, two = (sum(costs[name] or 0.0 for name in both) for costs in (mine, others))
                operations = Budget(1, one).excess_over(Budget(1, two)).operations
            planned = replace(arm.excess.planned, operations=operations)
            arm = replace(arm, excess=replace(arm.excess, planned=planned))
        arms.append(arm)
    return replace(plan, arms=tuple(arms))
