"""Peak memory of a training step from the config alone: what is kept for the backward pass, tensor by tensor.

Sizes are bytes per token unless their name says otherwise. Configs are resolved.
"""

from dataclasses import dataclass
from typing import Literal

from sublayer.config.block import Entry
from sublayer.config.model import ModelConfig
from sublayer.config.optimizer import OptimizerConfig, SgdConfig
from sublayer.config.resolve import GATED, entries
from sublayer.model.cost import count_parameters, need

Precision = Literal["float32", "bfloat16"]
FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Memory:
    """Bytes that a training step holds at its peak, beside the program itself.

    ``activations`` are what the backward pass needs, the working memory of kernels and, in bfloat16, the cast copies of
    weights. ``total`` is the peak: the optimizer's step needs no activations, the first backward pass no gradients.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    total: int


def training_memory(
    config: ModelConfig, *, sequences: int, context: int, optimizer: OptimizerConfig, precision: Precision
) -> Memory:
    """Estimate the peak memory of an optimizer step whose micro-batches hold ``sequences`` of ``context`` tokens."""
    parameters = count_parameters(config).training
    weights = FLOAT32_BYTES * parameters
    states = optimizer_states(optimizer) * weights
    low = FLOAT32_BYTES if precision == "float32" else 2
    n_tokens = sequences * context
    saved = sum(_saved(config, entry, context, low) for entry in entries(config)) * config.n_layers
    loss = (low + FLOAT32_BYTES + FLOAT32_BYTES) * need(config.vocab_size)
    casts = low * count_parameters(config).non_embedding if precision == "bfloat16" else 0
    activations = n_tokens * (saved + loss) + casts
    return Memory(weights, weights, states, activations, 2 * weights + states + activations)


def optimizer_states(optimizer: OptimizerConfig) -> int:
    """Count the numbers that an optimizer keeps for each parameter."""
    if isinstance(optimizer, SgdConfig):
        return 1 if optimizer.momentum > 0 else 0
    return 2


def _saved(config: ModelConfig, entry: Entry, context: int, low: int) -> int:
    d_model, d_heads, d_ff = config.d_model, config.n_heads * need(config.d_head), need(config.d_ff)
    residual = FLOAT32_BYTES * d_model + low * d_model
    if entry.name == "attention":
        weights = low * config.n_heads * context if config.dropout_attention else 0
        return residual + low * 4 * d_heads + weights
    n_hidden = 4 if entry.variant in GATED else 2
    return residual + low * n_hidden * d_ff
