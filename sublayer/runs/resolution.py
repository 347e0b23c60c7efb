"""Resolution of a recipe's open settings, from data, machine and pace."""

import hashlib
import math
import time
from dataclasses import dataclass, replace

import torch

from sublayer.config.load import dump_recipe
from sublayer.config.recipe import Recipe, ResolvedRecipe, resolved_recipe
from sublayer.config.resolve import (
    Length,
    evaluation_effort,
    length_in,
    resolve_model,
    resolve_optimizer,
    resolve_train,
    run_steps,
    run_threads,
)
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError
from sublayer.files.measurements import keep, recall
from sublayer.objective.families import family_of
from sublayer.runs.session import Place, Session, assemble, check_place
from sublayer.system.memory import cores
from sublayer.system.stages import Say, say_nothing, stage
from sublayer.training.speed import Pace, describe_length, fastest_precision, median_step, timed
from sublayer.training.warm_start import StartModel

PACE_LIVES_S = 7 * 86400.0
"""Maximum age of a reused pace, in seconds.

A run checks it with its first steps; a study does not.
"""
_PACE_SHARE = 0.03
"""Share of a run's minutes for measuring, within the bounds below."""
_LEAST_PACE_S, _MOST_PACE_S = 2.0, 20.0
_PROVISIONAL_STEPS = 1000


def find_pace(
    recipe: ResolvedRecipe, data: Data, setup: Place, pretrained: StartModel | None, oldest_s: float
) -> Pace:
    """Return the kept pace of this recipe, whatever its seed and minutes, or measure it.

    The recipe's length is provisional; ``pretrained`` is its starting model, if already read. A
    pace older than ``oldest_s`` is measured again; below 0, every pace. All processes enter, and
    return the same.
    """
    world = setup.world
    # The recipe without fields that do not affect step time.
    same_train = recipe.train.model_copy(update={"seed": 0, "minutes": 1.0})
    key = _key("pace", setup, dump_recipe(recipe.model_copy(update={"train": same_train})))
    # Only the first process looks, so that all measure or none.
    kept = recall(key, 2) if world.is_main else None
    figures = [math.nan] * 3 if kept is None else [*kept.values, time.time() - kept.at]
    pace = Pace(*world.share(figures))
    if 0 <= pace.age_s <= oldest_s and pace.step_s > 0:
        return pace
    with stage("measuring how long a step and an evaluation take"):
        session = assemble(recipe, data, setup, pretrained)
        measured = _measure_pace(session, minutes=recipe.train.minutes or 0.0)
    pace = Pace(*world.share([measured.step_s, measured.evaluation_s]))
    if world.is_main:
        keep(key, [pace.step_s, pace.evaluation_s])
    return pace


def keep_run_pace(recipe: ResolvedRecipe, setup: Place, step_s: float) -> None:
    """Keep the seconds per step of a finished run, other work included."""
    keep(_run_key(recipe, setup), [step_s])


def recall_run_pace(recipe: ResolvedRecipe, setup: Place) -> float | None:
    """Return the seconds per step of the last run of equal computation; None without one."""
    kept = recall(_run_key(recipe, setup), 1)
    return None if kept is None else kept.values[0]


def _run_key(recipe: ResolvedRecipe, setup: Place) -> str:
    """Return the key of a run's pace: the size of a step, not its data and weights."""
    train = recipe.train
    sizes = [
        recipe.model.model_dump_json(),
        recipe.objective.model_dump_json(),
        recipe.optimizer.kind,
        str(recipe.data.context),
        str((train.batch_sequences, train.micro_batch_sequences, train.precision)),
        str((train.threads, train.recompute, train.compile)),
    ]
    return _key("run", setup, "\n".join(sizes))


def _key(kind: str, setup: Place, text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{kind} on {setup.device}, {setup.world.size} processes: {digest}"


def _measure_pace(session: Session, *, minutes: float) -> Pace:
    device, world = session.place.device, session.place.world
    share_s = _PACE_SHARE * 60.0 * minutes
    budget_s = min(_MOST_PACE_S, max(_LEAST_PACE_S, share_s))

    # All processes take the number of steps that the first has time for.
    def agree(goes_on: bool) -> bool:
        (shared,) = world.share([float(goes_on)])
        return bool(shared)

    step_s = median_step(session.train_step, budget_s=budget_s, device=device, agree=agree)
    recipe, scored = session.recipe, session.recipe.train.evaluate_tokens
    # Scoring takes about a third of training on as many tokens, in windows without overlap; if that
    # is long, fewer tokens will do.
    tokens_per_step = recipe.train.batch_sequences * recipe.data.context
    expected_s = step_s * scored * evaluation_effort(recipe) / (3 * tokens_per_step)
    fewer = max(1, int(scored * min(1.0, budget_s / expected_s)))
    brief_train = recipe.train.model_copy(update={"evaluate_tokens": fewer})
    brief = replace(session, recipe=recipe.model_copy(update={"train": brief_train}))
    seconds = timed(brief.evaluate, device=device)
    return Pace(
        step_s, seconds if recipe.objective.scores_whole_split else seconds * scored / fewer
    )


@dataclass(frozen=True)
class Resolved:
    """A fully resolved recipe, and the pace that converted its minutes to steps."""

    recipe: ResolvedRecipe
    pace: Pace | None
    """None if its length needed no measurement."""


def resolve(given: Recipe, data: Data, setup: Place, *, steps: int | None = None) -> ResolvedRecipe:
    """Derive all unset fields of a recipe, as ``resolve_run`` does."""
    return resolve_run(given, data, setup, steps=steps).recipe


def resolve_run(
    given: Recipe,
    data: Data,
    setup: Place,
    *,
    steps: int | None = None,
    oldest_s: float = PACE_LIVES_S,
    say: Say = say_nothing,
    pretrained: StartModel | None = None,
) -> Resolved:
    """Derive all unset fields of a recipe; ``steps`` replaces its length.

    ``pretrained`` is the starting model, if the caller continues to use it. A pace measured up to
    ``oldest_s`` seconds ago is reused; a new measurement is reported. Raises ConfigError if
    settings contradict each other or the data.
    """
    train = given.train
    world = setup.world
    if train.compile and setup.device.type == "cpu":
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
            precision = fastest_precision(setup.device, model.d_model)
    named = train.model_copy(update={"precision": precision, "threads": threads})
    fixed = given.model_copy(update={"train": named})

    def at_length(length: Length) -> ResolvedRecipe:
        resolved = resolve_train(
            fixed,
            steps=length.steps,
            valid_tokens=None if data.valid is None else len(data.valid.ids),
            is_gpu=setup.device.type != "cpu",
            threads=threads,
            n_evaluations=length.n_evaluations,
            evaluate_tokens=length.evaluate_tokens,
        )
        optimizer = resolve_optimizer(given.optimizer, steps=length.steps)
        return resolved_recipe(fixed, model, resolved, optimizer)

    if steps is None:
        epoch_tokens = family_of(given.objective).epoch_tokens(given, data.train)
        steps = run_steps(given, train_tokens=epoch_tokens)
        if steps is not None:
            train.check_keep_steps(steps)
    if steps is not None:
        recipe, pace = at_length(Length(steps)), None
    else:
        measured = at_length(Length(provisional_steps(given)))
        pace = find_pace(measured, data, setup, pretrained, oldest_s)
        try:
            recipe = at_length(_length_in_minutes(given, measured, pace))
        except ConfigError:
            if not pace.age_s:
                raise
            # No run is refused for an old measurement.
            pace = find_pace(measured, data, setup, pretrained, -1.0)
            recipe = at_length(_length_in_minutes(given, measured, pace))
        say(describe_length(train.minutes or 0.0, recipe.train.steps, pace))
    check_place(recipe, setup)
    return Resolved(recipe, pace)


def provisional_steps(recipe: Recipe) -> int:
    """Return a length that fits the warm-up, to measure a recipe or resolve its other fields."""
    return max(_PROVISIONAL_STEPS, recipe.optimizer.warmup_steps or 0)


def _length_in_minutes(recipe: Recipe, measured: ResolvedRecipe, pace: Pace) -> Length:
    """Return the length that fits a recipe's minutes, at a pace."""
    train = recipe.train
    assert train.minutes is not None, "only minutes leave the steps to a measurement"
    is_fixed = train.evaluate_tokens is not None or recipe.objective.scores_whole_split
    length = length_in(
        train.minutes,
        pace.step_s,
        pace.evaluation_s,
        evaluate_steps=train.evaluate_steps,
        scored_tokens=None if is_fixed else measured.train.evaluate_tokens,
    )
    train.check_keep_steps(length.steps)
    return length
