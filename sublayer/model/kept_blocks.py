"""What a block keeps for its backward pass, tensor by tensor, from the config alone.

Follows what the modules beside this one save; tested against what autograd keeps. Sizes are bytes, those of a block
for a micro-batch, others per token.
"""

from sublayer.config.block import Entry
from sublayer.config.model import ModelConfig
from sublayer.config.resolve import GATED, StackShape
from sublayer.model.cost import need
from sublayer.model.passes import FLOAT32_BYTES, Pass

BLOCK_ROWS = 128


def block_kept(step: Pass, stack: StackShape) -> int:
    """Sum what one block of a stack keeps of a micro-batch."""
    block = 0
    for entry in stack.block:
        kept = step.n_tokens * entry_kept(step, stack, entry)
        block += kept + _uncached_casts(step, entry) + _angles(step, entry)
    return block


def entry_kept(step: Pass, stack: StackShape, entry: Entry) -> int:
    """Sum what a sub-layer keeps of a token: its norm's input, its function's, what is inside, the dropout's mask."""
    config = step.config
    mask = config.d_model if config.dropout else 0
    if entry.name == "ffn":
        inner = _feed_forward(step, str(entry.variant))
    else:
        inner = _attention(step, is_causal=stack.is_causal and entry.name == "attention")
    # In float32 every cross entry keeps the same memory; else a cast of its own.
    read = step.narrow * config.d_model if entry.name == "cross" and step.precision == "bfloat16" else 0
    return norm_kept(config) + step.narrow * config.d_model + read + inner + mask


def norm_kept(config: ModelConfig, width: int | None = None) -> int:
    """Give what a norm keeps of a token: its input and statistics in float32."""
    statistics = {"layer": 2, "rms": 1}.get(config.norm)
    return 0 if statistics is None else FLOAT32_BYTES * ((width or config.d_model) + statistics)


def _attention(step: Pass, *, is_causal: bool) -> int:
    config = step.config
    d_heads = config.n_heads * need(config.d_head)
    projected = 3 + 1  # queries, keys, values; what the output map reads
    if step.device == "cuda":
        return step.narrow * projected * d_heads + FLOAT32_BYTES * config.n_heads
    return step.narrow * (projected * d_heads + config.n_heads * _seen(step, is_causal) // step.context)


def _seen(step: Pass, is_causal: bool) -> int:
    """Count the pairs of query and key whose attention weights are kept: causal ones in blocks below the diagonal."""
    if not is_causal:
        return step.context**2
    n_whole, rest = divmod(step.context, BLOCK_ROWS)
    return BLOCK_ROWS * (n_whole * step.context - BLOCK_ROWS * n_whole * (n_whole - 1) // 2) + rest**2


def is_own_gelu(step: Pass, variant: str | None) -> bool:
    """Tell whether a network has the GELU that is written here."""
    return variant in ("gelu", "geglu") and step.config.gelu == "tanh" and step.device == "cpu"


def _feed_forward(step: Pass, variant: str) -> int:
    config = step.config
    # The activation's input (our GELU: its slope) and its output; ReLU needs its output alone.
    n_kept = 1 if variant == "relu" else 2
    if variant in GATED:
        # Gate and value together, the activated gate, their product; our GELU adds its slope.
        n_kept = 4 - (variant == "bilinear") + is_own_gelu(step, variant)
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


def input_kept(step: Pass) -> int:
    """Give what a block keeps of its own input as it is, where it does not keep a cast of it."""
    is_normed_first = step.config.norm_order == "pre" and step.config.norm != "none"
    return FLOAT32_BYTES * step.config.d_model if is_normed_first or step.precision == "float32" else 0


def _uncached_casts(step: Pass, entry: Entry) -> int:
    """Casts of stacked weights, which autocast makes anew for every use, for the layer."""
    return 0 if step.precision == "float32" else step.narrow * n_stacked(step.config, entry)


def n_stacked(config: ModelConfig, entry: Entry) -> int:
    """Count the numbers of the matrices that an entry stores together: queries, keys, values; gate and value."""
    n_maps = 3 if entry.name != "ffn" else 2 if entry.variant in GATED else 0
    width = config.n_heads * need(config.d_head) if entry.name != "ffn" else need(config.d_ff)
    return n_maps * config.d_model * width
