"""What the forward pass of a micro-batch saves: activations of all stacks, and casts of weights.

Sizes are bytes.
"""

from sublayer.config.architecture.derived import is_factorised
from sublayer.config.architecture.heads import HEADS, has_head_projection
from sublayer.config.architecture.stacks import StackShape, stacks
from sublayer.estimate.cost import n_copies, n_read_states, trained_heads
from sublayer.estimate.micro_batch import FLOAT32_BYTES, MicroBatch, stack_length
from sublayer.estimate.saved_by_blocks import (
    block_activations,
    last_block_activations,
    score_bias,
    score_bias_index,
)
from sublayer.estimate.saved_outside_blocks import (
    embedding_activations,
    final_activations,
    loss_activations,
    n_dropped_in_matrix,
)
from sublayer.estimate.sublayers.table import estimate_of


def saved_activations(step: MicroBatch) -> int:
    """Sum the bytes that the forward pass of a micro-batch saves, the loss's gradients included.

    Casts of weights that autocast keeps are not: see ``saved_casts``.
    """
    # Of what is dropped of the embedding matrix the mask is kept, a byte for each element.
    total = loss_activations(step) + n_dropped_in_matrix(step.config)
    for stack in stacks(step.config):
        total += stack_activations(step, stack)
    return total


def stack_activations(step: MicroBatch, stack: StackShape) -> int:
    """Sum the bytes of activations of a micro-batch that a stack saves, what embeds it included."""
    n_read = n_read_states(step.config, step.objective, stack_length(stack, step.lengths))
    total = step.n_tokens(stack) * embedding_activations(step)
    total += step.sequences * n_read * final_activations(step)
    if step.recomputes:
        total += stack.n_layers * step.n_tokens(stack) * stream_bytes(step)  # their inputs alone
    else:
        total += (stack.n_layers - 1) * block_activations(step, stack)
        total += last_block_activations(step, stack)
    total += score_bias_index(step, stack)
    if step.recomputes or step.device == "cuda":
        total += score_bias(step, stack)
    return total


def saved_casts(step: MicroBatch) -> int:
    """Sum the bytes of casts of unstacked matrices, which autocast keeps through all passes.

    It lets go of them at the optimizer's step. There are none in float32.
    """
    config = step.config
    d_model = config.d_model
    if step.precision == "float32":
        return 0
    n_projections = is_factorised(config) + has_head_projection(config)
    n_numbers = n_projections * d_model * config.d_embed
    for head in trained_heads(config, step.objective):
        # The output matrix is cast by the loss, in chunks.
        if head is not HEADS["vocabulary"]:
            n_numbers += head.n_products(config)
    for stack in stacks(config):
        for entry in stack.block:
            # Matrices that are stored together are cast for every use.
            n_casts = n_copies(config, stack, entry) if step.caches_casts else stack.n_layers
            n_numbers += n_casts * estimate_of(config, entry).n_alone
    return step.narrow * n_numbers


def stream_bytes(step: MicroBatch) -> int:
    """Compute the bytes of the residual stream at a token."""
    return FLOAT32_BYTES * step.config.d_model
