"""Peak memory of a training step from the config alone.

Made of parameters, optimizer states, tensors of the passes, and kernels' working memory; tested
against what autograd keeps, and against whole processes. Configs are resolved. Sizes are bytes,
counts are of numbers. Where bfloat16 is emulated, which no run chooses by itself, its products make
copies in float32 that are not counted.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

from sublayer.config.architecture import POSITIONS, Entry
from sublayer.config.objective import ObjectiveTable
from sublayer.config.optimizers import OptimizerConfig, Shape
from sublayer.config.recipe import ResolvedModel
from sublayer.config.roles import Role
from sublayer.config.stacks import embedding_width, n_frozen_sets, stacks
from sublayer.config.train import NOTHING, Frozen
from sublayer.estimate.activations import Peaks, peaks_of_pass
from sublayer.estimate.cost import (
    all_classifiers,
    count_parameters,
    embedding_parameters,
    entry_parameters,
    entry_sets,
)
from sublayer.model.kernels.sizes import CPU_UPDATE_PART, GPU_UPDATE_PART
from sublayer.model.layers.estimates import estimate_of
from sublayer.model.micro_batch import FLOAT32_BYTES, MicroBatch, Precision

_UPDATE_PART = {"cpu": CPU_UPDATE_PART, "cuda": GPU_UPDATE_PART}
_HOLES: dict[Precision, float] = {"float32": 0.27, "bfloat16": 0.38}
_HOLES_AGAIN: dict[Precision, float] = {"float32": 0.36, "bfloat16": 0.48}
"""Fragmentation: memory that the allocator holds between tensors, as a share of those that move.

Weights and the optimizer's states stay. This memory is free, but in pieces too small for the next
tensor. It is more with several passes, where the gradients of the first are in the way of the next.
The tests hold whole processes to 10 % of it.
"""
_HOLES_OF_LSTM = 0.15
"""Of an LSTM, whose layers each keep one large tensor, and few small ones."""
_BESIDE_RETURNED: dict[Precision, float] = {"float32": 0.0, "bfloat16": 0.1}
"""The same where blocks are computed again, for which freed memory goes back at once."""


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes that a process holds as it trains, beside the program itself."""

    weights: int
    """Its own, in float32 under either precision, the heads that only training needs included."""
    gradients: int
    """Its own; all of them where several micro-batches are summed before they are divided."""
    optimizer: int
    """Its own states: the numbers that the optimizer keeps of each parameter between steps. Without
    those of Adafactor's means that are whole in each process: next to nothing."""
    gathered: int
    """The weights of others at the most, and gradients on their way to them; 0 of one process."""
    activations: int
    """Tensors for the backward pass, casts of weights included, and a kernel's most work memory."""
    step: int
    """The peak of all that a step allocates.

    It may be less than the sum of those above: the first backward pass begins without gradients,
    the optimizer's step needs no activations.
    """
    building: int
    """The peak as the model is built: in parts, of which one parameter is whole at a time."""
    evaluating: int
    """With all weights gathered, as each evaluation has them; its activations are not counted."""
    total: int
    """The process's memory at the highest peak, with the holes that the allocator holds between
    tensors, and ``saving``."""
    saving: int = 0
    """Copies that a checkpoint is written from while training goes on; of whole copies, the first
    process's."""

    def beside_saving(self) -> Self:
        """Return the same with copies of weights and states in the same memory."""
        saving = self.weights + self.optimizer
        return replace(self, saving=saving, total=self.total + saving)


@dataclass(frozen=True)
class StepSizes:
    """Bytes of the parts of a step, before any of them are divided among processes."""

    weights: int
    gradients: int
    states: int
    peaks: Peaks
    update: int
    """Beside states and gradients."""


def step_sizes(
    step: MicroBatch, optimizer: OptimizerConfig, *, is_divided: bool = False
) -> StepSizes:
    """Compute the parts of an optimizer step, of which ``step`` is one pass: a micro-batch.

    Parameters that are frozen have neither gradients nor states; a pass may keep less of them than
    is counted.
    """
    n_parameters = count_parameters(step.config, step.objective).training
    n_trained = n_parameters - n_frozen_parameters(step.config, step.frozen)
    return StepSizes(
        weights=FLOAT32_BYTES * n_parameters,
        gradients=FLOAT32_BYTES * n_trained,
        states=FLOAT32_BYTES * n_states(step.config, step.objective, optimizer, step.frozen),
        peaks=peaks_of_pass(step),
        update=update_work(step, optimizer, n_trained, is_divided=is_divided),
    )


def training_memory(
    step: MicroBatch, optimizer: OptimizerConfig, *, n_passes: int
) -> TrainingMemory:
    """Estimate the peak memory of one process whose steps have ``n_passes`` equal passes.

    ``step`` is one of them. Several passes hold the gradients of those before.
    """
    sizes = step_sizes(step, optimizer)
    backward = sizes.peaks.activations + sizes.gradients
    if n_passes == 1:
        # Gradients are not there before the backward pass makes them.
        backward = max(sizes.peaks.activations, sizes.peaks.last_block + sizes.gradients)
    moving = max(backward, sizes.gradients + sizes.update)
    return whole_copy(step, sizes, n_passes, moving=moving)


def whole_copy(
    step: MicroBatch,
    sizes: StepSizes,
    n_passes: int,
    *,
    moving: int,
    gradients: int | None = None,
    kept: int = 0,
) -> TrainingMemory:
    """Add up the memory of a process that has all weights and states, which stay.

    ``moving`` is the peak of all else, ``gradients`` are those of a step unless given, of which
    ``kept`` stay with the weights.
    """
    staying = sizes.weights + sizes.states + kept
    return TrainingMemory(
        weights=sizes.weights,
        gradients=sizes.gradients if gradients is None else gradients,
        optimizer=sizes.states,
        gathered=0,
        activations=sizes.peaks.activations,
        step=staying + moving,
        building=sizes.weights + kept,
        evaluating=staying,
        total=staying + round((1 + holes(step, n_passes)) * moving),
    )


def holes(step: MicroBatch, n_passes: int, *, is_returned: bool = False) -> float:
    """Return the memory that the allocator holds between tensors, as a share of those that move.

    ``is_returned``: freed memory goes back to the system, as it does where blocks are recomputed.
    """
    if step.device == "cuda":
        return 0.0
    if step.recomputes or is_returned:
        return _BESIDE_RETURNED[step.precision]
    if step.config.kind == "lstm":
        return _HOLES_OF_LSTM
    shares = _HOLES if n_passes == 1 else _HOLES_AGAIN
    return shares[step.precision]


def n_states(
    config: ResolvedModel,
    objective: ObjectiveTable,
    optimizer: OptimizerConfig,
    frozen: Frozen = NOTHING,
) -> int:
    """Count the numbers that an optimizer keeps of all parameters that are not frozen.

    Its counts of steps take next to nothing and are left out. The state of a matrix which
    ``matrix_shapes`` leaves out is counted as a vector's.
    """
    shapes = matrix_shapes(config, objective)
    shapes.subtract(_frozen_shapes(config, frozen))
    n_left = count_parameters(config, objective).training - n_frozen_parameters(config, frozen)
    total = 0
    for (role, shape), n_matrices in shapes.items():
        kept = optimizer.state_shapes(shape, role).values()
        total += n_matrices * sum(math.prod(kept_shape) for kept_shape in kept if kept_shape)
        n_left -= n_matrices * math.prod(shape)
    return total + optimizer.states_per_vector * n_left


def matrix_shapes(config: ResolvedModel, objective: ObjectiveTable) -> Counter[tuple[Role, Shape]]:
    """Count the matrices of blocks and vocabulary by role and the shape in which they are stored.

    Left out are tables of positions and segments, the maps on either side of the blocks, the
    pooler and its readers, and the parameters that a row of a table adds without their shapes.
    """
    sets = ((entry, n_sets) for _, entry, n_sets in entry_sets(config))
    shapes = _shapes_of_entries(config, sets)
    table = config.vocab_size, config.d_embed
    shapes["embedding", table] += 1
    shapes["head", table] += not config.tie_embeddings
    shapes["head", (config.vocab_size, config.d_model)] += all_classifiers(config, objective)
    return +shapes


def _shapes_of_entries(
    config: ResolvedModel, sets: Iterable[tuple[Entry, int]]
) -> Counter[tuple[Role, Shape]]:
    """Count the matrices of entries of blocks, of which there are so many sets of weights."""
    shapes: Counter[tuple[Role, Shape]] = Counter()
    for entry, n_sets in sets:
        for shape in estimate_of(config, entry).matrix_shapes():
            shapes["stacked" if len(shape) > 2 else "matrix", shape] += n_sets
    return shapes


def n_frozen_parameters(config: ResolvedModel, frozen: Frozen) -> int:
    """Count the parameters of the parts that are frozen, as they are built."""
    positions = POSITIONS[config.positions]
    total = embedding_parameters(config) if frozen.embeddings else 0
    if frozen.embeddings and positions.has_rows:
        total += len(stacks(config)) * config.max_len * embedding_width(config)
    if frozen.n_layers and positions.adds_before == "every":
        total += (frozen.n_layers - 1) * config.max_len * config.d_model
    for entry, n_sets in _frozen_sets(config, frozen):
        total += n_sets * entry_parameters(config, entry)
    return total


def _frozen_shapes(config: ResolvedModel, frozen: Frozen) -> Counter[tuple[Role, Shape]]:
    """Count the frozen matrices of those that ``matrix_shapes`` counts."""
    shapes = _shapes_of_entries(config, _frozen_sets(config, frozen))
    if frozen.embeddings:
        shapes["embedding", (config.vocab_size, config.d_embed)] += 1
    return shapes


def _frozen_sets(config: ResolvedModel, frozen: Frozen) -> Iterator[tuple[Entry, int]]:
    """Yield the entries of blocks, with the sets of weights that are frozen."""
    if frozen.n_layers:
        (stack,) = stacks(config)
        yield from zip(stack.block, n_frozen_sets(config, frozen.n_layers), strict=True)


def update_work(
    step: MicroBatch, optimizer: OptimizerConfig, n_trained: int, *, is_divided: bool = False
) -> int:
    """Compute the bytes of an update beside states, of ``n_trained`` parameters."""
    matrices = matrix_shapes(step.config, step.objective)
    n_together = _UPDATE_PART[step.device]
    return FLOAT32_BYTES * optimizer.update_numbers(
        n_trained, matrices, n_together, is_divided=is_divided
    )
