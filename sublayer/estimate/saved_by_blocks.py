"""Activation memory of a block, tensor by tensor, from the config alone.

Follows what the modules beside this one save; tested against what autograd keeps. Sizes are bytes,
those of a block for a micro-batch, others per token.
"""

from dataclasses import replace

from sublayer.config.architecture.block import Entry
from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.architecture.stacks import StackShape
from sublayer.config.resolved import ResolvedModel
from sublayer.estimate.cost import n_read_states
from sublayer.estimate.micro_batch import FLOAT32_BYTES, MicroBatch, stack_length
from sublayer.estimate.sublayers.attention import AttentionEstimate
from sublayer.estimate.sublayers.table import estimate_of

_INDEX_BYTES = 4


def block_activations(step: MicroBatch, stack: StackShape) -> int:
    """Sum the bytes of activations of a micro-batch that one block of a stack saves.

    Casts of stacked weights are among them: each block saves its own.
    """
    total = 0
    for entry in stack.block:
        estimate = estimate_of(step.config, entry)
        total += sublayer_activations(step, stack, entry)
        total += estimate.saved_per_layer(step, stack)
        if step.precision == "bfloat16":
            # Autocast casts stacked weights anew for every use.
            total += step.narrow * estimate.n_stacked
    return total


def last_block_activations(step: MicroBatch, stack: StackShape) -> int:
    """Sum the same of a stack's last block, where few of its states may be read."""
    n_read = n_read_states(step.config, step.objective, stack_length(stack, step.lengths))
    place = stack.last_attention
    if place is None or n_read == stack_length(stack, step.lengths):
        return block_activations(step, stack)
    config = step.config
    few = replace(step, context=n_read)
    # What follows it has the states that are read alone.
    total = block_activations(step, stack)
    for entry in stack.block[place + 1 :]:
        total -= sublayer_activations(step, stack, entry) - sublayer_activations(few, stack, entry)
    attention = stack.block[place]
    estimate = estimate_of(config, attention)
    assert isinstance(estimate, AttentionEstimate), "an entry that attends to something"
    total -= sublayer_activations(step, stack, attention)
    normed = step if config.norm_order == "pre" else few
    total += normed.n_tokens(stack) * norm_activations(config)
    total += step.n_tokens(stack) * step.narrow * config.d_model
    total += few.n_tokens(stack) * (config.d_model if config.dropout else 0)
    return total + estimate.saved_of_queries(step, stack, n_read)


def sublayer_activations(step: MicroBatch, stack: StackShape, entry: Entry) -> int:
    """Sum the bytes of activations of a micro-batch that a sub-layer saves.

    Its norm's, its function's input and its dropout's mask, and what its function saves inside.
    """
    config = step.config
    norm = norm_activations(config)
    function_input = step.narrow * config.d_model
    dropout_mask = config.d_model if config.dropout else 0  # a byte for each element
    per_token = norm + function_input + dropout_mask
    inside = estimate_of(config, entry).saved(step, stack)
    return step.n_tokens(stack) * per_token + inside


def norm_activations(config: ResolvedModel, width: int | None = None) -> int:
    """Compute the bytes that a norm saves of a token: its input and statistics in float32.

    ``width`` is that of its input, ``d_model`` where it is None. Without a norm there are none.
    """
    if config.norm == "none":
        return 0
    # Of layer norm mean and inverse deviation, of RMS norm the inverse root of the mean square.
    n_statistics = 2 if config.norm == "layer" else 1
    n_inputs = width or config.d_model
    return FLOAT32_BYTES * (n_inputs + n_statistics)


def score_bias(step: MicroBatch, stack: StackShape) -> int:
    """Compute the bytes of the bias of scores: one tensor for all blocks of a stack.

    Kernels of a CPU save nothing of it, so that it is held by the forward pass alone, unless blocks
    run again; a GPU's save it, in the type of the products. Where rows are padded or documents
    kept apart, each row has positions of its own.
    """
    number_bytes = FLOAT32_BYTES if step.device == "cpu" else step.narrow
    return number_bytes * step.config.n_heads * _n_biased_pairs(step, stack)


def score_bias_gradient(step: MicroBatch, stack: StackShape) -> int:
    """Compute the bytes of the gradient of a bias of scores: none of one that is not learned.

    Each block makes one as large as the bias, which is added to that of the blocks above it. A
    GPU's kernels make one for each row, also of a bias that all rows share.
    """
    if not _learns_bias(step, stack):
        return 0
    is_shared = not _has_own_positions(step, stack)
    n_rows = step.sequences if step.device == "cuda" and is_shared else 1
    return n_rows * score_bias(step, stack)


def score_bias_index(step: MicroBatch, stack: StackShape) -> int:
    """Compute the bytes of the rows of its table that a learned bias was looked up in.

    They are as many as there are pairs of a query and a key where each row of a batch has positions
    of its own; else as many as there are offsets, which is nothing beside.
    """
    if not _learns_bias(step, stack) or not _has_own_positions(step, stack):
        return 0
    return _INDEX_BYTES * _n_biased_pairs(step, stack)


def _learns_bias(step: MicroBatch, stack: StackShape) -> bool:
    row = POSITIONS[step.config.positions]
    return row.in_attention == "bias" and row.n_parameters(step.config, stack.n_layers, 0) > 0


def _n_biased_pairs(step: MicroBatch, stack: StackShape) -> int:
    """Count the pairs of a query and a key that have biases of their own."""
    is_biased = POSITIONS[step.config.positions].in_attention == "bias"
    if not is_biased or not stack.attends_to_itself:
        return 0
    n_rows = step.sequences if _has_own_positions(step, stack) else 1
    return n_rows * stack_length(stack, step.lengths) ** 2


def _has_own_positions(step: MicroBatch, stack: StackShape) -> bool:
    is_padded = step.objective.text != "windows" and not stack.is_causal
    return is_padded or step.keeps_documents_apart


def block_input_activations(step: MicroBatch) -> int:
    """Compute the bytes that a block saves of a token of its input, where it saves no cast."""
    config = step.config
    is_normed_first = config.norm_order == "pre" and config.norm != "none"
    if is_normed_first or step.precision == "float32":
        return FLOAT32_BYTES * config.d_model
    return 0
