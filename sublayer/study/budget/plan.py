"""The expected costs of arms, before anything is spent."""

import heapq
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sublayer.estimate.cost import Parameters, count_parameters, flops_per_token
from sublayer.estimate.micro_batch import Precision
from sublayer.runs.start_check import check_start
from sublayer.study.arms import Arm, arm_notes
from sublayer.study.budget.expected import (
    PROGRAM_BYTES,
    Clock,
    Resources,
    StepTime,
    Vocabulary,
    arm_length,
    batches,
    expected_hours,
    expected_length,
    expected_vocabulary,
    fits_disk,
    fits_memory,
    run_disk,
    scored_disk,
    size_arm,
    step_memory,
    tokens_per_step,
    too_short,
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
    """The costs of one run of an arm; None where they are unknown."""

    name: str
    parameters: Parameters
    flops_per_token: int
    """Floating-point operations of training."""
    memory_bytes: int
    """Peak of an optimizer step, the program not counted."""
    disk_bytes: int
    """Peak of the run's folder."""
    scored_bytes: int
    """The part of the run's folder that a study keeps once it is scored."""
    micro_batch_sequences: int
    precision: Precision
    step_time: StepTime | None
    match: Match | None
    steps: int | None
    tokens: int | None
    """Trained on in the whole run."""
    hours: float | None
    """Wall clock of the whole run, evaluations included."""
    fits_memory: bool | None
    """True where a step fits into the free memory."""
    fits_disk: bool | None
    """True where the folder fits on the free disk."""
    budget: ArmBudget
    """Beside that of the arm that it is compared with."""


@dataclass(frozen=True)
class Plan:
    """The arms, the rule that matches them, and notes on assumptions and on figures left open."""

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
) -> Plan:
    """Plan one run of every arm, the first of them the baseline; ``clock`` measures steps.

    ``vocabularies`` are those of the arms where no tokenizer that they name is there yet.
    Raises ConfigError for arms that cannot be matched or have no meaning.
    """
    for arm in arms:
        check_start(arm.loaded, "plan")
    if vocabularies is None:
        vocabularies = [expected_vocabulary(arm.loaded.recipe) for arm in arms]
    unmatched = []
    for arm, vocabulary in zip(arms, vocabularies, strict=True):
        unmatched.append(size_arm(arm, arm.loaded, vocabulary.size))
    # Widths are matched first: they decide the cost of a step, which the lengths depend on.
    matches = match_arms(arms, [sized.model for sized in unmatched], rule)
    all_sized = []
    for sized, match in zip(unmatched, matches, strict=True):
        loaded = apply_match(sized.arm, match)
        all_sized.append(size_arm(sized.arm, loaded, sized.vocab_size))
    times = clock(all_sized) if clock else [None] * len(all_sized)
    baseline = all_sized[0].recipe
    length = expected_length(baseline, times[0])
    steps = None if length is None else length.steps
    models = [sized.model for sized in all_sized]
    if rule in ("flops", "time"):
        seconds = [time.seconds for time in times if time is not None]
        matches = match_arms(arms, models, rule, steps=steps, step_seconds=seconds or None)
    lengths = []
    hours = []
    for index, (sized, time, match) in enumerate(zip(all_sized, times, matches, strict=True)):
        matched = match.overrides if match else ()
        arms_length = arm_length(sized, matched, time, baseline=baseline, length=length)
        # Minutes are the baseline's; the others get its steps, or its time.
        minutes = sized.recipe.train.minutes if index == 0 or rule == "time" else None
        hours.append(expected_hours(sized.recipe, arms_length, time, minutes))
        lengths.append(None if arms_length is None else arms_length.steps)
    recipes = [sized.recipe for sized in all_sized]
    tokens = [
        None if n_steps is None else n_steps * tokens_per_step(recipe)
        for n_steps, recipe in zip(lengths, recipes, strict=True)
    ]
    training_s: list[float | None] = []
    if rule == "time":
        for n_steps, time in zip(lengths, times, strict=True):
            if n_steps is None or time is None:
                training_s.append(None)
            else:
                training_s.append(n_steps * time.seconds)
    budgets = plan_budgets(arms, recipes, models, tokens, rule, seconds=training_s)
    plans = []
    for index, sized in enumerate(all_sized):
        recipe, vocab_size, n_steps = sized.recipe, sized.vocab_size, lengths[index]
        if n_steps is not None and recipe.train.minutes is None:
            recipe.train.check_keep_steps(n_steps)
        plans.append(
            ArmPlan(
                name=sized.arm.name,
                parameters=count_parameters(sized.model, recipe.objective),
                flops_per_token=flops_per_token(sized.model, recipe.data.context, recipe.objective),
                memory_bytes=step_memory(recipe, vocab_size, resources).total,
                disk_bytes=run_disk(recipe, vocab_size),
                scored_bytes=scored_disk(recipe, vocab_size),
                micro_batch_sequences=batches(recipe, resources).micro_batch_sequences,
                precision=resources.precision(recipe),
                step_time=times[index],
                match=matches[index],
                steps=n_steps,
                tokens=tokens[index],
                hours=hours[index],
                fits_memory=fits_memory(recipe, vocab_size, resources),
                fits_disk=fits_disk(recipe, vocab_size, resources),
                budget=budgets[index],
            )
        )
    notes = arm_notes(arms)
    notes += [vocabulary.note for vocabulary in vocabularies if vocabulary.note]
    for sized, time in zip(all_sized, times, strict=True):
        notes += too_short(sized, time)
    if steps is None and baseline.train.epochs is not None:
        notes.append("how many steps an epoch has is known once the text is read")
    if None in matches:
        needs_seconds = rule == "time" or baseline.train.minutes is not None
        lacking = "--measure" if needs_seconds else "train.steps or train.tokens"
        notes.append(f"matching by {rule} changes the number of steps: give {lacking} to know them")
    unique = dict.fromkeys(notes)  # arms often have the same
    return Plan(tuple(plans), rule, tuple(unique))


def plan_to_json(
    plan: Plan, resources: Resources, n_seeds: int, n_trials: int = 0, jobs: int = 1
) -> dict[str, Any]:
    """Write a plan, and what all its runs take together, as plain values.

    Each arm has ``n_trials`` runs that tune it, and one with each of ``n_seeds`` seeds. ``jobs``
    runs are made at a time.
    """
    hours = [arm.hours for arm in plan.arms if arm.hours is not None]
    n_runs = n_trials + n_seeds
    at_once = min(jobs, n_runs * len(plan.arms))
    program_bytes = PROGRAM_BYTES if resources.device == "cpu" else 0
    memory = at_once * (max(arm.memory_bytes for arm in plan.arms) + program_bytes)
    free = resources.memory_bytes
    is_single = len(plan.arms) == 1
    if is_single:
        disk = n_runs * plan.arms[0].disk_bytes
    else:
        # The runs of a comparison keep their models, and what train.keep_steps names; only those
        # that are being trained have other checkpoints.
        disk = n_runs * sum(arm.scored_bytes for arm in plan.arms)
        disk += at_once * max(arm.disk_bytes for arm in plan.arms)
    return {
        "arms": [_arm_to_json(arm, is_single=is_single) for arm in plan.arms],
        "match": None if is_single else plan.rule,
        "total": {
            "runs": n_runs * len(plan.arms),
            "jobs": at_once,
            "hours": _hours(hours, n_runs, at_once) if len(hours) == len(plan.arms) else None,
            "memory_bytes": memory,
            "fits_memory": None if free is None else memory <= free,
            "disk_bytes": disk,
            "fits_disk": None if resources.disk_bytes is None else disk <= resources.disk_bytes,
        },
        "available": {
            "device": resources.device,
            "memory_bytes": resources.memory_bytes,
            "disk_bytes": resources.disk_bytes,
        },
        "notes": list(plan.notes),
    }


def _hours(hours: Sequence[float], n_runs: int, jobs: int) -> float:
    """Add up the hours of all runs; of several at a time each begins where one has ended."""
    if jobs == 1:
        return n_runs * sum(hours)
    ends = [0.0] * jobs
    for _ in range(n_runs):
        for hours_of_run in hours:
            heapq.heapreplace(ends, ends[0] + hours_of_run)
    return max(ends)


def _arm_to_json(arm: ArmPlan, *, is_single: bool) -> dict[str, Any]:
    match = None
    if arm.match is not None and not is_single:
        match = {
            "overrides": list(arm.match.overrides),
            "mismatch": arm.match.mismatch,
            "is_unequal": arm.match.is_unequal,
        }
    return {
        "name": arm.name,
        "parameters": asdict(arm.parameters),
        "flops_per_token": arm.flops_per_token,
        "memory_bytes": arm.memory_bytes,
        "seconds_per_step": arm.step_time.seconds if arm.step_time else None,
        "is_extrapolated": not arm.step_time.is_measured if arm.step_time else None,
        "match": match,
        "excess": budget_to_json(arm.budget),
        "steps": arm.steps,
        "tokens": arm.tokens,
        "hours": arm.hours,
        "disk_bytes": arm.disk_bytes,
        "precision": arm.precision,
        "micro_batch_sequences": arm.micro_batch_sequences,
        "fits": {"memory": arm.fits_memory, "disk": arm.fits_disk},
    }
