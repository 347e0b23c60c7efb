"""Peak memory of a training step from the config alone.

Made of what blocks and what stands around them keep, and of kernels' working memory; tested against what autograd
keeps, and against whole processes. Configs are resolved. Sizes are bytes. Where bfloat16 is emulated, which no run
chooses by itself, its products make copies in float32 that are not counted.
"""

from dataclasses import dataclass

from sublayer.config.block import Entry
from sublayer.config.model import ModelConfig
from sublayer.config.optimizer import AdamWConfig, LambConfig, OptimizerConfig, SgdConfig
from sublayer.config.resolve import GATED, is_factorised, stacks
from sublayer.model.cost import count_parameters, entry_parameters, has_head_projection, judges_pairs, n_copies, need
from sublayer.model.kept_blocks import BLOCK_ROWS, block_kept, entry_kept, input_kept, is_own_gelu, n_stacked
from sublayer.model.kept_ends import after_kept, before_kept, loss_kept, n_predicted
from sublayer.model.passes import FLOAT32_BYTES, Pass, Precision

_GELU_PART, _GRAIN = 1 << 17, 1 << 16
_HOLES: dict[Precision, float] = {"float32": 0.27, "bfloat16": 0.38}
_HOLES_AGAIN: dict[Precision, float] = {"float32": 0.36, "bfloat16": 0.48}
"""What the C library's allocator holds beside a step's tensors, as a share of those that come and go (weights and the
optimizer's states stay): memory that is free but in pieces too small for the next tensor. It is more with several
passes, where the gradients of the first are in the way of the next. The tests hold whole processes to 10 % of it."""
_BESIDE_RETURNED: dict[Precision, float] = {"float32": 0.0, "bfloat16": 0.1}
"""The same where blocks are computed again, for which freed memory goes back at once."""
_CHUNK_LOGITS = {"cpu": 1 << 22, "cuda": 1 << 27}


@dataclass(frozen=True)
class Memory:
    """Bytes that a training step holds at its peak, beside the program itself.

    ``activations`` are what the backward pass needs, cast copies of weights included, and the largest working memory of
    a kernel. ``tensors`` is the peak of all that is allocated, which may be less than the sum: the first backward pass
    begins without gradients, the optimizer's step needs no activations. ``total`` is what the process takes for that.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    tensors: int
    total: int


def training_memory(step: Pass, optimizer: OptimizerConfig, *, n_passes: int) -> Memory:
    """Estimate the peak memory of an optimizer step of ``n_passes`` equal passes."""
    weights = FLOAT32_BYTES * count_parameters(step.config, step.objective).training
    states = optimizer_states(optimizer) * weights
    activations, last = _peaks(step)
    update = _update(step.config, optimizer, weights)
    backward = activations + weights if n_passes > 1 else max(activations, last + weights)
    staying, moving = weights + states, max(backward, weights + update)
    held = round((1 + _holes(step, n_passes)) * moving)
    return Memory(weights, weights, states, activations, staying + moving, staying + held)


def _holes(step: Pass, n_passes: int) -> float:
    if step.device == "cuda":
        return 0.0
    if step.recomputes:
        return _BESIDE_RETURNED[step.precision]
    return (_HOLES if n_passes == 1 else _HOLES_AGAIN)[step.precision]


def optimizer_states(optimizer: OptimizerConfig) -> int:
    """Count the numbers that an optimizer keeps for each parameter."""
    if isinstance(optimizer, SgdConfig):
        return 1 if optimizer.momentum > 0 else 0
    return 2


def _update(config: ModelConfig, optimizer: OptimizerConfig, weights: int) -> int:
    """Give the bytes of what a step makes beside states: decayed gradients, or updates before they are added."""
    match optimizer:
        case SgdConfig():
            return weights if optimizer.weight_decay > 0 else 0
        case AdamWConfig():
            return 0 if optimizer.bias_correction else weights
        case LambConfig():
            # Stacked matrices have their turn apart from the rest.
            stacked = FLOAT32_BYTES * sum(
                n_copies(config, stack, entry) * n_stacked(config, entry)
                for stack in stacks(config)
                for entry in stack.block
            )
            return max(stacked, weights - stacked)
        case _:
            return 0


def saved_activations(step: Pass) -> int:
    """Sum what the forward pass of a micro-batch saves, the loss's gradients included, weights not."""
    input_bytes = step.n_tokens * FLOAT32_BYTES * step.config.d_model
    kept = loss_kept(step)
    for stack in stacks(step.config):
        block = input_bytes if step.recomputes else block_kept(step, stack)
        kept += stack.n_layers * block + step.n_tokens * (before_kept(step) + after_kept(step))
    return kept


def saved_casts(step: Pass) -> int:
    """Casts of the other matrices, which autocast keeps until the optimizer's step, for the model."""
    config = step.config
    if step.precision == "float32":
        return 0
    n_projections = is_factorised(config) + has_head_projection(config)
    total = n_projections * config.d_model * need(config.d_embed)
    if judges_pairs(config, step.objective):
        total += config.d_model * (config.sentence_classes + (config.d_model if config.pooler == "tanh" else 0))
    for stack in stacks(config):
        for entry in stack.block:
            width = config.n_heads * need(config.d_head) if entry.name != "ffn" else need(config.d_ff)
            n_maps = 1 if entry.name != "ffn" or entry.variant in GATED else 2
            total += n_copies(config, stack, entry) * n_maps * config.d_model * width
    return step.narrow * total


def _peaks(step: Pass) -> tuple[int, int]:
    """Give what a pass holds at most beside weights and their gradients, and what its last block back holds."""
    saved, work = saved_activations(step) + saved_casts(step), _block_work(step)
    if not step.recomputes:
        # The loss has let go of what it saved by the time that blocks go backwards.
        return saved + max(_loss_work(step), work - loss_kept(step)), 0
    # A block that runs again, whose input is saved already.
    config, last = step.config, stacks(step.config)[-1]
    block = block_kept(step, last) - step.n_tokens * input_kept(step) + work
    inputs = saved - loss_kept(step) - step.n_tokens * after_kept(step)
    one = step.n_tokens * FLOAT32_BYTES * config.d_model
    unmade = FLOAT32_BYTES * sum(
        entry_parameters(config, entry) for entry in last.block if n_copies(config, last, entry) == last.n_layers
    )
    return max(saved + _loss_work(step), inputs + block), one + saved_casts(step) + block - unmade


def _loss_work(step: Pass) -> int:
    """Working memory of the loss: a chunk of logits, the matrix cast and its gradient's increment."""
    config = step.config
    vocab_size = need(config.vocab_size)
    n_rows = min(n_predicted(step), max(1, _CHUNK_LOGITS[step.device] // vocab_size))
    # Their softmax takes their place; where the product is not float32, it stands beside them.
    per_logit = FLOAT32_BYTES if step.precision == "float32" else step.narrow + FLOAT32_BYTES
    matrix = vocab_size * need(config.d_embed) * step.narrow
    return n_rows * vocab_size * per_logit + (2 if step.precision == "bfloat16" else 1) * matrix


def _block_work(step: Pass) -> int:
    """Working memory of a sub-layer's backward pass: gradients of what stands between its matrix products.

    What the sub-layers after it in the last block have saved is free by then.
    """
    config = step.config
    stream = (FLOAT32_BYTES + step.narrow) * config.d_model
    works, freed = [], 0
    stack = stacks(config)[-1]
    for entry in reversed(stack.block):
        if entry.name != "ffn":
            width = config.n_heads * need(config.d_head)
            inner, n_maps = 4 * width + _scores_of_block(step), 3
        else:
            width = need(config.d_ff)
            # What the activation saved beside its output is free before the gradient of its input is made.
            inner, n_maps = (2 if entry.variant in GATED or entry.variant == "relu" else 1) * width, 2
        weights = (FLOAT32_BYTES + step.narrow) * n_maps * config.d_model * width
        backward = step.n_tokens * (stream + step.narrow * inner) + weights
        works.append(max(backward, _gelu_work(step, entry)) - freed)
        freed += step.n_tokens * entry_kept(step, stack, entry)
    return max(works)


def _scores_of_block(step: Pass) -> int:
    """Count the numbers as large as a block's scores in its backward pass, for a token of the micro-batch."""
    config = step.config
    if step.device != "cpu":
        return 0
    scores = (4 if config.dropout_attention else 2) * config.n_heads * min(BLOCK_ROWS, step.context)
    goes_by_sequence = step.precision == "float32" and config.n_heads * step.context**2 >= _GRAIN
    return scores // step.sequences if goes_by_sequence else scores


def _gelu_work(step: Pass, entry: Entry) -> int:
    """Working memory of our GELU's forward pass: its input, and some parts of it in float32."""
    if not is_own_gelu(step, entry.variant):
        return 0
    n = step.n_tokens * need(step.config.d_ff)
    n_parts = 2 if step.precision == "float32" else 5
    return step.narrow * n + n_parts * FLOAT32_BYTES * min(n, _GELU_PART)
