"""A recipe made real: its data prepared, its model built and in training."""

from dataclasses import dataclass

import torch

from sublayer.config.recipe import Recipe
from sublayer.config.resolved import ResolvedRecipe
from sublayer.data.prepare import Data, prepare
from sublayer.estimate.micro_batch import DeviceKind
from sublayer.estimate.training_capacity import check_training
from sublayer.model.build import build
from sublayer.objective.families import family_of
from sublayer.objective.family import Scores
from sublayer.runs.data_warnings import list_data_warnings
from sublayer.system.allocator import allocate_for_training
from sublayer.system.announce import Say, say_nothing
from sublayer.training.parallel import World
from sublayer.training.step import TrainStep
from sublayer.training.warm_start import Pretrained, note_training_only, start_from


@dataclass(frozen=True)
class Place:
    """Where a run computes."""

    device: torch.device
    world: World
    """The processes that train together, of which this is one."""


@dataclass(frozen=True)
class Session:
    """A resolved recipe with its data, its model in training, and its evaluation on the way."""

    recipe: ResolvedRecipe
    data: Data
    place: Place
    train_step: TrainStep
    start_notes: tuple[str, ...] = ()
    """What of a model that starts from another one starts fresh, and why."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of what ``evaluate`` returns, the loss first."""
        return family_of(self.recipe.objective).training_metrics

    def notes(self) -> list[str]:
        """List what of the text a user would not expect, such as documents left out."""
        return list_data_warnings(self.recipe, self.data, self.train_step.batches)

    def evaluate(self) -> Scores:
        """Score the validation split as training does: part of it, in the precision of training.

        All processes enter, and share the work.
        """
        model = self.train_step.objective.model
        family = family_of(self.recipe.objective)
        place = self.place
        is_low = self.recipe.train.precision == "bfloat16"
        with torch.autocast(place.device.type, dtype=torch.bfloat16, enabled=is_low):
            scored = family.score(model, self.data.valid, self.recipe, "training", place.world)
        return scored.scores


def prepare_data(
    recipe: Recipe, say: Say = say_nothing, pretrained: Pretrained | None = None
) -> Data:
    """Prepare a recipe's data, with the tokenizer of the model that it starts from, if any.

    ``pretrained`` is that model, where the caller goes on to use it. What takes long is announced
    by ``say``. Raises ConfigError, DataError and CheckpointError.
    """
    pretrained = pretrained or Pretrained(recipe.init)
    data = prepare(recipe.data, tokenizer=pretrained.tokenizer, say=say)
    family_of(recipe.objective).check_text(recipe, data.train)
    return data


def assemble(
    recipe: ResolvedRecipe, data: Data, place: Place, pretrained: Pretrained | None = None
) -> Session:
    """Build the model of a resolved recipe, its objective and its optimizer.

    ``pretrained`` is the model that the recipe starts from, where the caller has read it. On a CPU
    the memory allocator of the whole process is set for training. Raises ConfigError where a step
    does not fit into memory, and CheckpointError where the weights that it starts from do not fit.
    """
    pretrained = pretrained or Pretrained(recipe.init)
    family = family_of(recipe.objective)
    family.check_scoring(recipe)
    check_memory(recipe, place)
    if place.device.type == "cpu":
        allocate_for_training(recomputes=recipe.train.recompute != "none")
    model = build(recipe.model, seed=recipe.train.seed).to(place.device)
    notes = start_from(model, pretrained)
    model.tokenizer = data.tokenizer
    objective = family.build(model, recipe.objective, recipe.train.seed)
    objective = objective.to(place.device)
    notes += note_training_only(objective, pretrained)
    batches = family.batches(recipe, data.train)
    train_step = TrainStep(recipe, objective, batches, device=place.device, world=place.world)
    return Session(recipe, data, place, train_step, tuple(notes))


def check_memory(recipe: ResolvedRecipe, place: Place) -> None:
    """Raise ConfigError where a step of a recipe takes more memory than there is."""
    # Apple's GPU has the memory of its machine.
    kind: DeviceKind = "cuda" if place.device.type == "cuda" else "cpu"
    check_training(recipe, device=kind, n_processes=place.world.size)
