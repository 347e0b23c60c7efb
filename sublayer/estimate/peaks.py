"""The peaks of a forward and a backward pass: what is saved, and kernels' working memory.

Sizes are bytes.
"""

from dataclasses import dataclass

from sublayer.config.architecture.block import Entry
from sublayer.config.architecture.heads import n_classes
from sublayer.config.architecture.stacks import StackShape, stacks
from sublayer.estimate.cost import n_own_parameters, n_read_states
from sublayer.estimate.kernel_sizes import CPU_CHUNK_LOGITS, GPU_CHUNK_LOGITS
from sublayer.estimate.micro_batch import FLOAT32_BYTES, MicroBatch, stack_length
from sublayer.estimate.saved_by_blocks import (
    block_activations,
    block_input_activations,
    last_block_activations,
    score_bias,
    score_bias_gradient,
    sublayer_activations,
)
from sublayer.estimate.saved_by_pass import (
    saved_activations,
    saved_casts,
    stack_activations,
    stream_bytes,
)
from sublayer.estimate.saved_outside_blocks import (
    final_activations,
    loss_activations,
    n_dropped_in_matrix,
    n_predicted,
)
from sublayer.estimate.sublayers.attention import AttentionEstimate
from sublayer.estimate.sublayers.table import estimate_of

_CHUNK_LOGITS = {"cpu": CPU_CHUNK_LOGITS, "cuda": GPU_CHUNK_LOGITS}


@dataclass(frozen=True)
class Peaks:
    """The bytes that a pass holds at its peaks, beside weights and gradients."""

    in_loss: int
    in_blocks: int
    """As the block that goes backwards first does, when the loss has let go of what it saved."""
    last_block: int
    """As the block that goes backwards last ends, with every gradient there; 0 where it is less."""

    @property
    def activations(self) -> int:
        """Return those of the highest peak of all."""
        return max(self.in_loss, self.in_blocks)


def peaks_of_pass(step: MicroBatch) -> Peaks:
    """Compute the peaks of a forward and a backward pass, for ``training_memory`` to add up."""
    if step.recomputes:
        return _peaks_of_recomputing(step)
    saved = saved_activations(step) + saved_casts(step)
    in_loss = saved + _loss_work(step)
    stack = stacks(step.config)[-1]
    work = max(_block_work(step, stack), _forward_work(step))
    n_tokens = stack_length(stack, step.lengths)
    if stack.n_layers > 1 and n_read_states(step.config, step.objective, n_tokens) < n_tokens:
        # The last block works with less; by the time that the one below goes backwards it is free.
        work -= last_block_activations(step, stack)
    # The loss has let go of what it saved by the time that blocks go backwards, and has saved
    # nothing while they go forwards.
    in_blocks = saved - loss_activations(step) + work
    return Peaks(in_loss, in_blocks, last_block=0)


def _peaks_of_recomputing(step: MicroBatch) -> Peaks:
    """Compute the same where the backward pass runs each block again.

    What the stacks behind a block's own saved is free by then; their gradients are there.
    """
    config = step.config
    casts = saved_casts(step)
    saved = saved_activations(step) + casts
    in_loss = saved + _loss_work(step)
    bias = score_bias(step, stacks(config)[0])
    held = saved - loss_activations(step)
    in_first_blocks = []
    in_last_blocks = []
    for stack in reversed(stacks(config)):
        n_tokens = step.n_tokens(stack)
        # A block that runs again, whose input is saved already.
        own_input = n_tokens * block_input_activations(step)
        block = block_activations(step, stack) - own_input + _block_work(step, stack)
        final_norm = n_tokens * final_activations(step)
        in_first_blocks.append(held - final_norm + block)
        # The block that goes backwards last has its input alone, and not all gradients yet.
        one_input = n_tokens * stream_bytes(step)
        unmade = FLOAT32_BYTES * n_own_parameters(config, stack)
        if step.precision == "float32":
            # A gradient that is computed there is the one that is kept.
            estimates = [estimate_of(config, entry) for entry in stack.block]
            unmade += FLOAT32_BYTES * min(e.n_backward_maps * e.n_matrix for e in estimates)
        mask = n_dropped_in_matrix(config)
        in_last_blocks.append(one_input + mask + casts + bias + block - unmade)
        held -= stack_activations(step, stack)
    return Peaks(in_loss, max(in_first_blocks), max(in_last_blocks))


def _loss_work(step: MicroBatch) -> int:
    """Compute the working memory of the loss: a chunk of logits, casts, a gradient's increment."""
    config = step.config
    width = n_classes(config)
    n_rows_of_chunk = max(1, _CHUNK_LOGITS[step.device] // width)
    n_logits = width * min(n_predicted(step), n_rows_of_chunk)
    # Their softmax takes their place.
    logits = FLOAT32_BYTES * n_logits
    matrix = step.narrow * width * config.d_embed
    # What is multiplied with, where it is not the embedding matrix itself; what was looked up.
    copies = FLOAT32_BYTES * n_dropped_in_matrix(config)
    if config.softmax == "all":
        copies += FLOAT32_BYTES * width * config.d_embed
    if step.precision == "float32":
        return logits + matrix + copies
    # The product stands beside the logits, and the matrix's cast beside its increment.
    products = step.narrow * n_logits
    return logits + products + 2 * matrix + copies


def _block_work(step: MicroBatch, stack: StackShape) -> int:
    """Compute the largest working memory of a sub-layer's backward pass, in a stack's last block.

    That is gradients of what stands between its matrix products. What the sub-layers after it in
    the block have saved is free by then. While blocks go forwards, an embedding matrix that was
    dropped waits for the head; where a block runs again, it is gone.
    """
    dropped = 0 if step.recomputes else FLOAT32_BYTES * n_dropped_in_matrix(step.config)
    beyond_saved = []
    freed = 0
    for entry in reversed(stack.block):
        estimate = estimate_of(step.config, entry)
        forward = dropped + estimate.forward_work(step, stack)
        work = max(estimate.backward_work(step, stack), forward)
        if entry.kind.attends_to == "itself":
            work += score_bias_gradient(step, stack)
        beyond_saved.append(work - freed)
        freed += sublayer_activations(step, stack, entry)
    return max(beyond_saved) + _gradient_of_bias_above(step, stack)


def _gradient_of_bias_above(step: MicroBatch, stack: StackShape) -> int:
    """Compute what the gradient of a bias from the last block adds to the work of those below.

    They have it beside their own, for what that block saved.
    """
    if stack.n_layers == 1:
        return 0
    gradient = score_bias_gradient(step, stack)
    if step.recomputes:
        return gradient
    return max(0, gradient - block_activations(step, stack))


def _forward_work(step: MicroBatch) -> int:
    """Compute the working memory of the last attention's forward pass under a bias.

    The bias is held till then. What the sub-layers after it save is not there yet.
    """
    stack = stacks(step.config)[-1]
    bias = score_bias(step, stack)
    if step.device == "cuda" or bias == 0:
        return 0
    last = 0
    for index, entry in enumerate(stack.block):
        if entry.kind.attends_to != "nothing":
            last = index
    unsaved = step.n_tokens(stack) * final_activations(step)
    for entry in stack.block[last + 1 :]:
        unsaved += sublayer_activations(step, stack, entry)
    # Scores and weights: as many as the backward pass has twice.
    n_backward = _scores_of_block(step, stack, stack.block[last])
    per_token = step.narrow * n_backward // 2
    scores = step.n_tokens(stack) * per_token
    return bias + scores - unsaved


def _scores_of_block(step: MicroBatch, stack: StackShape, entry: Entry) -> int:
    """Count the elements of arrays of scores in a block's backward pass, for a token."""
    estimate = estimate_of(step.config, entry)
    assert isinstance(estimate, AttentionEstimate), "an entry that attends to something"
    n_queries = stack_length(stack, step.lengths)
    n_keys = step.lengths.read if entry.kind.attends_to == "memory" else n_queries
    return estimate.scores_per_key(step, n_queries, n_keys)
