"""Expected costs of arms, before anything is spent."""

import heapq
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from sublayer.errors import ConfigError
from sublayer.estimate.cost import Parameters, count_parameters, flops_per_token
from sublayer.model.estimates import Precision
from sublayer.runs.start_check import check_start
from sublayer.study.arms import Arm, arm_notes
from sublayer.study.budget.expected import (
    Clock,
    Resources,
    Vocabulary,
    arm_length,
    batches,
    expected_hours,
    expected_length,
    expected_vocabulary,
    run_disk,
    scored_disk,
    size_arm,
    step_memory,
    tokens_per_step,
)
from sublayer.study.budget.match import (
    ArmBudget,
    Match,
    Rule,
    apply_match,
    budget_to_json,
    match_arms,
    plan_budgets,
)


@dataclass(frozen=True)
class ArmPlan:
    """The costs of one run of an arm; None if unknown."""

    name: str
    parameters: Parameters
    flops_per_token: int
    """Floating-point operations of training."""
    memory_bytes: int
    """Peak of an optimizer step, without the program."""
    seconds_per_step: float | None
    """Seconds of an optimizer step."""
    is_extrapolated: bool | None
    """True if a smaller step was timed."""
    match: Match | None
    excess: ArmBudget
    """Excess over the comparison partner."""
    steps: int | None
    tokens: int | None
    """Tokens of the complete training."""
    hours: float | None
    """Wall clock of the run, evaluations included."""
    disk_bytes: int
    """Peak of the run's folder."""
    scored_bytes: int
    """The part of the run's folder that a study keeps after scoring."""
    precision: Precision
    micro_batch_sequences: int


@dataclass(frozen=True)
class BudgetPlan:
    """The arms, the matching rule, and notes on assumptions and unknown figures."""

    arms: tuple[ArmPlan, ...]
    rule: Rule
    notes: tuple[str, ...]


def make_plan(
    arms: Sequence[Arm],
    rule: Rule,
    resources: Resources,
    clock: Clock | None = None,
    *,
    vocabularies: Sequence[Vocabulary] | None = None,
) -> BudgetPlan:
    """Plan one run of every arm, the first of them the baseline; ``clock`` measures steps.

    ``vocabularies`` are the arms' if their tokenizers do not exist yet. Raises ConfigError for arms
    that cannot be matched or have no meaning.
    """
    for arm in arms:
        check_start(arm.loaded, "plan")
    vocabularies = vocabularies or [expected_vocabulary(arm.loaded.recipe) for arm in arms]
    sizes = [vocabulary.size for vocabulary in vocabularies]
    unmatched = [size_arm(arm, size).model for arm, size in zip(arms, sizes, strict=True)]
    # Widths are matched first: they determine the cost of a step, and so the lengths.
    matches = match_arms(arms, unmatched, rule)
    matched = [
        replace(arm, loaded=apply_match(arm, match))
        for arm, match in zip(arms, matches, strict=True)
    ]
    all_sized = [size_arm(arm, size) for arm, size in zip(matched, sizes, strict=True)]
    models = [sized.model for sized in all_sized]
    times = clock(all_sized) if clock else [None] * len(arms)
    notes = [*arm_notes(arms), *(vocab.note for vocab in vocabularies if vocab.note)]
    baseline = all_sized[0].recipe
    length = steps = None
    with suppress(ConfigError):  # its minutes hold no step: noted below
        length = expected_length(baseline, times[0])
        steps = None if length is None else length.steps
    if rule in ("flops", "time"):
        known = [time.seconds for time in times if time is not None]
        matches = match_arms(arms, models, rule, steps=steps, step_seconds=known or None)
    plans: list[ArmPlan] = []
    seconds: list[float | None] = []
    for sized, time, match in zip(all_sized, times, matches, strict=True):
        recipe, vocab_size, span = sized.recipe, sized.vocab_size, None
        matched_settings = match.overrides if match else ()
        # Minutes are the baseline's; other arms get its steps, or its time.
        minutes = None if plans and rule != "time" else recipe.train.minutes
        try:
            span = arm_length(sized, matched_settings, time, baseline=baseline, length=length)
            if recipe.train.minutes is not None:
                expected_length(recipe, time)
        except ConfigError as error:
            notes.append(f"{sized.arm.name}: {error}")
        n_steps = None if span is None else span.steps
        seconds.append(n_steps * time.seconds if n_steps and time and rule == "time" else None)
        if n_steps is not None and recipe.train.minutes is None:
            recipe.train.check_keep_steps(n_steps)
        plans.append(
            ArmPlan(
                name=sized.arm.name,
                parameters=count_parameters(sized.model, recipe.objective),
                flops_per_token=flops_per_token(sized.model, recipe.data.context, recipe.objective),
                memory_bytes=step_memory(recipe, vocab_size, resources).total,
                seconds_per_step=None if time is None else time.seconds,
                is_extrapolated=None if time is None else not time.is_measured,
                match=match,
                excess=ArmBudget(sized.arm.name, None),
                steps=n_steps,
                tokens=n_steps and n_steps * tokens_per_step(recipe),
                hours=expected_hours(recipe, span, time, minutes),
                disk_bytes=run_disk(recipe, vocab_size),
                scored_bytes=scored_disk(recipe, vocab_size),
                precision=resources.precision(recipe),
                micro_batch_sequences=batches(recipe, resources).micro_batch_sequences,
            )
        )
    budgets = plan_budgets(matched, models, [plan.steps for plan in plans], rule, seconds=seconds)
    plans = [replace(plan, excess=budget) for plan, budget in zip(plans, budgets, strict=True)]
    if steps is None and baseline.train.epochs is not None:
        notes.append("how many steps an epoch has is known once the text is read")
    if None in matches:
        needs_seconds = rule == "time" or baseline.train.minutes is not None
        lacking = "--measure" if needs_seconds else "train.steps or train.tokens"
        notes.append(f"matching by {rule} changes the number of steps: give {lacking} to know them")
    return BudgetPlan(tuple(plans), rule, tuple(dict.fromkeys(notes)))  # arms often have the same


def plan_to_json(
    plan: BudgetPlan, resources: Resources, n_seeds: int, n_trials: int = 0, jobs: int = 1
) -> dict[str, Any]:
    """Write a plan, and the total of its runs, as plain values.

    Each arm has ``n_trials`` tuning runs, and one per seed of ``n_seeds``. ``jobs`` is the number
    of runs in parallel.
    """
    n_runs = n_trials + n_seeds
    known = [arm.hours for arm in plan.arms if arm.hours is not None]
    hours = None
    if len(known) == len(plan.arms):
        hours = n_runs * sum(known)
        if jobs > 1:  # each run begins at the end of another
            ends = [0.0] * min(jobs, n_runs * len(plan.arms))
            for hours_of_run in n_runs * known:
                heapq.heapreplace(ends, ends[0] + hours_of_run)
            hours = max(ends)
    is_single = len(plan.arms) == 1
    total = total_to_json([(arm, n_runs) for arm in plan.arms], resources, jobs, hours)
    if is_single:
        disk = n_runs * plan.arms[0].disk_bytes
        total |= {"disk_bytes": disk, "fits_disk": resources.stores(disk)}
    arms = []
    for arm in plan.arms:
        match = None
        if arm.match is not None and not is_single:
            match = {**asdict(arm.match), "is_unequal": arm.match.is_unequal}
            match["overrides"] = list(arm.match.overrides)
        fits = {
            "memory": resources.holds(arm.memory_bytes + resources.program_bytes),
            "disk": resources.stores(arm.disk_bytes),
        }
        written = {
            **asdict(arm),
            "match": match,
            "excess": budget_to_json(arm.excess),
            "fits": fits,
        }
        del written["scored_bytes"]
        arms.append(written)
    return {
        "arms": arms,
        "match": None if is_single else plan.rule,
        "total": total,
        "available": {
            "device": resources.device,
            "memory_bytes": resources.memory_bytes,
            "disk_bytes": resources.disk_bytes,
        },
        "notes": list(plan.notes),
    }


def total_to_json(
    plans: Sequence[tuple[ArmPlan, int]], resources: Resources, jobs: int, hours: float | None
) -> dict[str, Any]:
    """Write the memory and disk of all runs as plain values; ``plans`` have their numbers of runs.

    Runs keep their models, and checkpoints of ``train.keep_steps``; only active ones have other
    checkpoints.
    """
    n_runs = sum(n for _, n in plans)
    at_once = min(jobs, n_runs)
    memory = at_once * (max(plan.memory_bytes for plan, _ in plans) + resources.program_bytes)
    disk = sum(n * plan.scored_bytes for plan, n in plans)
    disk += at_once * max(plan.disk_bytes for plan, _ in plans)
    return {
        "runs": n_runs,
        "jobs": at_once,
        "hours": hours,
        "memory_bytes": memory,
        "fits_memory": resources.holds(memory),
        "disk_bytes": disk,
        "fits_disk": resources.stores(disk),
    }
