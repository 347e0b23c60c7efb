"""Peak memory of each of several processes, from the settings alone.

Sizes are bytes. ``benchmarks/processes_memory.py`` holds them against processes that talk through
gloo.
"""

from dataclasses import dataclass, replace
from typing import Self

from sublayer.config.architecture.stacks import stacks
from sublayer.config.optimizers.kinds import OptimizerConfig
from sublayer.estimate.cluster.group import Group, Units, units_of
from sublayer.estimate.cost import count_parameters
from sublayer.estimate.frozen import n_frozen_parameters
from sublayer.estimate.memory import holes, training_memory, update_work
from sublayer.estimate.micro_batch import FLOAT32_BYTES, MicroBatch
from sublayer.estimate.optimizer_states import n_states
from sublayer.estimate.peaks import Peaks, peaks_of_pass
from sublayer.estimate.saved_by_blocks import block_activations
from sublayer.estimate.sublayers.table import estimate_of

_EXCHANGED = 1 << 24
"""Bytes of gradients that ``exact`` exchanges at a time, at least."""


@dataclass(frozen=True)
class ProcessMemory:
    """Bytes that one process holds, beside the program itself."""

    weights: int
    """Its own, in float32."""
    gradients: int
    """Its own; all of them where several micro-batches are summed before they are divided."""
    optimizer: int
    """Its own states, without what is whole in each of Adafactor's means: next to nothing."""
    gathered: int
    """The weights of others at the most, and what is on its way to them."""
    activations: int
    """What the backward pass needs, and a kernel's most work memory."""
    step: int
    """The peak of a step. Not all of what is above is there at once."""
    building: int
    """The peak as the model is built: in parts, of which one parameter is whole at a time."""
    evaluating: int
    """With all weights gathered, as each evaluation has them; what it computes is not counted."""
    total: int
    """The highest peak, with what the allocator holds between tensors, and ``saving``."""
    saving: int = 0
    """Copies that a checkpoint is written from while training goes on; of whole copies, the first
    process's."""

    def beside_saving(self) -> Self:
        """Return what it is with copies of weights and states in the same memory."""
        saving = self.weights + self.optimizer
        return replace(self, saving=saving, total=self.total + saving)


@dataclass(frozen=True)
class _Sizes:
    """What one process would hold alone, and what all have of updates."""

    units: Units
    weights: int
    gradients: int
    states: int
    peaks: Peaks
    update: int


def process_memory(
    step: MicroBatch, optimizer: OptimizerConfig, *, n_passes: int, group: Group
) -> ProcessMemory:
    """Estimate what each process of a group holds, where it has ``n_passes`` micro-batches a step.

    ``step`` is one of them.
    """
    sizes = _sizes(step, optimizer, is_divided=group.is_divided)
    if group.exact:
        return _exact(step, sizes, n_passes, group.size)
    if group.is_divided:
        return _divided(step, sizes, n_passes, group)
    if group.size > 1:
        return _replicated(step, sizes, n_passes)
    alone = training_memory(step, optimizer, n_passes=n_passes)
    return ProcessMemory(
        weights=alone.weights,
        gradients=alone.gradients,
        optimizer=alone.optimizer,
        gathered=0,
        activations=alone.activations,
        step=alone.tensors,
        building=alone.weights,
        evaluating=alone.weights + alone.optimizer,
        total=alone.total,
    )


def _sizes(step: MicroBatch, optimizer: OptimizerConfig, *, is_divided: bool) -> _Sizes:
    n_parameters = count_parameters(step.config, step.objective).training
    n_trained = n_parameters - n_frozen_parameters(step.config, step.frozen)
    gradients = FLOAT32_BYTES * n_trained
    return _Sizes(
        units=units_of(step.config, step.objective),
        weights=FLOAT32_BYTES * n_parameters,
        gradients=gradients,
        states=FLOAT32_BYTES * n_states(step.config, step.objective, optimizer, step.frozen),
        peaks=peaks_of_pass(step),
        update=update_work(step, optimizer, gradients, is_divided=is_divided),
    )


def _replicated(step: MicroBatch, sizes: _Sizes, n_passes: int) -> ProcessMemory:
    """Estimate a whole copy: its gradients stay, in the buckets in which they are summed.

    Those of micro-batches before the last are summed beside the buckets, and so are those of what
    is used several times, until its last use.
    """
    beside = sizes.gradients if n_passes > 1 else 0
    staying = sizes.weights + sizes.states + sizes.gradients
    backward = max(sizes.peaks.activations, _backwards(step, sizes))
    moving = max(beside + backward, sizes.update)
    return ProcessMemory(
        weights=sizes.weights,
        gradients=sizes.gradients + beside,
        optimizer=sizes.states,
        gathered=0,
        activations=sizes.peaks.activations,
        step=staying + moving,
        building=sizes.weights + sizes.gradients,
        evaluating=staying,
        total=staying + round((1 + holes(step, n_passes)) * moving),
    )


def _divided(step: MicroBatch, sizes: _Sizes, n_passes: int, group: Group) -> ProcessMemory:
    """Estimate a part of the model, where weights are gathered as they are needed."""
    n, units, peaks = group.size, sizes.units, sizes.peaks
    held = sizes.gradients if n_passes > 1 else 0
    if group.shard == "full":
        in_loss = units.root
        in_blocks = units.root + 2 * units.largest_block  # the next one is gathered ahead
    else:
        in_loss = in_blocks = units.total
    # A block's gradients, and those of the one before it as they are sent.
    sent = 2 * units.largest_block
    loss = held + in_loss + peaks.in_loss
    blocks = held + in_blocks + sent + _backwards(step, sizes)
    # The root goes last, with its gradients as they came and as they are sent.
    of_blocks = max(0, sizes.gradients - units.root)
    end = 2 * units.root + (units.root + of_blocks) // n + units.largest_block
    update = (sizes.gradients + sizes.update) // n
    moving = max(loss, blocks, end, update)
    staying = (sizes.weights + sizes.states) // n
    if group.begins_whole:
        building = units.total + max(units.root, units.largest_block) // n
    else:
        building = units.total // n + max(units.root, units.largest_block)
    evaluating = staying + units.total
    between = round(holes(step, n_passes, is_returned=True) * moving)
    return ProcessMemory(
        weights=sizes.weights // n,
        gradients=held or sizes.gradients // n,
        optimizer=sizes.states // n,
        gathered=max(in_loss, in_blocks + sent),
        activations=peaks.activations,
        step=staying + moving,
        building=building,
        evaluating=evaluating,
        total=max(staying + moving + between, building, evaluating),
    )


def _backwards(step: MicroBatch, sizes: _Sizes) -> int:
    """Compute what a pass holds as blocks go backwards, with the gradients that stay to its end.

    Those are the root's: of the output matrix from the loss on, and of what blocks share from the
    first of them on, which is the last that is executed.
    """
    config = step.config
    stack = stacks(config)[-1]
    in_blocks = sizes.peaks.in_blocks - _added_up(step)
    if stack.n_layers > 1 and not step.recomputes:
        later = in_blocks - block_activations(step, stack) + sizes.units.root
    else:
        later = in_blocks + sizes.units.root
    matrix = FLOAT32_BYTES * config.vocab_size * config.d_embed
    return max(in_blocks + matrix, later)


def _added_up(step: MicroBatch) -> int:
    """Compute the sums of gradients in a sub-layer's work: those of its unit, counted with it."""
    sizes = []
    for entry in stacks(step.config)[-1].block:
        estimate = estimate_of(step.config, entry)
        sizes.append(FLOAT32_BYTES * estimate.n_backward_maps * estimate.n_matrix)
    return max(sizes)


def _exact(step: MicroBatch, sizes: _Sizes, n_passes: int, n_processes: int) -> ProcessMemory:
    """Estimate a whole copy with a sum of gradients for each level of the tree."""
    gradients = sizes.gradients
    most, left = tree_sums(n_passes)
    pass_peak = max(sizes.peaks.activations, sizes.peaks.last_block + gradients)
    backward = (most - 1) * gradients + pass_peak
    exchange = 0
    if n_processes > 1:
        part = min(gradients, max(_EXCHANGED, FLOAT32_BYTES * _largest(step)))
        exchange = (left + 1) * gradients + 3 * left * part
    staying = sizes.weights + sizes.states
    moving = max(backward, exchange, gradients + sizes.update)
    return ProcessMemory(
        weights=sizes.weights,
        gradients=most * gradients,
        optimizer=sizes.states,
        gathered=0,
        activations=sizes.peaks.activations,
        step=staying + moving,
        building=sizes.weights,
        evaluating=staying,
        total=staying + round((1 + holes(step, n_passes)) * moving),
    )


def _largest(step: MicroBatch) -> int:
    return step.config.vocab_size * step.config.d_embed


def tree_sums(n_parts: int) -> tuple[int, int]:
    """Count a process's sums of gradients in a binary tree: the most, with the newest; at the end.

    A sum of ``2**level`` parts is joined with another of as many. The parts begin at a multiple of
    their number, as those of every process do where all have equally many.
    """
    most = max(bin(n_before).count("1") + 1 for n_before in range(n_parts))
    return most, bin(n_parts).count("1")
