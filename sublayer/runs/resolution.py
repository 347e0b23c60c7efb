"""Everything that a recipe leaves open, resolved against data, machine and pace."""

from dataclasses import dataclass

import torch

from sublayer.config.recipe import Recipe, ResolvedRecipe, resolved_recipe
from sublayer.config.resolve_model import resolve_model
from sublayer.config.resolve_train import (
    Length,
    length_in,
    resolve_optimizer,
    resolve_train,
    run_steps,
    run_threads,
)
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError
from sublayer.objective.families import family_of
from sublayer.runs.pace import PACE_LIVES_S, PaceRequest, find_pace
from sublayer.runs.session import Place, check_place
from sublayer.system.cores import cores
from sublayer.system.stage_displays import Say, say_nothing
from sublayer.system.stages import stage
from sublayer.training.precision import fastest_precision
from sublayer.training.step_time import Pace, describe_length
from sublayer.training.warm_start import Pretrained

_PROVISIONAL_STEPS = 1000


@dataclass(frozen=True)
class Resolved:
    """A recipe that leaves nothing open, and the pace that its minutes became steps by."""

    recipe: ResolvedRecipe
    pace: Pace | None
    """None where its length needed no measurement."""


def resolve(given: Recipe, data: Data, place: Place, *, steps: int | None = None) -> ResolvedRecipe:
    """Derive everything that a recipe leaves unset, as ``resolve_run`` does."""
    return resolve_run(given, data, place, steps=steps).recipe


def resolve_run(
    given: Recipe,
    data: Data,
    place: Place,
    *,
    steps: int | None = None,
    oldest_s: float = PACE_LIVES_S,
    say: Say = say_nothing,
    pretrained: Pretrained | None = None,
) -> Resolved:
    """Derive everything that a recipe leaves unset; ``steps`` replaces the length that it gives.

    ``pretrained`` is the model that the recipe starts from, where the caller continues to use it.
    A pace that was measured up to ``oldest_s`` seconds ago is used again; what is measured is said.
    Raises ConfigError where settings contradict each other or the data.
    """
    train = given.train
    world = place.world
    if train.compile and place.device.type == "cpu":
        raise ConfigError(
            "train.compile = true gains nothing on a CPU, where its first step takes 20 s: "
            "leave it out"
        )
    if train.patience is not None and data.valid is None:
        raise ConfigError(
            f"train.patience = {train.patience} waits for a better evaluation, and data.split = "
            f"{given.data.split} leaves nothing to validate on: leave it out, or give another split"
        )
    threads = run_threads(train, cores() // world.size)
    torch.set_num_threads(threads)
    shaped = family_of(given.objective).shape_model(given, data)
    model = resolve_model(shaped, vocab_size=data.tokenizer.vocab_size, context=given.data.context)
    precision = train.precision
    if precision == "auto":
        with stage("measuring which precision is faster"):
            precision = fastest_precision(place.device, model.d_model)
    named = train.model_copy(update={"precision": precision, "threads": threads})
    fixed = given.model_copy(update={"model": model, "train": named})
    if steps is None:
        epoch_tokens = family_of(given.objective).epoch_tokens(given, data.train)
        steps = run_steps(given, train_tokens=epoch_tokens)
        if steps is not None:
            train.check_keep_steps(steps)
    pace = None
    if steps is None:
        asked = PaceRequest(_provisional(fixed, data, place), data, place, pretrained)
        pace = find_pace(asked, oldest_s)
        if pace.age_s > 0 and not _is_long_enough(fixed, data, place, pace):
            # Nothing is refused for what was measured another time.
            pace = find_pace(asked, -1.0)
        length = _length_in_minutes(fixed, data, place, pace)
        train.check_keep_steps(length.steps)
        say(describe_length(train.minutes or 0.0, length.steps, pace))
    else:
        length = Length(steps)
    recipe = _at_length(fixed, length, data, place)
    check_place(recipe, place)
    return Resolved(recipe, pace)


def provisional_steps(recipe: Recipe) -> int:
    """Return a length for what is only measured, or asked for its other fields: a warm-up fits."""
    return max(_PROVISIONAL_STEPS, recipe.optimizer.warmup_steps or 0)


def _at_length(recipe: Recipe, length: Length, data: Data, place: Place) -> ResolvedRecipe:
    model = resolve_model(
        recipe.model, vocab_size=data.tokenizer.vocab_size, context=recipe.data.context
    )
    train = resolve_train(
        recipe,
        steps=length.steps,
        valid_tokens=None if data.valid is None else len(data.valid.ids),
        is_gpu=place.device.type != "cpu",
        threads=torch.get_num_threads(),
        n_evaluations=length.n_evaluations,
        evaluate_tokens=length.evaluate_tokens,
    )
    optimizer = resolve_optimizer(recipe.optimizer, steps=length.steps)
    return resolved_recipe(recipe, model, train, optimizer)


def _is_long_enough(recipe: Recipe, data: Data, place: Place, pace: Pace) -> bool:
    try:
        length = _length_in_minutes(recipe, data, place, pace)
        recipe.train.check_keep_steps(length.steps)
        _at_length(recipe, length, data, place)
    except ConfigError:
        return False
    return True


def _length_in_minutes(recipe: Recipe, data: Data, place: Place, pace: Pace) -> Length:
    train = recipe.train
    assert train.minutes is not None, "only minutes leave the steps to a measurement"
    is_fixed = train.evaluate_tokens is not None or recipe.objective.scores_whole_split
    scored = _provisional(recipe, data, place).train.evaluate_tokens
    return length_in(
        train.minutes,
        pace.step_s,
        pace.evaluation_s,
        evaluate_steps=train.evaluate_steps,
        scored_tokens=None if is_fixed else scored,
    )


def _provisional(recipe: Recipe, data: Data, place: Place) -> ResolvedRecipe:
    return _at_length(recipe, Length(provisional_steps(recipe)), data, place)
