"""What autograd saves of a micro-batch, and what an optimizer step allocates, as measured."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from sublayer.config.layering.layers import load_recipe
from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.config.optimizers.kinds import OptimizerConfig
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import resolve_optimizer, resolve_train
from sublayer.data.batches import Batch, Batches
from sublayer.data.packed_batch import PackedBatch
from sublayer.estimate.memory import training_memory
from sublayer.estimate.micro_batch import MicroBatch
from sublayer.estimate.saved_by_pass import saved_activations, saved_casts
from sublayer.model.build import build
from sublayer.objective.base import Objective
from sublayer.objective.families import family_of
from sublayer.objective.supervised.synthetic import SyntheticExamples
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec
from sublayer.training.processes.world import World
from sublayer.training.step import TrainStep

from .configurations import SEQUENCES, VOCAB_SIZE


def build_objective(step: MicroBatch) -> Objective:
    model = build(step.config, seed=0)
    if isinstance(step.objective, SupervisedObjective):
        task = {"joint": "squad2", "independent": "squad", "none": "mnli"}[step.config.span_head]
        model.task = TaskSpec((TASKS[task],), step.objective.format, step.context)
    return family_of(step.objective).build(model, step.objective, 0)


def make_batch(step: MicroBatch) -> Batch | PackedBatch:
    return make_batches(step, SEQUENCES).batch(0)


def make_batches(step: MicroBatch, n_sequences: int) -> Batches:
    objective = step.objective
    if isinstance(objective, SupervisedObjective):
        has_encoder = step.config.kind == "encoder-decoder"
        n_predicted = 0 if has_encoder else objective.n_predictions(step.lengths.written)
        return SyntheticExamples(
            VOCAB_SIZE, step.lengths, n_sequences, n_predicted=n_predicted, has_encoder=has_encoder
        )
    settings = {"data.context": step.context, "train.batch_sequences": n_sequences}
    recipe = load_recipe("gpt", settings).recipe
    recipe = recipe.model_copy(update={"model": step.config, "objective": objective})
    return family_of(objective).synthetic(recipe, VOCAB_SIZE)


@contextmanager
def saved_storages(sizes: dict[int, int]) -> Iterator[None]:
    """Collect the storages that autograd saves while entered, by address; views count once."""

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield


def check_saved(step: MicroBatch, rel: float = 0.03) -> None:
    estimated = saved_activations(step) + saved_casts(step)
    assert estimated == pytest.approx(saved_bytes(step), rel=rel)


def saved_bytes(step: MicroBatch) -> int:
    """Measure what autograd saves of a micro-batch beside the parameters."""
    objective, batch = build_objective(step).train(), make_batch(step)
    sizes: dict[int, int] = {}
    is_narrow = step.precision == "bfloat16"
    with saved_storages(sizes), torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_narrow):
        total = sum(objective(batch).values(), torch.zeros(()))
    for parameter in objective.parameters():
        sizes.pop(parameter.untyped_storage().data_ptr(), None)
    assert total.requires_grad
    return sum(sizes.values())


def check_allocated(step, optimizer, n_passes=1, *, with_onednn=False):
    """Assert that an optimizer step allocates as much as is estimated; return the estimate."""
    take_step = make_step(step, optimizer, n_passes)
    take_step(0)  # makes the optimizer's state
    estimated = training_memory(step, optimizer, n_passes=n_passes)
    moving = estimated.tensors - estimated.weights - estimated.optimizer
    assert moving == pytest.approx(allocated_peak(take_step, with_onednn=with_onednn), rel=0.1)
    return estimated


def make_step(step: MicroBatch, optimizer: OptimizerConfig, n_passes: int) -> TrainStep:
    batch = step.sequences * n_passes
    settings = {"data.context": step.context, "train.batch_sequences": batch, "train.threads": 1}
    settings |= {"train.micro_batch_sequences": step.sequences, "train.precision": step.precision}
    settings |= {"train.recompute": "blocks" if step.recomputes else "none"}
    recipe: Recipe = load_recipe("gpt", settings).recipe
    train = resolve_train(recipe, steps=9, valid_tokens=step.context, is_gpu=False, threads=1)
    filled = {"train": train, "optimizer": resolve_optimizer(optimizer, steps=9)}
    resolved = recipe.model_copy(update={"model": step.config, **filled})
    objective, device, world = build_objective(step), torch.device("cpu"), World(rank=0, size=1)
    return TrainStep(resolved, objective, make_batches(step, batch), device=device, world=world)


def allocated_peak(take_step: TrainStep, *, with_onednn: bool = False) -> int:
    """Measure the most bytes that a step holds beyond those before it.

    Without what oneDNN copies for its products, which differs from processor to processor and which
    no estimate of tensors counts; what it keeps of an LSTM is a tensor.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.backends.mkldnn, "enabled", with_onednn)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            take_step(1)
    assert profiler.profiler is not None and profiler.profiler.kineto_results is not None
    events = sorted(
        (each for each in profiler.profiler.kineto_results.events() if each.name() == "[memory]"),
        key=lambda event: event.start_ns(),
    )
    return int(np.cumsum([event.nbytes() for event in events]).max())
