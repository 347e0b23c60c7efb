"""A recipe made real: what it leaves open resolved against data and machine, its model built and in training."""

import hashlib
from dataclasses import dataclass

import torch

from sublayer.config.cores import cores
from sublayer.config.length import batch_sequences, resolve_optimizer, resolve_train, run_steps, steps_in
from sublayer.config.objective import TranslationObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import resolve_model
from sublayer.config.written import dump_recipe
from sublayer.data.prepare import Data, prepare
from sublayer.errors import ConfigError
from sublayer.evaluate.along import METRICS, Scores, check_scoring, evaluate_along
from sublayer.load import load
from sublayer.model.build import build
from sublayer.objective.batching import make_batches, translation_batches
from sublayer.objective.build import build_objective
from sublayer.text_notes import text_notes
from sublayer.train.allocator import allocate_for
from sublayer.train.capacity import check_training
from sublayer.train.distributed import World
from sublayer.train.machine import fastest_precision, remembered
from sublayer.train.pace import measure_pace
from sublayer.train.start import start_from
from sublayer.train.step import TrainStep, resolved

_PACE_SHARE = 0.03
_PACE_SECONDS = 20.0
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


def prepare_data(recipe: Recipe) -> Data:
    """Prepare a recipe's data, with the tokenizer of the model it starts from, if it starts from one."""
    tokenizer = load(recipe.init.run).tokenizer if recipe.init.run is not None else None
    return prepare(recipe.data, tokenizer=tokenizer)


def resolve(given: Recipe, data: Data, place: Place, *, steps: int | None = None) -> Recipe:
    """Derive everything that a recipe leaves unset; ``steps`` replaces the length that it gives.

    What must be measured is measured once per machine. Raises ConfigError where settings contradict each other or
    the data.
    """
    train, world = given.train, place.world
    if train.compile and place.device.type == "cpu":
        raise ConfigError("train.compile = true gains nothing on a CPU, where its first step takes 20 s: leave it out")
    threads = train.threads or max(1, cores() // world.size)
    torch.set_num_threads(threads)
    model = resolve_model(given.model, vocab_size=data.tokenizer.vocab_size, context=given.data.context)
    precision = train.precision
    if precision == "auto":
        precision = fastest_precision(place.device, model.d_model, threads)
    fixed = given.model_copy(
        update={"model": model, "train": train.model_copy(update={"precision": precision, "threads": threads})}
    )
    n_steps = steps or run_steps(given, train_tokens=epoch_tokens(given, data))
    if n_steps is None:
        n_steps = _steps_in_minutes(fixed, data, place)
    resolved_recipe = _at_length(fixed, n_steps, data, place)
    sequences = resolved(resolved_recipe.train.batch_sequences)
    if sequences < world.size:
        raise ConfigError(f"a batch of {sequences} windows is less than the {world.size} processes")
    _check_memory(resolved_recipe, place)
    return resolved_recipe


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


def _at_length(recipe: Recipe, steps: int, data: Data, place: Place) -> Recipe:
    train = resolve_train(
        recipe, steps=steps, valid_tokens=len(data.valid.ids), is_gpu=place.device.type == "cuda",
        threads=resolved(recipe.train.threads),
    )  # fmt: skip
    return recipe.model_copy(update={"train": train, "optimizer": resolve_optimizer(recipe.optimizer, steps=steps)})


def _steps_in_minutes(recipe: Recipe, data: Data, place: Place) -> int:
    minutes = recipe.train.minutes
    assert minutes is not None, "only minutes leave the steps to a measurement"
    provisional = _at_length(recipe, _PROVISIONAL_STEPS, data, place)

    def measure() -> list[float]:
        session = assemble(provisional, data, place)
        budget_s = min(_PACE_SECONDS, _PACE_SHARE * 60.0 * minutes)
        pace = measure_pace(session.train_step, session.evaluate, budget_s=budget_s, device=place.device)
        return [pace.step_s, pace.evaluation_s]

    # One command resolves alike twice: the pace is remembered for exactly this recipe, whatever its seed.
    unseeded = provisional.model_copy(update={"train": provisional.train.model_copy(update={"seed": 0})})
    digest = hashlib.sha256(dump_recipe(unseeded, ()).encode()).hexdigest()
    figures = remembered(f"pace on {place.device}, {place.world.size} processes: {digest}", measure)
    shared = place.world.broadcast(torch.tensor(figures, dtype=torch.float64, device=place.device))
    step_s, evaluation_s = shared.tolist()
    return steps_in(minutes, step_s, evaluation_s, evaluate_steps=recipe.train.evaluate_steps)
