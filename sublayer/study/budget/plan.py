"""The expected costs of arms, before anything is spent."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import Length
from sublayer.estimate.cost import Parameters, count_parameters, flops_per_token
from sublayer.estimate.micro_batch import Precision
from sublayer.runs.start_check import check_start
from sublayer.study.arms import Arm, arm_notes
from sublayer.study.budget.capacity import (
    batches,
    copies_in_memory,
    fits_disk,
    fits_memory,
    run_disk,
    scored_disk,
    smallest_change,
    step_memory,
)
from sublayer.study.budget.excess import ArmBudget
from sublayer.study.budget.expected_length import (
    arm_length,
    expected_hours,
    expected_length,
    tokens_per_step,
    too_short,
)
from sublayer.study.budget.match import Match, Rule, apply_match, match_arms
from sublayer.study.budget.planned import plan_budgets
from sublayer.study.budget.resources import Resources
from sublayer.study.budget.sized_arm import Clock, Sized, StepTime, size_arm
from sublayer.study.budget.vocabulary import Vocabulary, expected_vocabulary
from sublayer.study.definition import DEFAULT_SEEDS, Study


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
    """What a study keeps of the run's folder once it is scored."""
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
    """Whether a step fits into what is free."""
    fits_disk: bool | None
    """Whether the folder fits on what is free."""
    change: tuple[str, ...] | None
    """The settings that change least and make it fit; None where it fits or nothing does."""
    budget: ArmBudget
    """Beside that of the arm that it is compared with."""


@dataclass(frozen=True)
class Plan:
    """The arms, what they are matched by, and what had to be assumed or left open."""

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
    # Widths are matched first: they decide what a step takes, which the lengths depend on.
    matches = match_arms(arms, [each.model for each in unmatched], rule)
    sized = []
    for each, match in zip(unmatched, matches, strict=True):
        loaded = apply_match(each.arm, match)
        sized.append(size_arm(each.arm, loaded, each.vocab_size))
    times = clock(sized) if clock else [None] * len(sized)
    baseline = sized[0]
    length = expected_length(baseline.recipe, times[0])
    steps = None if length is None else length.steps
    if rule in ("flops", "time"):
        models = [each.model for each in sized]
        seconds = [time.seconds for time in times if time is not None]
        matches = match_arms(arms, models, rule, steps=steps, step_seconds=seconds or None)
    plans = []
    for each, time, match in zip(sized, times, matches, strict=True):
        its = arm_length(each, match, time, baseline=baseline.recipe, length=length)
        # Minutes are the baseline's; the others get its steps, or its time.
        has_minutes = each is baseline or rule == "time"
        minutes = each.recipe.train.minutes if has_minutes else None
        plans.append(_plan(each, resources, time=time, match=match, length=its, minutes=minutes))
    plans = _with_budgets(plans, sized, rule)
    notes = arm_notes(arms)
    notes += [each.note for each in vocabularies if each.note]
    for each, time in zip(sized, times, strict=True):
        notes += too_short(each, time)
    notes += _open_questions(baseline.recipe, rule, steps, matches)
    unique = dict.fromkeys(notes)  # arms often have the same
    return Plan(tuple(plans), rule, tuple(unique))


def default_seeds(study: Study) -> int:
    """Return the default number of runs of each arm: the study's, ``compare``'s, or one."""
    if study.n_seeds:
        return study.n_seeds
    return DEFAULT_SEEDS if len(study.arms) > 1 else 1


def _plan(
    sized: Sized,
    resources: Resources,
    *,
    time: StepTime | None,
    match: Match | None,
    length: Length | None,
    minutes: float | None,
) -> ArmPlan:
    recipe, vocab_size = sized.recipe, sized.vocab_size
    steps = None if length is None else length.steps
    if steps is not None and recipe.train.minutes is None:
        recipe.train.check_keep_steps(steps)
    disk = run_disk(recipe, vocab_size)
    in_memory = fits_memory(recipe, vocab_size, resources)
    on_disk = fits_disk(recipe, vocab_size, resources)
    sequences = batches(recipe, resources).micro_batch_sequences
    change = None
    if in_memory is False or on_disk is False:

        def fits(other: Recipe) -> bool:
            checks = (fits_memory, fits_disk)
            return all(check(other, vocab_size, resources) is not False for check in checks)

        lacks_memory = in_memory is False
        change = smallest_change(
            sized.loaded,
            sequences if lacks_memory else 1,
            fits,
            has_copies=lacks_memory and copies_in_memory(recipe, resources),
        )
    return ArmPlan(
        name=sized.arm.name,
        parameters=count_parameters(sized.model, recipe.objective),
        flops_per_token=flops_per_token(sized.model, recipe.data.context, recipe.objective),
        memory_bytes=step_memory(recipe, vocab_size, resources).total,
        disk_bytes=disk,
        scored_bytes=scored_disk(recipe, vocab_size),
        micro_batch_sequences=sequences,
        precision=resources.precision(recipe),
        step_time=time,
        match=match,
        steps=steps,
        tokens=None if steps is None else steps * tokens_per_step(recipe),
        hours=expected_hours(recipe, length, time, minutes),
        fits_memory=in_memory,
        fits_disk=on_disk,
        change=change,
        budget=ArmBudget(sized.arm.name, None),
    )


def _with_budgets(plans: Sequence[ArmPlan], sized: Sequence[Sized], rule: Rule) -> list[ArmPlan]:
    """Say of each arm what it takes beyond the one that it is compared with."""
    budgets = plan_budgets(
        [each.arm for each in sized],
        [each.recipe for each in sized],
        [each.model for each in sized],
        [plan.tokens for plan in plans],
        rule,
        seconds=[_training_s(plan) for plan in plans] if rule == "time" else (),
    )
    return [replace(plan, budget=budget) for plan, budget in zip(plans, budgets, strict=True)]


def _training_s(plan: ArmPlan) -> float | None:
    if plan.steps is None or plan.step_time is None:
        return None
    return plan.steps * plan.step_time.seconds


def _open_questions(
    recipe: Recipe, rule: Rule, steps: int | None, matches: Sequence[Match | None]
) -> list[str]:
    notes = []
    if steps is None and recipe.train.epochs is not None:
        notes.append("how many steps an epoch has is known once the text is read")
    if None in matches:
        needs_seconds = rule == "time" or recipe.train.minutes is not None
        what = "--measure" if needs_seconds else "train.steps or train.tokens"
        notes.append(f"matching by {rule} changes the number of steps: give {what} to know them")
    return notes
