"""A recipe made real: its data prepared, its model built and in training."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from sublayer.config.recipe import Recipe, ResolvedRecipe
from sublayer.config.resolve_train import check_shares
from sublayer.config.train import PREFIX, probe_folders
from sublayer.counts import count
from sublayer.data.prepare import Data
from sublayer.data.split import Split
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import ConfigError
from sublayer.estimate.cluster import check_training
from sublayer.estimate.micro_batch import DeviceKind
from sublayer.evaluation.probes import ReadProbe, ask, check_model, read_probes
from sublayer.model.build import build, compose
from sublayer.model.init import zero_padding
from sublayer.model.transformer import Transformer
from sublayer.objective.families import family_of
from sublayer.objective.family import Scores, describe_watched
from sublayer.runs.data_warnings import list_data_warnings
from sublayer.system.allocator import allocate_for_training
from sublayer.training.freezing import freeze
from sublayer.training.processes.parallel import begins_divided
from sublayer.training.processes.world import World
from sublayer.training.step import TrainStep
from sublayer.training.warm_start import Pretrained, note_training_only, start_from


@dataclass(frozen=True)
class Place:
    """Where a run computes."""

    device: torch.device
    world: World
    """The processes that train together, of which this is one."""
    trains: bool = True
    """Whether it is trained here, so that it has to fit; False: it is only planned."""


@dataclass(frozen=True)
class Session:
    """A resolved recipe with its data, its model in training, and its evaluation on the way."""

    recipe: ResolvedRecipe
    data: Data
    place: Place
    train_step: TrainStep
    start_notes: tuple[str, ...] = ()
    """What of a model that starts from another one starts fresh, and why."""
    probes: tuple[ReadProbe, ...] = ()
    """What every evaluation asks the model beside."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of what ``evaluate`` returns, the loss first where there is one."""
        own = self.recipe.objective.evaluations(self.recipe.data)
        names = [] if self.data.valid is None else [*own]
        for text in self.data.watched:
            names += [f"{text}/{name}" for name in own]
        names += [f"{PREFIX}/{each.probe.name}" for each in self.probes]
        return tuple(names)

    @property
    def task_scores(self) -> tuple[str, ...]:
        """The names of the scores of each task of a mixture; none elsewhere."""
        if self.recipe.objective.text != "tasks":
            return ()
        return tuple(name for name in self.metrics if name.endswith("/score"))

    def notes(self) -> list[str]:
        """List what of the text a user would not expect, such as documents left out."""
        notes = list_data_warnings(self.recipe, self.data, self.train_step.batches)
        shard = self.recipe.train.shard
        if shard != "none" and self.place.world.size == 1:
            notes.append(f"train.shard = {shard} divides nothing: there is one process")
        optimizer, steps = self.recipe.optimizer, self.recipe.train.steps
        warmup = optimizer.warmup_steps or 0
        if 2 * warmup > steps and optimizer.warmup != "constant":
            notes.append(
                f"the warm-up takes {warmup:,} of the run's {count(steps, 'step')}: "
                "optimizer.warmup_share=0.1 makes it a tenth of the run"
            )
        return notes

    def evaluate(self) -> Scores:
        """Score the validation split as training does: part of it, in the precision of training.

        With it the texts that are watched, whose scores begin with their names. All processes
        enter, and share the work.
        """
        with self.train_step.parallel.whole_weights():
            return self._scores()

    def _scores(self) -> dict[str, Any]:
        scores: dict[str, Any] = {}
        if self.data.valid is not None:
            scores.update(self._score(self.data.valid))
        for name, text in self.data.watched.items():
            for metric, value in self._score(text).items():
                scores[f"{name}/{metric}"] = value
        if self.probes:
            model = self.train_step.objective.model
            for each in ask(model, self.probes, self.recipe.data.context):
                scores[f"{PREFIX}/{each.name}"] = each.value
        return scores

    def describe_watched(self, scores: Scores) -> list[str]:
        """Say what each text that is watched scored, a line each."""
        return describe_watched(family_of(self.recipe.objective), scores)

    def _score(self, split: Split) -> Scores:
        model = self.train_step.objective.model
        family = family_of(self.recipe.objective)
        place = self.place
        is_low = self.recipe.train.precision == "bfloat16"
        with torch.autocast(place.device.type, dtype=torch.bfloat16, enabled=is_low):
            return family.score(model, split, self.recipe, "training", place.world).scores


def prepare_data(
    recipe: Recipe, pretrained: Pretrained | None = None, tokenizer: Tokenizer | None = None
) -> Data:
    """Prepare a recipe's data, with the tokenizer of the model that it starts from, if any.

    ``pretrained`` is that model, where the caller continues to use it; ``tokenizer`` the one that
    the run that resumes has trained. Raises ConfigError, DataError and CheckpointError.
    """
    pretrained = pretrained or Pretrained(recipe.init)
    data = family_of(recipe.objective).prepare(recipe, tokenizer or pretrained.tokenizer)
    if data.valid is None and recipe.train.best_by != "last":
        raise ConfigError(
            f"train.best_by = {recipe.train.best_by} needs a validation split, and nothing is held "
            "out for one: give train.best_by = last"
        )
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
    check_place(recipe, place)
    if place.device.type == "cpu":
        allocate_for_training(
            recomputes=recipe.train.recompute != "none",
            is_divided=recipe.train.shard != "none" and place.world.size > 1,
        )
    seed = recipe.train.seed
    is_divided = begins_divided(place.world, recipe.train, recipe.init)
    # What is drawn in parts has no values before it is divided.
    building = torch.device("meta") if is_divided else nullcontext()
    with building:
        model = compose(recipe.model) if is_divided else build(recipe.model, seed=seed)
    if recipe.model.zero_padding and not is_divided:
        zero_padding(model.embedding.weight, data.tokenizer.pad_id)
    model.tokenizer = data.tokenizer
    model.task = family.describe_task(recipe, data)
    notes = start_from(model, pretrained)
    with building:
        objective = family.build(model, recipe.objective, seed)
    if not is_divided:
        objective = objective.to(place.device)
    notes += note_training_only(objective, pretrained)
    notes += freeze(objective, recipe.init)
    batches = family.batches(recipe, data.train)
    train_step = TrainStep(recipe, objective, batches, device=place.device, world=place.world)
    probes = _read_probes(recipe, model)
    return Session(recipe, data, place, train_step, tuple(notes), probes)


def _read_probes(recipe: ResolvedRecipe, model: Transformer) -> tuple[ReadProbe, ...]:
    asked = probe_folders(recipe.train.probes)
    if asked:
        check_model(model, "the model")
    read = []
    for name, folder in asked.items():
        read += read_probes([name], folder)
    return tuple(read)


def check_place(recipe: ResolvedRecipe, place: Place) -> None:
    """Raise ConfigError where a step is too little for the processes, or too much for memory."""
    check_shares(recipe, place.world.size, is_gpu=place.device.type != "cpu")
    if not place.trains:
        return
    # Apple's GPU has the memory of its machine.
    kind: DeviceKind = "cuda" if place.device.type == "cuda" else "cpu"
    check_training(recipe, device=kind, n_processes=place.world.size)
