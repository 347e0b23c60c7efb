"""A recipe made real: what it leaves open resolved against data and machine, its model built and in training."""

import hashlib
import math
import time
from dataclasses import dataclass, replace

import torch

from sublayer.announce import Say, say_nothing
from sublayer.config.cores import cores
from sublayer.config.length import Length, batch_sequences, length_in, resolve_optimizer, resolve_train, run_steps
from sublayer.config.objective import TranslationObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import resolve_model
from sublayer.config.written import dump_recipe
from sublayer.data.prepare import Data, prepare
from sublayer.errors import ConfigError
from sublayer.evaluate.along import METRICS, Scores, check_scoring, evaluate_along
from sublayer.load import load
from sublayer.measured import keep, recall
from sublayer.model.build import build
from sublayer.objective.batching import make_batches, translation_batches
from sublayer.objective.build import build_objective
from sublayer.text_notes import text_notes
from sublayer.train.allocator import allocate_for
from sublayer.train.capacity import check_training
from sublayer.train.distributed import World
from sublayer.train.pace import Pace, describe_length, median_step, timed
from sublayer.train.precision import fastest_precision
from sublayer.train.start import start_from
from sublayer.train.step import TrainStep, resolved

_PACE_SHARE = 0.03
_LEAST_PACE_S, _MOST_PACE_S = 2.0, 20.0
PACE_LIVES_S = 7 * 86400.0
"""How long a pace is taken for that of today: a run checks it with its first steps, a study does not."""
_PROVISIONAL_STEPS = 1000


@dataclass(frozen=True)
class Place:
    """Where a run computes."""

    device: torch.device
    world: World


@dataclass(frozen=True)
class Session:
    """A resolved recipe with its data, its model in training, and its evaluation on the way."""

    recipe: Recipe
    data: Data
    place: Place
    train_step: TrainStep

    @property
    def metrics(self) -> tuple[str, ...]:
        """What ``evaluate`` gives, the loss first."""
        return METRICS[self.recipe.objective.kind]

    def notes(self) -> list[str]:
        """Say what of the text a user would not expect: a vocabulary that it cannot fill, documents left out."""
        return text_notes(self.recipe, self.data, self.train_step.batches)

    def evaluate(self) -> Scores:
        """Score the validation split as training does: part of it, in the precision of training."""
        is_low = self.recipe.train.precision == "bfloat16"
        with torch.autocast(self.place.device.type, dtype=torch.bfloat16, enabled=is_low):
            return evaluate_along(self.train_step.objective.model, self.data.valid, self.recipe)


def prepare_data(recipe: Recipe, say: Say = say_nothing) -> Data:
    """Prepare a recipe's data, with the tokenizer of the model it starts from, if it starts from one."""
    tokenizer = load(recipe.init.run).tokenizer if recipe.init.run is not None else None
    return prepare(recipe.data, tokenizer=tokenizer, say=say)


@dataclass(frozen=True)
class Resolved:
    """A recipe that leaves nothing open, and the pace that its minutes were turned into steps by, if it gives them."""

    recipe: Recipe
    pace: Pace | None


def resolve(given: Recipe, data: Data, place: Place, *, steps: int | None = None) -> Recipe:
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
) -> Resolved:
    """Derive everything that a recipe leaves unset; ``steps`` replaces the length that it gives.

    A pace that was measured up to ``oldest_s`` seconds ago is used again; what is measured is said. Raises ConfigError
    where settings contradict each other or the data.
    """
    train, world = given.train, place.world
    if train.compile and place.device.type == "cpu":
        raise ConfigError("train.compile = true gains nothing on a CPU, where its first step takes 20 s: leave it out")
    threads = train.threads or max(1, cores() // world.size)
    torch.set_num_threads(threads)
    model = resolve_model(given.model, vocab_size=data.tokenizer.vocab_size, context=given.data.context)
    precision = train.precision
    if precision == "auto":
        precision = fastest_precision(place.device, model.d_model)
    fixed = given.model_copy(
        update={"model": model, "train": train.model_copy(update={"precision": precision, "threads": threads})}
    )
    n_steps, pace = steps or run_steps(given, train_tokens=epoch_tokens(given, data)), None
    if n_steps is None:
        pace = _find_pace(fixed, data, place, oldest_s, say)
        if pace.age_s > 0 and not _is_long_enough(fixed, data, place, pace):
            # Nothing is refused for what was measured another time.
            pace = _find_pace(fixed, data, place, -1.0, say)
        length = _length_in_minutes(fixed, data, place, pace)
        say(describe_length(train.minutes or 0.0, length.steps, pace))
    else:
        length = Length(n_steps)
    recipe = _at_length(fixed, length, data, place)
    sequences = resolved(recipe.train.batch_sequences)
    if sequences < world.size:
        raise ConfigError(f"a batch of {sequences} windows is less than the {world.size} processes")
    _check_memory(recipe, place)
    return Resolved(recipe, pace)


def epoch_tokens(recipe: Recipe, data: Data) -> int:
    """Count the tokens of an epoch: those of the text; of pairs, the first epoch's batches as if they were full."""
    if not isinstance(recipe.objective, TranslationObjective):
        return len(data.train.ids)
    return translation_batches(recipe, data.train).n_batches(0) * batch_sequences(recipe) * recipe.data.context


def assemble(recipe: Recipe, data: Data, place: Place) -> Session:
    """Build the model of a resolved recipe, its objective and its optimizer."""
    check_scoring(recipe)
    _check_memory(recipe, place)
    if place.device.type == "cpu":
        allocate_for(recipe.train)
    model = build(recipe.model, seed=recipe.train.seed).to(place.device)
    start_from(model, recipe.init)
    model.tokenizer = data.tokenizer
    objective = build_objective(model, recipe.objective, seed=recipe.train.seed).to(place.device)
    batches = make_batches(recipe, data.train)
    train_step = TrainStep(recipe, objective, batches, device=place.device, world=place.world)
    return Session(recipe, data, place, train_step)


def _check_memory(recipe: Recipe, place: Place) -> None:
    check_training(recipe, device="cuda" if place.device.type == "cuda" else "cpu", n_processes=place.world.size)


def _at_length(recipe: Recipe, length: Length, data: Data, place: Place) -> Recipe:
    train = resolve_train(
        recipe,
        steps=length.steps,
        valid_tokens=len(data.valid.ids),
        is_gpu=place.device.type != "cpu",
        threads=resolved(recipe.train.threads),
        n_evaluations=length.n_evaluations,
        evaluate_tokens=length.evaluate_tokens,
    )
    optimizer = resolve_optimizer(recipe.optimizer, steps=length.steps)
    return recipe.model_copy(update={"train": train, "optimizer": optimizer})


def _is_long_enough(recipe: Recipe, data: Data, place: Place, pace: Pace) -> bool:
    try:
        _length_in_minutes(recipe, data, place, pace)
    except ConfigError:
        return False
    return True


def _length_in_minutes(recipe: Recipe, data: Data, place: Place, pace: Pace) -> Length:
    train = recipe.train
    assert train.minutes is not None, "only minutes leave the steps to a measurement"
    is_fixed = train.evaluate_tokens is not None or isinstance(recipe.objective, TranslationObjective)
    scored = _provisional(recipe, data, place).train.evaluate_tokens
    return length_in(
        train.minutes,
        pace.step_s,
        pace.evaluation_s,
        evaluate_steps=train.evaluate_steps,
        scored_tokens=None if is_fixed else scored,
    )


def _provisional(recipe: Recipe, data: Data, place: Place) -> Recipe:
    return _at_length(recipe, Length(_PROVISIONAL_STEPS), data, place)


def _find_pace(recipe: Recipe, data: Data, place: Place, oldest_s: float, say: Say) -> Pace:
    """Return the pace that was kept for exactly this recipe, whatever its seed and minutes, or measure it."""
    provisional = _provisional(recipe, data, place)
    same = provisional.train.model_copy(update={"seed": 0, "minutes": 1.0})
    digest = hashlib.sha256(dump_recipe(provisional.model_copy(update={"train": same}), ()).encode()).hexdigest()
    key = f"pace on {place.device}, {place.world.size} processes: {digest}"
    # The first process alone looks, so that all measure or none does.
    figures = [math.nan] * 3
    if place.world.is_main and (kept := recall(key, 2)) is not None:
        figures = [*kept.values, time.time() - kept.at]
    pace = Pace(*place.world.share(figures, place.device))
    if 0 <= pace.age_s <= oldest_s and pace.step_s > 0:
        return pace
    say("measuring how long a step and an evaluation take")
    measured = _measure_pace(assemble(provisional, data, place), minutes=recipe.train.minutes or 0.0)
    pace = Pace(*place.world.share([measured.step_s, measured.evaluation_s], place.device))
    if place.world.is_main:
        keep(key, [pace.step_s, pace.evaluation_s])
    return pace


def _measure_pace(session: Session, *, minutes: float) -> Pace:
    device, world = session.place.device, session.place.world
    budget_s = min(_MOST_PACE_S, max(_LEAST_PACE_S, _PACE_SHARE * 60.0 * minutes))

    def agree(goes_on: bool) -> bool:
        return bool(world.share([float(goes_on)], device)[0])

    step_s = median_step(session.train_step, budget_s=budget_s, device=device, agree=agree)
    train = session.recipe.train
    scored = resolved(train.evaluate_tokens)
    # Scoring takes about a third of what training on as many tokens does; where that is long, fewer tokens will do.
    expected_s = step_s * scored / (3 * resolved(train.batch_sequences) * session.recipe.data.context)
    fewer = max(1, int(scored * min(1.0, budget_s / expected_s)))
    brief = session.recipe.model_copy(update={"train": train.model_copy(update={"evaluate_tokens": fewer})})
    seconds = timed(replace(session, recipe=brief).evaluate, device=device)
    is_whole = isinstance(session.recipe.objective, TranslationObjective)
    return Pace(step_s, seconds if is_whole else seconds * scored / fewer)
