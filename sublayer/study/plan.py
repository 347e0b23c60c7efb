"""What arms will cost, before anything is spent."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sublayer.config.layers import LoadedRecipe
from sublayer.config.length import Length, batch_sequences, length_in, resolve_train, run_steps
from sublayer.config.model import ModelConfig
from sublayer.config.objective import TranslationObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import resolve_model
from sublayer.config.train import LENGTHS
from sublayer.errors import ConfigError
from sublayer.model.cost import Parameters, count_parameters, flops_per_token
from sublayer.model.passes import FLOAT32_BYTES
from sublayer.study.arms import Arm
from sublayer.study.definition import DEFAULT_SEEDS, Study
from sublayer.study.fitting import batches, fits_disk, fits_memory, run_disk, smallest_change, step_memory
from sublayer.study.match import Match, Rule, apply_match, match_arms
from sublayer.study.resources import Resources
from sublayer.study.vocabulary import expected_vocabulary


@dataclass(frozen=True)
class Sized:
    """An arm as it would run: its recipe, matched, and its model with the vocabulary that is expected."""

    arm: Arm
    loaded: LoadedRecipe
    model: ModelConfig
    vocab_size: int

    @property
    def recipe(self) -> Recipe:
        """The recipe itself."""
        return self.loaded.recipe


@dataclass(frozen=True)
class StepTime:
    """Seconds of an optimizer step: taken, or extrapolated from a smaller one."""

    seconds: float
    is_measured: bool


Clock = Callable[[Sequence[Sized]], Sequence[StepTime]]


@dataclass(frozen=True)
class ArmPlan:
    """What one run of an arm takes; None where it is not known.

    ``fits_memory`` and ``fits_disk`` compare with what is free; ``change`` is the smallest one that makes the step fit.
    """

    name: str
    parameters: Parameters
    flops_per_token: int
    memory_bytes: int
    disk_bytes: int
    micro_batch_sequences: int
    precision: str
    step_time: StepTime | None
    match: Match | None
    steps: int | None
    tokens: int | None
    hours: float | None
    fits_memory: bool | None
    fits_disk: bool | None
    change: tuple[str, ...] | None


@dataclass(frozen=True)
class Plan:
    """The arms, what they are matched by, and what had to be assumed or left open."""

    arms: tuple[ArmPlan, ...]
    rule: Rule
    notes: tuple[str, ...]


def make_plan(arms: Sequence[Arm], rule: Rule, resources: Resources, clock: Clock | None = None) -> Plan:
    """Plan one run of every arm, the first of them the baseline; ``clock`` measures steps.

    Raises ConfigError for arms that cannot be matched or have no meaning.
    """
    vocabularies = [expected_vocabulary(arm.loaded.recipe) for arm in arms]
    sized = [_size(arm, arm.loaded, each.size) for arm, each in zip(arms, vocabularies, strict=True)]
    matches = match_arms(arms, [each.model for each in sized], rule)
    sized = [
        _size(each.arm, apply_match(each.arm, match), each.vocab_size)
        for each, match in zip(sized, matches, strict=True)
    ]
    times = clock(sized) if clock else [None] * len(sized)
    length = _length(sized[0].recipe, times[0])
    steps = None if length is None else length.steps
    if rule in ("flops", "time"):
        seconds = [time.seconds for time in times if time is not None]
        matches = match_arms(arms, [each.model for each in sized], rule, steps=steps, step_seconds=seconds or None)
    plans = []
    for each, time, match in zip(sized, times, matches, strict=True):
        its = _arm_length(each, match, time, baseline=sized[0].recipe, length=length)
        # Minutes are the baseline's; the others get its steps, or its time.
        minutes = each.recipe.train.minutes if each is sized[0] or rule == "time" else None
        plans.append(_plan(each, resources, time=time, match=match, length=its, minutes=minutes))
    notes = [
        *(each.note for each in vocabularies if each.note),
        *(note for each, time in zip(sized, times, strict=True) for note in _too_short(each, time)),
        *_open_questions(sized[0].recipe, rule, steps, matches),
    ]
    return Plan(tuple(plans), rule, tuple(dict.fromkeys(notes)))


def default_seeds(study: Study) -> int:
    """Give the number of runs of each arm where nobody said: the study's, or that of ``compare``, or one."""
    return study.n_seeds or (DEFAULT_SEEDS if len(study.arms) > 1 else 1)


def plan_to_json(plan: Plan, resources: Resources, n_seeds: int, n_trials: int = 1) -> dict[str, Any]:
    """Write a plan, and what all its runs take together, as plain values.

    Each arm has ``n_trials`` runs with the first of ``n_seeds`` seeds, and one with each of the others.
    """
    hours = [arm.hours for arm in plan.arms if arm.hours is not None]
    n_runs = n_trials + n_seeds - 1
    disk = _disk(plan, n_runs)
    is_single = len(plan.arms) == 1
    return {
        "arms": [_arm_to_json(arm, is_single=is_single) for arm in plan.arms],
        "match": None if is_single else plan.rule,
        "total": {
            "runs": n_runs * len(plan.arms),
            "hours": n_runs * sum(hours) if len(hours) == len(plan.arms) else None,
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


def _disk(plan: Plan, n_runs: int) -> int:
    if len(plan.arms) == 1:
        return n_runs * plan.arms[0].disk_bytes
    # The runs of a comparison keep their models; only the one that is being trained has checkpoints.
    models = n_runs * sum(FLOAT32_BYTES * arm.parameters.total for arm in plan.arms)
    return models + max(arm.disk_bytes for arm in plan.arms)


def _arm_to_json(arm: ArmPlan, *, is_single: bool) -> dict[str, Any]:
    match = None
    if arm.match is not None and not is_single:
        match = {
            "overrides": list(arm.match.overrides),
            "residual": arm.match.residual,
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
        "steps": arm.steps,
        "tokens": arm.tokens,
        "hours": arm.hours,
        "disk_bytes": arm.disk_bytes,
        "precision": arm.precision,
        "micro_batch_sequences": arm.micro_batch_sequences,
        "fits": {"memory": arm.fits_memory, "disk": arm.fits_disk},
        "change": None if arm.change is None else list(arm.change),
    }


def _size(arm: Arm, loaded: LoadedRecipe, vocab_size: int) -> Sized:
    recipe = loaded.recipe
    return Sized(
        arm, loaded, resolve_model(recipe.model, vocab_size=vocab_size, context=recipe.data.context), vocab_size
    )


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
    disk = run_disk(recipe, vocab_size)
    in_memory, on_disk = fits_memory(recipe, vocab_size, resources), fits_disk(recipe, vocab_size, resources)
    sequences = batches(recipe, resources).micro_batch_sequences
    assert sequences is not None, "a filled table has micro-batches"
    change = None
    if in_memory is False or on_disk is False:

        def fits(other: Recipe) -> bool:
            checks = (fits_memory, fits_disk)
            return all(check(other, vocab_size, resources) is not False for check in checks)

        change = smallest_change(sized.loaded, sequences if in_memory is False else 1, fits)
    return ArmPlan(
        name=sized.arm.name,
        parameters=count_parameters(sized.model, recipe.objective),
        flops_per_token=flops_per_token(sized.model, recipe.data.context, recipe.objective),
        memory_bytes=step_memory(recipe, vocab_size, resources).total,
        disk_bytes=disk,
        micro_batch_sequences=sequences,
        precision=resources.precision(recipe),
        step_time=time,
        match=match,
        steps=steps,
        tokens=None if steps is None else steps * _tokens_per_step(recipe),
        hours=_hours(recipe, length, time, minutes),
        fits_memory=in_memory,
        fits_disk=on_disk,
        change=change,
    )


def _length(recipe: Recipe, time: StepTime | None) -> Length | None:
    """Return the length that a run would have; None where it is not known, or minutes hold not one step."""
    train = recipe.train
    if all(getattr(train, name) is None for name in LENGTHS):
        return None
    if train.minutes is None:
        steps = run_steps(recipe, train_tokens=None)
        return None if steps is None else Length(steps)
    try:
        return None if time is None else _length_in(train.minutes, recipe, time)
    except ConfigError:
        return None


def _length_in(minutes: float, recipe: Recipe, time: StepTime) -> Length:
    is_fixed = recipe.train.evaluate_tokens is not None or isinstance(recipe.objective, TranslationObjective)
    tokens = _scored_tokens(recipe, None)
    return length_in(
        minutes,
        time.seconds,
        _evaluation_s(recipe, time, tokens),
        evaluate_steps=recipe.train.evaluate_steps,
        scored_tokens=None if is_fixed else tokens,
    )


def _too_short(sized: Sized, time: StepTime | None) -> list[str]:
    if time is None or sized.recipe.train.minutes is None:
        return []
    try:
        _length_in(sized.recipe.train.minutes, sized.recipe, time)
    except ConfigError as error:
        return [f"{sized.arm.name}: {error}"]
    return []


def _scored_tokens(recipe: Recipe, length: Length | None) -> int:
    evaluate_tokens = None if length is None else length.evaluate_tokens
    train = resolve_train(recipe, steps=1, valid_tokens=None, is_gpu=False, threads=1, evaluate_tokens=evaluate_tokens)
    assert train.evaluate_tokens is not None, "a filled table says how many tokens are scored"
    return train.evaluate_tokens


def _evaluation_s(recipe: Recipe, time: StepTime, tokens: int) -> float:
    # Scoring takes a forward pass, a third of what training on the same tokens does.
    return time.seconds * tokens / (3 * _tokens_per_step(recipe))


def _arm_length(
    sized: Sized, match: Match | None, time: StepTime | None, *, baseline: Recipe, length: Length | None
) -> Length | None:
    matched = [text for text in (match.overrides if match else ()) if text.startswith("train.steps=")]
    if matched:
        return replace(length or Length(1), steps=int(matched[0].partition("=")[2]))
    train = sized.recipe.train
    if train.minutes is not None and train.minutes == baseline.train.minutes and length is not None:
        # Minutes are turned into steps once, for the baseline; an arm with other batches gets as many tokens.
        tokens = length.steps * _tokens_per_step(baseline)
        return replace(length, steps=max(1, round(tokens / _tokens_per_step(sized.recipe))))
    return _length(sized.recipe, time)


def _hours(recipe: Recipe, length: Length | None, time: StepTime | None, minutes: float | None) -> float | None:
    if length is None or time is None:
        # Where a step is known to take longer than the minutes, they are not what a run takes.
        return None if minutes is None or time is not None else minutes / 60
    train = resolve_train(
        recipe, steps=length.steps, valid_tokens=None, is_gpu=False, threads=1, n_evaluations=length.n_evaluations
    )
    assert train.evaluate_steps is not None, "a filled table says when scores are taken"
    n_evaluations = math.ceil(length.steps / train.evaluate_steps)
    evaluation_s = _evaluation_s(recipe, time, _scored_tokens(recipe, length))
    return (length.steps * time.seconds + n_evaluations * evaluation_s) / 3600


def _tokens_per_step(recipe: Recipe) -> int:
    return batch_sequences(recipe) * recipe.data.context


def _open_questions(recipe: Recipe, rule: Rule, steps: int | None, matches: Sequence[Match | None]) -> list[str]:
    notes = []
    if steps is None and recipe.train.epochs is not None:
        notes.append("how many steps an epoch has is known once the text is read")
    if None in matches:
        what = "--measure" if rule == "time" or recipe.train.minutes is not None else "train.steps or train.tokens"
        notes.append(f"matching by {rule} changes the number of steps: give {what} to know them")
    return notes
