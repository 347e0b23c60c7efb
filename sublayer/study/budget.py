"""What every arm is given: the length, the precision and the threads of the baseline, and a matched budget."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sublayer.config.layers import LoadedRecipe, vary
from sublayer.config.length import EVALUATIONS, batch_sequences, run_steps
from sublayer.config.model import ModelConfig
from sublayer.config.paths import anchored
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import resolve_model
from sublayer.config.sources import override_layer
from sublayer.config.train import LENGTHS, TrainConfig
from sublayer.study.arms import Arm
from sublayer.study.match import Match, Rule, match_arms

ORIGIN = "study"


@dataclass(frozen=True)
class Measures:
    """What can only be measured or read: a tokenizer's and a split's size, the baseline's recipe resolved, seconds."""

    vocab_size: Callable[[Recipe], int]
    train_tokens: Callable[[Recipe], int]
    resolve: Callable[[Recipe], Recipe]
    step_s: Callable[[LoadedRecipe], float]


@dataclass(frozen=True)
class Settled:
    """An arm with all that the study settles for it; ``settings`` are laid over its recipe.

    ``matched`` are those of the settings that matching solved, as on the command line; ``residual`` is what is left.
    """

    arm: Arm
    settings: Mapping[str, Any]
    matched: tuple[str, ...]
    residual: float

    @property
    def loaded(self) -> LoadedRecipe:
        """The arm's recipe with its settings."""
        return vary(self.arm.loaded, self.settings, origin=ORIGIN) if self.settings else self.arm.loaded


def settle(arms: Sequence[Arm], rule: Rule, measures: Measures) -> list[Settled]:
    """Give every arm the baseline's (the first arm's) length, precision and threads, and match its budget by ``rule``.

    Minutes become the baseline's steps, once; an arm with other batches gets as many tokens. Raises ConfigError where
    an arm cannot be matched.
    """
    resolved = measures.resolve(anchored(arms[0].loaded.recipe))
    shared = [_shared(arm, arms[0], resolved) for arm in arms]
    # Equal lengths come first, for matching starts from them.
    even = [replace(arm, loaded=vary(arm.loaded, own, origin=ORIGIN)) for arm, own in zip(arms, shared, strict=True)]
    return [
        Settled(arm, {**own, **override_layer(match.overrides, ORIGIN).values}, match.overrides, match.residual)
        for arm, own, match in zip(arms, shared, _matches(even, rule, measures), strict=True)
    ]


def arm_model(loaded: LoadedRecipe, measures: Measures) -> ModelConfig:
    """Resolve the model of an arm's recipe."""
    recipe = anchored(loaded.recipe)
    return resolve_model(recipe.model, vocab_size=measures.vocab_size(recipe), context=recipe.data.context)


def arm_steps(loaded: LoadedRecipe, measures: Measures) -> int:
    """Give the optimizer steps of an arm's recipe, measured where it has minutes of its own."""
    recipe = anchored(loaded.recipe)
    steps = run_steps(recipe, train_tokens=measures.train_tokens(recipe)) or measures.resolve(recipe).train.steps
    assert steps is not None, "a resolved recipe has steps"
    return steps


def _shared(arm: Arm, baseline: Arm, resolved: Recipe) -> dict[str, Any]:
    train, its = resolved.train, arm.loaded.recipe.train
    settings: dict[str, Any] = {}
    if its.precision == "auto":
        settings["train.precision"] = train.precision
    if its.threads is None:
        settings["train.threads"] = train.threads
    if its.minutes is not None and _length(its) == _length(baseline.loaded.recipe.train):
        assert train.steps is not None, "a resolved recipe has steps"
        tokens = train.steps * _tokens_per_step(resolved)
        settings["train.steps"] = max(1, round(tokens / _tokens_per_step(arm.loaded.recipe)))
        settings |= _shared_evaluations(its, train, settings["train.steps"])
    return settings


def _shared_evaluations(its: TrainConfig, baseline: TrainConfig, steps: int) -> dict[str, Any]:
    """Return what keeps an arm's evaluations as few and as short as the baseline's, where its minutes ask for that."""
    assert baseline.steps is not None and baseline.evaluate_steps is not None, "a resolved recipe has them"
    if its.evaluate_steps is not None or baseline.evaluate_steps <= math.ceil(baseline.steps / EVALUATIONS):
        return {}
    n_evaluations = math.ceil(baseline.steps / baseline.evaluate_steps)
    settings: dict[str, Any] = {"train.evaluate_steps": math.ceil(steps / n_evaluations)}
    if its.evaluate_tokens is None:
        settings["train.evaluate_tokens"] = baseline.evaluate_tokens
    return settings


def _matches(arms: Sequence[Arm], rule: Rule, measures: Measures) -> list[Match]:
    models = [arm_model(arm.loaded, measures) for arm in arms]
    seconds = [measures.step_s(arm.loaded) for arm in arms] if rule == "time" else None
    steps = arm_steps(arms[0].loaded, measures)
    matches = match_arms(arms, models, rule, steps=steps, step_seconds=seconds)
    known = [match for match in matches if match is not None]
    assert len(known) == len(arms), "with steps and seconds every rule has what it needs"
    return known


def _length(train: Any) -> dict[str, Any]:
    return {name: getattr(train, name) for name in LENGTHS}


def _tokens_per_step(recipe: Recipe) -> int:
    return batch_sequences(recipe) * recipe.data.context
