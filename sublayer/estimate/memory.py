"""Peak memory of a training step from the config alone.

Made of what blocks and what stands around them keep, and of kernels' working memory; tested against
what autograd keeps, and against whole processes. Configs are resolved. Sizes are bytes. Where
bfloat16 is emulated, which no run chooses by itself, its products make copies in float32 that are
not counted.
"""

from dataclasses import dataclass, replace
from typing import Self

from sublayer.config.architecture.stacks import stacks
from sublayer.config.optimizers.adafactor import AdafactorConfig
from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.config.optimizers.kinds import OptimizerConfig
from sublayer.config.optimizers.lamb import LambConfig
from sublayer.config.optimizers.sgd import SgdConfig
from sublayer.config.resolved import ResolvedModel
from sublayer.estimate.cost import count_parameters, n_copies
from sublayer.estimate.frozen import n_frozen_parameters
from sublayer.estimate.micro_batch import FLOAT32_BYTES, MicroBatch, Precision
from sublayer.estimate.optimizer_states import adafactor_work, n_states
from sublayer.estimate.peaks import peaks_of_pass
from sublayer.estimate.sublayers.table import estimate_of

_HOLES: dict[Precision, float] = {"float32": 0.27, "bfloat16": 0.38}
_HOLES_AGAIN: dict[Precision, float] = {"float32": 0.36, "bfloat16": 0.48}
"""Fragmentation: what the allocator holds beside a step's tensors, as a share of those that move.

Weights and the optimizer's states stay. What is held is free, but in pieces too small for the next
tensor. It is more with several passes, where the gradients of the first are in the way of the next.
The tests hold whole processes to 10 % of it.
"""
_HOLES_OF_LSTM = 0.15
"""Of an LSTM, whose layers each keep one large tensor, and few small ones."""
_BESIDE_RETURNED: dict[Precision, float] = {"float32": 0.0, "bfloat16": 0.1}
"""The same where blocks are computed again, for which freed memory goes back at once."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a training step holds at its peak, beside the program itself."""

    weights: int
    """In float32 under either precision, the heads that only training needs included."""
    gradients: int
    optimizer: int
    """Its states: what it keeps of each parameter between steps."""
    activations: int
    """What the backward pass needs, casts of weights included, and a kernel's most work memory."""
    tensors: int
    """The peak of all that is allocated.

    It may be less than the sum of those above: the first backward pass begins without gradients,
    the optimizer's step needs no activations.
    """
    total: int
    """What the process takes for that, the holes between tensors and ``saving`` included."""
    saving: int = 0
    """Copies that a checkpoint is written from while training goes on."""

    def beside_saving(self) -> Self:
        """Return what it is with copies of weights and states in the same memory."""
        saving = self.weights + self.optimizer
        return replace(self, saving=saving, total=self.total + saving)


def training_memory(
    step: MicroBatch, optimizer: OptimizerConfig, *, n_passes: int
) -> MemoryEstimate:
    """Estimate the peak memory of an optimizer step of ``n_passes`` equal passes.

    ``step`` is one of them: a micro-batch. Several passes hold the gradients of those before. What
    is frozen has neither gradients nor states; a pass may keep less of it than is counted.
    """
    n_parameters = count_parameters(step.config, step.objective).training
    weights = FLOAT32_BYTES * n_parameters
    n_trained = n_parameters - n_frozen_parameters(step.config, step.frozen)
    gradients = FLOAT32_BYTES * n_trained
    states = FLOAT32_BYTES * n_states(step.config, step.objective, optimizer, step.frozen)
    peaks = peaks_of_pass(step)
    backward = peaks.activations + gradients
    if n_passes == 1:
        # Gradients are not there before the backward pass makes them.
        backward = max(peaks.activations, peaks.last_block + gradients)
    update = gradients + update_work(step, optimizer, gradients)
    staying = weights + states
    moving = max(backward, update)
    moving_and_holes = round((1 + holes(step, n_passes)) * moving)
    return MemoryEstimate(
        weights=weights,
        gradients=gradients,
        optimizer=states,
        activations=peaks.activations,
        tensors=staying + moving,
        total=staying + moving_and_holes,
    )


def holes(step: MicroBatch, n_passes: int, *, is_returned: bool = False) -> float:
    """Return what the allocator holds between tensors, as a share of those that move.

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


def update_work(
    step: MicroBatch, optimizer: OptimizerConfig, trained: int, *, is_divided: bool = False
) -> int:
    """Compute the bytes of a step beside states: decayed gradients, or updates to be added.

    ``trained`` are the bytes of what is trained. Where that is divided among processes, what goes
    by norms of whole matrices keeps all updates until these are exchanged.
    """
    match optimizer:
        case SgdConfig():
            return trained if optimizer.weight_decay > 0 else 0
        case AdamWConfig():
            return 0 if optimizer.is_as_published else trained
        case LambConfig() | AdafactorConfig() if is_divided:
            return trained
        case LambConfig():
            # Stacked matrices have their turn apart from the rest.
            stacked = FLOAT32_BYTES * _n_stacked(step.config)
            return max(stacked, trained - stacked)
        case AdafactorConfig():
            work = adafactor_work(step.config, step.objective, optimizer, step.device)
            return FLOAT32_BYTES * work
        case _:
            return 0


def _n_stacked(config: ResolvedModel) -> int:
    """Count the numbers of all matrices that are stored together with others."""
    total = 0
    for stack in stacks(config):
        for entry in stack.block:
            total += n_copies(config, stack, entry) * estimate_of(config, entry).n_stacked
    return total
