"""What arms will cost, before anything is spent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sublayer.config.layers import LoadedRecipe
from sublayer.config.length import batch_sequences, resolve_train, run_steps
from sublayer.config.model import ModelConfig
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import resolve_model
from sublayer.config.train import LENGTHS
from sublayer.errors import ConfigError
from sublayer.model.cost import Parameters, count_parameters, flops_per_token
from sublayer.model.memory import FLOAT32_BYTES, optimizer_states, training_memory
from sublayer.study.arms import Arm
from sublayer.study.match import Match, Rule, apply_match, match_arms
from sublayer.study.resources import PROGRAM_BYTES, Resources
from sublayer.study.vocabulary import expected_vocabulary

BUDGET_S = 55.0
"""Wall clock of all measurements together, building the models included."""


@dataclass(frozen=True)
class ArmPlan:
    """What one run of an arm takes; None where it is not known.

    ``is_measured`` tells whether ``seconds_per_step`` was measured on such a step, or extrapolated. ``change`` is the
    smallest one that makes it fit, as settings; None where it fits or none was found.
    """

    name: str
    parameters: Parameters
    flops_per_token: int
    memory_bytes: int
    seconds_per_step: float | None
    is_measured: bool | None
    match: Match | None
    steps: int | None
    tokens: int | None
    hours: float | None
    disk_bytes: int
    fits_memory: bool | None
    fits_disk: bool | None
    change: tuple[str, ...] | None
    precision: str
    micro_batch_sequences: int


@dataclass(frozen=True)
class Plan:
    """The arms, what they are matched by, what the machine has, and what had to be assumed."""

    arms: tuple[ArmPlan, ...]
    rule: Rule
    resources: Resources
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Draft:
    arm: Arm
    recipe: Recipe
    model: ModelConfig
    vocab_size: int


def make_plan(
    arms: Sequence[Arm], rule: Rule, resources: Resources, *, measure: bool, report: Callable[[str], None]
) -> Plan:
    """Plan every arm; ``measure`` takes real steps, and ``report`` hears what is being measured.

    Raises ConfigError for arms that cannot be matched or have no meaning.
    """
    vocabularies = [expected_vocabulary(arm.loaded.recipe) for arm in arms]
    notes = [each.note for each in vocabularies if each.note]
    drafts = [_draft(arm, arm.loaded, each.size) for arm, each in zip(arms, vocabularies, strict=True)]
    if rule == "parameters":
        matches = match_arms(arms, [draft.model for draft in drafts], rule)
        drafts = [
            _draft(draft.arm, apply_match(draft.arm, match), draft.vocab_size)
            for draft, match in zip(drafts, matches, strict=True)
        ]
    times = _measured(drafts, resources, report) if measure else None
    if times is not None:
        drafts = [replace(draft, recipe=recipe) for draft, (recipe, _, _) in zip(drafts, times, strict=True)]
    seconds = None if times is None else [each for _, each, _ in times]
    steps = _steps(drafts[0].recipe, None if seconds is None else seconds[0])
    if rule != "parameters":
        matches = match_arms(arms, [draft.model for draft in drafts], rule, steps=steps, step_seconds=seconds)
        notes += _unmatched(rule, matches, measure=measure)
    elif None not in matches:
        pass
    plans = []
    for position, (draft, match) in enumerate(zip(drafts, matches, strict=True)):
        time = None if times is None else times[position][1:]
        plans.append(_plan(draft, match, resources, time=time, baseline=drafts[0].recipe, baseline_steps=steps))
    return Plan(tuple(plans), rule, resources, tuple(dict.fromkeys(notes)))
