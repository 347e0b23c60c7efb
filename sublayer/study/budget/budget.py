"""The budget of every arm: the baseline's length, precision and threads, and what is matched."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sublayer.config.layering.layers import LoadedRecipe, vary
from sublayer.config.layering.overrides import override_layer
from sublayer.config.layering.paths import absolute_paths
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import EVALUATIONS, batch_sequences, run_steps
from sublayer.config.resolved import ResolvedModel, ResolvedRecipe, ResolvedTrain
from sublayer.config.task_heads import expected_model
from sublayer.config.train import LENGTHS, TrainConfig
from sublayer.study.arms import Arm
from sublayer.study.budget.match import Match, Rule, match_arms

ORIGIN = "study"


@dataclass(frozen=True)
class Measures:
    """How the facts of a recipe are measured: texts are read and steps timed when these are called.

    Paths of the recipes are absolute, but for ``step_s``.
    """

    vocab_size: Callable[[Recipe], int]
    """Ids of the recipe's tokenizer."""
    train_tokens: Callable[[Recipe], int]
    """Tokens of an epoch of the train split."""
    resolve: Callable[[Recipe], ResolvedRecipe]
    """What a run of the recipe here would fill in; minutes are measured."""
    step_s: Callable[[LoadedRecipe], float]
    """Seconds of an optimizer step; where time is matched it is asked for twice of each arm."""


@dataclass(frozen=True)
class MatchedArm:
    """An arm with all that the study settles for it; ``settings`` are laid over its recipe.

    ``matched`` are those of the settings that matching solved, as on the command line; ``mismatch``
    is what is left, as a share of what the arm is matched to (see ``Match``).
    """

    arm: Arm
    settings: Mapping[str, Any]
    matched: tuple[str, ...]
    mismatch: float

    @property
    def loaded(self) -> LoadedRecipe:
        """The arm's recipe with its settings."""
        loaded = self.arm.loaded
        if not self.settings:
            return loaded
        return vary(loaded, self.settings, origin=ORIGIN)


def match_budgets(
    arms: Sequence[Arm], rule: Rule, measures: Measures, *, threads: int | None = None
) -> list[MatchedArm]:
    """Assign every arm the baseline's length, precision, threads and, by ``rule``, budget.

    ``threads`` are those of a run that says nothing of them; None: the machine's.

    The baseline is the first arm. Minutes become the baseline's steps, once; an arm with other
    batches gets as many tokens. Raises ConfigError where an arm cannot be matched.
    """
    baseline = arms[0]
    baseline_recipe = absolute_paths(baseline.loaded.recipe)
    resolved = measures.resolve(baseline_recipe)
    if threads is not None:
        train = resolved.train.model_copy(update={"threads": threads})
        resolved = resolved.model_copy(update={"train": train})
    shared = [_shared(arm, baseline, resolved) for arm in arms]
    # Equal lengths come first, for matching starts from them.
    even = []
    for arm, own in zip(arms, shared, strict=True):
        loaded = vary(arm.loaded, own, origin=ORIGIN)
        even.append(replace(arm, loaded=loaded))
    matched_arms = []
    matches = _matches(even, rule, measures)
    for arm, own, match in zip(arms, shared, matches, strict=True):
        solved = override_layer(match.overrides, ORIGIN).values
        settings = {**own, **solved}
        matched_arms.append(MatchedArm(arm, settings, match.overrides, match.mismatch))
    return matched_arms


def arm_model(loaded: LoadedRecipe, measures: Measures) -> ResolvedModel:
    """Resolve the model of an arm's recipe, with the vocabulary of its tokenizer."""
    recipe = absolute_paths(loaded.recipe)
    vocab_size = measures.vocab_size(recipe)
    return expected_model(recipe, vocab_size)


def arm_steps(loaded: LoadedRecipe, measures: Measures) -> int:
    """Return the optimizer steps of an arm's recipe, measured where it has minutes of its own."""
    recipe = absolute_paths(loaded.recipe)
    train_tokens = measures.train_tokens(recipe)
    steps = run_steps(recipe, train_tokens=train_tokens)
    if steps:
        return steps
    resolved = measures.resolve(recipe)
    return resolved.train.steps


def _shared(arm: Arm, baseline: Arm, resolved: ResolvedRecipe) -> dict[str, Any]:
    """Return the settings that an arm leaves to the machine, as the baseline resolved them."""
    train = resolved.train
    recipe = arm.loaded.recipe
    its = recipe.train
    settings: dict[str, Any] = {}
    if its.precision == "auto":
        settings["train.precision"] = train.precision
    if its.threads is None:
        settings["train.threads"] = train.threads
    baseline_length = _length(baseline.loaded.recipe.train)
    if its.minutes is None or _length(its) != baseline_length:
        return settings
    tokens = train.steps * _tokens_per_step(resolved)
    own_tokens_per_step = _tokens_per_step(recipe)
    steps = max(1, round(tokens / own_tokens_per_step))
    settings["train.steps"] = steps
    settings |= _shared_evaluations(its, train, steps)
    return settings


def _shared_evaluations(its: TrainConfig, baseline: ResolvedTrain, steps: int) -> dict[str, Any]:
    """Return settings that keep an arm's evaluations as few and short as the baseline's.

    They are needed where its minutes count.
    """
    usual_steps = math.ceil(baseline.steps / EVALUATIONS)
    if its.evaluate_steps is not None or baseline.evaluate_steps <= usual_steps:
        return {}
    n_evaluations = math.ceil(baseline.steps / baseline.evaluate_steps)
    evaluate_steps = math.ceil(steps / n_evaluations)
    settings: dict[str, Any] = {"train.evaluate_steps": evaluate_steps}
    if its.evaluate_tokens is None:
        settings["train.evaluate_tokens"] = baseline.evaluate_tokens
    return settings


def _matches(arms: Sequence[Arm], rule: Rule, measures: Measures) -> list[Match]:
    models = [arm_model(arm.loaded, measures) for arm in arms]
    seconds = None
    if rule == "time":
        seconds = _step_seconds(arms, measures)
    steps = arm_steps(arms[0].loaded, measures)
    matches = match_arms(arms, models, rule, steps=steps, step_seconds=seconds)
    known = [match for match in matches if match is not None]
    assert len(known) == len(arms), "with steps and seconds every rule has what it needs"
    return known


def _step_seconds(arms: Sequence[Arm], measures: Measures) -> list[float]:
    """Time a step of each arm in turn, and once more in reverse order.

    A machine that slows down or speeds up steadily is as slow for one arm as for another so.
    """
    there = [measures.step_s(arm.loaded) for arm in arms]
    back = [measures.step_s(arm.loaded) for arm in reversed(arms)]
    return [(first + second) / 2 for first, second in zip(there, reversed(back), strict=True)]


def _length(train: TrainConfig) -> dict[str, Any]:
    return {name: getattr(train, name) for name in LENGTHS}


def _tokens_per_step(recipe: Recipe) -> int:
    return batch_sequences(recipe) * recipe.data.context
