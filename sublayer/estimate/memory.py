"""Peak memory of a training step, from the config only.

Parameters, optimizer states, activations, and working memory of kernels; tested against the tensors
that autograd keeps, and against the memory of processes. Configs are resolved. Sizes are bytes,
counts are of numbers. Emulated bfloat16, which no run chooses by default, makes float32 copies that
are not counted.
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
from sublayer.model.estimates import FLOAT32_BYTES, MicroBatch, Precision, estimate_of
from sublayer.model.kernels.sizes import CPU_UPDATE_PART, GPU_UPDATE_PART

_UPDATE_PART = {"cpu": CPU_UPDATE_PART, "cuda": GPU_UPDATE_PART}
_HOLES: dict[Precision, float] = {"float32": 0.27, "bfloat16": 0.38}
_HOLES_AGAIN: dict[Precision, float] = {"float32": 0.36, "bfloat16": 0.48}
"""Fragmentation: memory held between tensors, as a share of the tensors that move.

Weights and optimizer states do not move. This memory is free, but in pieces too small for the next
tensor; it grows with several passes, where gradients of the first split it. Tests hold the estimate
to within 10 % of a process's memory.
"""
_HOLES_OF_LSTM = 0.15
"""For an LSTM, whose layers keep one large tensor and few small ones."""
_BESIDE_RETURNED: dict[Precision, float] = {"float32": 0.0, "bfloat16": 0.1}
"""For recomputed blocks, whose freed memory returns to the system at once."""


@dataclass(frozen=True)
class TrainingMemory:
    """Memory of a training process in bytes, besides the program."""

    weights: int
    """The process's weights, in float32 under either precision, training-only heads included."""
    gradients: int
    """The process's gradients; all gradients if several micro-batches are summed before
    sharding."""
    optimizer: int
    """The process's optimizer states. Adafactor's means, unsharded and negligible, are not
    counted."""
    gathered: int
    """Most gathered weights of other processes, and gradients in transit; 0 for one process."""
    activations: int
    """Tensors saved for the backward pass, casts of weights included, and the largest kernel
    workspace."""
    step: int
    """Peak of all allocations of a step.

    It may be less than the sum of the above: the first backward pass begins without gradients, the
    optimizer step needs no activations.
    """
    building: int
    """Peak while the model is built: if in parts, with one full parameter at a time."""
    evaluating: int
    """Memory with all weights gathered, as in an evaluation, without its activations."""
    total: int
    """The process's memory at the highest peak, with fragmentation and ``saving``."""
    saving: int = 0
    """Copies for a checkpoint written during training; of full copies, only the first process's."""

    def beside_saving(self) -> Self:
        """Return the same memory with checkpoint copies of weights and states."""
        saving = self.weights + self.optimizer
        return replace(self, saving=saving, total=self.total + saving)


@dataclass(frozen=True)
class StepSizes:
    """Bytes of the parts of a step, before any sharding."""

    weights: int
    gradients: int
    states: int
    peaks: Peaks
    update: int
    """Besides states and gradients."""


def step_sizes(
    step: MicroBatch, optimizer: OptimizerConfig, *, is_divided: bool = False
) -> StepSizes:
    """Compute the parts of an optimizer step from ``step``, one pass over a micro-batch.

    Frozen parameters have neither gradients nor states; a pass may keep less for them than is
    counted.
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

    ``step`` is one pass. Later passes hold the gradients of earlier ones.
    """
    sizes = step_sizes(step, optimizer)
    backward = sizes.peaks.activations + sizes.gradients
    if n_passes == 1:
        # Gradients exist only from the backward pass on.
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
    """Add up the memory of a process that keeps all weights and states.

    ``moving`` is the peak of all else; ``gradients`` are by default a step's, of which ``kept``
    stay with the weights.
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
    """Return the fragmentation: free memory between tensors, as a share of the tensors that move.

    ``is_returned``: freed memory returns to the system, as with recomputed blocks.
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
    """Count the numbers in the optimizer states of all trained parameters.

    Step counters are negligible and left out. A matrix that ``matrix_shapes`` leaves out counts as
    a vector.
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
    """Count the matrices of blocks and vocabulary by role and stored shape.

    Left out: tables of positions and segments, the maps before and after the blocks, the pooler and
    its readers, and a table row's extra parameters without shapes.
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
    """Count the matrices of block entries by shape, times their number of weight sets."""
    shapes: Counter[tuple[Role, Shape]] = Counter()
    for entry, n_sets in sets:
        for shape in estimate_of(config, entry).matrix_shapes():
            shapes["stacked" if len(shape) > 2 else "matrix", shape] += n_sets
    return shapes


def n_frozen_parameters(config: ResolvedModel, frozen: Frozen) -> int:
    """Count the parameters of the frozen parts, as built."""
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
    """Count the frozen matrices among those of ``matrix_shapes``."""
    shapes = _shapes_of_entries(config, _frozen_sets(config, frozen))
    if frozen.embeddings:
        shapes["embedding", (config.vocab_size, config.d_embed)] += 1
    return shapes


def _frozen_sets(config: ResolvedModel, frozen: Frozen) -> Iterator[tuple[Entry, int]]:
    """Yield the block entries with their frozen sets of weights."""
    if frozen.n_layers:
        (stack,) = stacks(config)
        yield from zip(stack.block, n_frozen_sets(config, frozen.n_layers), strict=True)


def update_work(
    step: MicroBatch, optimizer: OptimizerConfig, n_trained: int, *, is_divided: bool = False
) -> int:
    """Compute the bytes of an update of ``n_trained`` parameters, besides states."""
    matrices = matrix_shapes(step.config, step.objective)
    n_together = _UPDATE_PART[step.device]
    return FLOAT32_BYTES * optimizer.update_numbers(
        n_trained, matrices, n_together, is_divided=is_divided
    )
