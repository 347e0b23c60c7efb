"""Peak memory of a training step from the config alone: what the backward pass needs, tensor by tensor.

Follows what the modules beside this one save; tested against what autograd keeps, and against whole processes.
Configs are resolved. Sizes are bytes; those of activations are per token unless their name says otherwise.
"""

from dataclasses import dataclass
from typing import Literal

from sublayer.config.block import Entry
from sublayer.config.model import ModelConfig
from sublayer.config.objective import NEXT_TOKEN, ObjectiveConfig
from sublayer.config.optimizer import AdamWConfig, LambConfig, OptimizerConfig, SgdConfig
from sublayer.config.resolve import GATED, entries, is_factorised
from sublayer.model.cost import count_parameters, entry_parameters, n_classifiers, n_copies, n_predicting, need

Precision = Literal["float32", "bfloat16"]
DeviceKind = Literal["cpu", "cuda"]

FLOAT32_BYTES = 4
_ID_BYTES = 8
_BLOCK_ROWS = 128
_GELU_PART = 1 << 17
_HOLES, _HOLES_AGAIN = 0.3, 0.5
"""What the C library's allocator holds beside a step's tensors, as a share of those that come and go: memory that is
free but in pieces too small for the next tensor; more in float32 with several passes, where each finds the tensors of
the last in its way. The tests hold whole processes to 10 % of it."""
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


@dataclass(frozen=True)
class Pass:
    """One forward and backward pass: a micro-batch of ``sequences`` windows of ``context`` tokens on a device.

    ``recomputes`` says that the backward pass runs each block again instead of keeping what it needs of it.
    """

    config: ModelConfig
    sequences: int
    context: int
    precision: Precision
    device: DeviceKind = "cpu"
    objective: ObjectiveConfig = NEXT_TOKEN
    recomputes: bool = False

    @property
    def narrow(self) -> int:
        """Bytes of a number in matrix products."""
        return FLOAT32_BYTES if self.precision == "float32" else 2

    @property
    def n_tokens(self) -> int:
        """Tokens of the micro-batch."""
        return self.sequences * self.context


def training_memory(step: Pass, optimizer: OptimizerConfig, *, n_passes: int) -> Memory:
    """Estimate the peak memory of an optimizer step of ``n_passes`` equal passes."""
    weights = FLOAT32_BYTES * count_parameters(step.config, step.objective).training
    states = optimizer_states(optimizer) * weights
    activations, last = _peaks(step)
    update = _update(step.config, optimizer, weights)
    backward = activations + weights if n_passes > 1 else max(activations, last + weights)
    moving = states + max(backward, weights + update)
    held = round((1 + _holes(step, n_passes)) * moving)
    return Memory(weights, weights, states, activations, weights + moving, weights + held)


def _holes(step: Pass, n_passes: int) -> float:
    if step.device == "cuda":
        return 0.0
    if step.recomputes:
        return _BESIDE_RETURNED[step.precision]
    return _HOLES_AGAIN if n_passes > 1 and step.precision == "float32" else _HOLES


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
                n_copies(config, entry) * _stacked(config, entry) for entry in entries(config)
            )
            return max(stacked, weights - stacked)
        case _:
            return 0


def saved_activations(step: Pass) -> int:
    """Sum what the forward pass of a micro-batch saves, the loss's gradients included, weights not."""
    block = step.n_tokens * FLOAT32_BYTES * step.config.d_model if step.recomputes else _saved_block(step)
    return step.config.n_layers * block + step.n_tokens * _saved_outside(step) + _loss_saved(step)


def _peaks(step: Pass) -> tuple[int, int]:
    """Give what a pass holds at most beside weights and their gradients, and what its last block back holds."""
    saved, work = saved_activations(step) + saved_casts(step), _block_work(step)
    if not step.recomputes:
        return saved + max(_loss_work(step), work), 0
    # A block that runs again, whose input is saved already; by then the loss has let go of what it saved.
    block = _saved_block(step) - step.n_tokens * FLOAT32_BYTES * step.config.d_model + work
    inputs = saved - _loss_saved(step) - step.n_tokens * _saved_outside(step)
    one = step.n_tokens * FLOAT32_BYTES * step.config.d_model
    unmade = FLOAT32_BYTES * sum(
        entry_parameters(step.config, entry)
        for entry in entries(step.config)
        if n_copies(step.config, entry) == step.config.n_layers
    )
    return max(saved + _loss_work(step), inputs + block), one + saved_casts(step) + block - unmade


def _saved_block(step: Pass) -> int:
    block = 0
    for entry in entries(step.config):
        block += step.n_tokens * _saved_in(step, entry) + _uncached_casts(step, entry) + _angles(step, entry)
    return block


def _saved_in(step: Pass, entry: Entry) -> int:
    config = step.config
    mask = config.d_model if config.dropout else 0
    inner = _attention(step) if entry.name == "attention" else _feed_forward(step, str(entry.variant))
    return _norm(config) + step.narrow * config.d_model + inner + mask


def _norm(config: ModelConfig, kind: str | None = None) -> int:
    statistics = {"layer": 2, "rms": 1}.get(kind or config.norm)
    return 0 if statistics is None else FLOAT32_BYTES * (config.d_model + statistics)


def _attention(step: Pass) -> int:
    config = step.config
    d_heads = config.n_heads * need(config.d_head)
    projected = 3 + 1  # queries, keys, values; what the output map reads
    if step.device == "cuda":
        return step.narrow * projected * d_heads + FLOAT32_BYTES * config.n_heads
    return step.narrow * (projected * d_heads + config.n_heads * _seen(step.context) // step.context)


def _seen(context: int) -> int:
    """Count the pairs of query and key for which attention weights are kept: whole blocks below the diagonal."""
    ends = range(context, 0, -_BLOCK_ROWS)
    return sum((end - max(end - _BLOCK_ROWS, 0)) * end for end in ends)


def _is_own_gelu(step: Pass, variant: str | None) -> bool:
    return variant in ("gelu", "geglu") and step.config.gelu == "tanh" and step.device == "cpu"


def _gelu_work(step: Pass, entry: Entry) -> int:
    """Working memory of our GELU's forward pass: its input, and four parts of it in float32."""
    if not _is_own_gelu(step, entry.variant):
        return 0
    n = step.n_tokens * need(step.config.d_ff)
    return step.narrow * n + 4 * FLOAT32_BYTES * min(n, _GELU_PART)


def _feed_forward(step: Pass, variant: str) -> int:
    config = step.config
    # The activation's input (our GELU: its slope) and its output; ReLU needs its output alone.
    n_kept = 1 if variant == "relu" else 2
    if variant in GATED:
        # Gate and value together, the activated gate, their product; our GELU adds its slope.
        n_kept = 4 - (variant == "bilinear") + _is_own_gelu(step, variant)
    mask = 0
    if config.dropout_ffn:
        # What is dropped takes the output's place, but ReLU keeps its output too.
        n_kept, mask = n_kept + (variant == "relu"), 1
    return (n_kept * step.narrow + mask) * need(config.d_ff)


def _angles(step: Pass, entry: Entry) -> int:
    """Cosines and sines that turn queries and keys, for the layer; in float32 all layers share them."""
    if step.config.positions != "rotary" or entry.name != "attention" or step.precision == "float32":
        return 0
    return 2 * 2 * step.narrow * step.context * need(step.config.d_head)


def _saved_outside(step: Pass) -> int:
    config = step.config
    factorised = step.narrow * (need(config.d_embed) + config.d_model) if is_factorised(config) else 0
    mask = config.d_model if config.dropout_embedding else 0
    final = 0 if config.final_norm == "none" else _norm(config)
    return _ID_BYTES + factorised + mask + final


def _loss_saved(step: Pass) -> int:
    """Gradients that losses compute in their forward pass: of hidden states and of output matrices; blocks' norms."""
    config = step.config
    d_embed = need(config.d_embed)
    hidden = step.narrow if is_factorised(config) else FLOAT32_BYTES
    vocab_size, n_rows = need(config.vocab_size), _predicting(step)
    own = n_rows * hidden * d_embed + FLOAT32_BYTES * vocab_size * (d_embed + (1 if config.head_bias else 0))
    classifiers = n_classifiers(config, step.objective)
    classifier = FLOAT32_BYTES * (n_rows * config.d_model + vocab_size * (config.d_model + 1))
    norm = 0 if config.final_norm == "none" else step.n_tokens * _norm(config)
    if norm and _keeps_block_inputs(step):
        norm -= step.n_tokens * FLOAT32_BYTES * config.d_model
    return own + sum(classifiers) * classifier + sum(n > 0 for n in classifiers[:-1]) * norm


def _keeps_block_inputs(step: Pass) -> bool:
    """Whether a block keeps the very tensor that the block below it gave."""
    config = step.config
    is_kept = step.recomputes or (config.norm_order == "pre" and config.norm != "none")
    return is_kept and config.positions != "learned-per-layer"


def _predicting(step: Pass) -> int:
    """Count the positions of a micro-batch that have a loss."""
    return n_predicting(step.objective, step.context) * step.sequences


def _uncached_casts(step: Pass, entry: Entry) -> int:
    """Casts of stacked weights, which autocast makes anew for every use, for the layer."""
    return 0 if step.precision == "float32" else step.narrow * _stacked(step.config, entry)


def _stacked(config: ModelConfig, entry: Entry) -> int:
    """Count the numbers of the matrices that an entry stores together: queries, keys, values; gate and value."""
    n_maps = 3 if entry.name == "attention" else 2 if entry.variant in GATED else 0
    width = config.n_heads * need(config.d_head) if entry.name == "attention" else need(config.d_ff)
    return n_maps * config.d_model * width


def saved_casts(step: Pass) -> int:
    """Casts of the other matrices, which autocast keeps until the optimizer's step, for the model."""
    config = step.config
    if step.precision == "float32":
        return 0
    total = 2 * config.d_model * need(config.d_embed) if is_factorised(config) else 0
    for entry in entries(config):
        width = config.n_heads * need(config.d_head) if entry.name == "attention" else need(config.d_ff)
        n_maps = 1 if entry.name == "attention" or entry.variant in GATED else 2
        total += n_copies(config, entry) * n_maps * config.d_model * width
    return step.narrow * total


def _loss_work(step: Pass) -> int:
    """Working memory of the loss: a chunk of logits with its softmax, the matrix cast and its gradient's increment."""
    config = step.config
    vocab_size = need(config.vocab_size)
    n_rows = min(_predicting(step), max(1, _CHUNK_LOGITS[step.device] // vocab_size))
    # Logits, their cast to float32 if they are not that, and the softmax.
    per_logit = 2 * FLOAT32_BYTES if step.precision == "float32" else step.narrow + 2 * FLOAT32_BYTES
    matrix = vocab_size * need(config.d_embed) * step.narrow
    return n_rows * vocab_size * per_logit + (2 if step.precision == "bfloat16" else 1) * matrix


def _block_work(step: Pass) -> int:
    """Working memory of a sub-layer's backward pass: gradients of what stands between its matrix products.

    What the sub-layers after it in the last block have saved is free by then.
    """
    config = step.config
    stream = (FLOAT32_BYTES + step.narrow) * config.d_model
    works, freed = [], 0
    for entry in reversed(entries(config)):
        if entry.name == "attention":
            width = config.n_heads * need(config.d_head)
            rows = min(_BLOCK_ROWS, step.context)
            scores = (4 if config.dropout_attention else 2) * config.n_heads * rows if step.device == "cpu" else 0
            inner, n_maps = 4 * width + scores, 3
        else:
            width = need(config.d_ff)
            # What the activation saved beside its output is free before the gradient of its input is made.
            inner, n_maps = (2 if entry.variant in GATED or entry.variant == "relu" else 1) * width, 2
        weights = (FLOAT32_BYTES + step.narrow) * n_maps * config.d_model * width
        backward = step.n_tokens * (stream + step.narrow * inner) + weights
        works.append(max(backward, _gelu_work(step, entry)) - freed)
        freed += step.n_tokens * _saved_in(step, entry)
    return max(works)
