"""Sub-layers unrolled: functions of one new token of each row, in the fewest operations."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sublayer.decode.packed_linear import PackedLinear, pack_linear
from sublayer.model.layers.feedforward import FeedForward
from sublayer.model.layers.linear import Linear, StackedLinear
from sublayer.model.layers.stack import Sublayer

Branch = Callable[..., Tensor]
"""A sub-layer's function: of the rows, and of what its kind needs beside them."""


def residual(sublayer: Sublayer, branch: Branch) -> Branch:
    """Build a residual sub-layer from its branch, with its norm and its step size.

    What it is called with beside the rows goes to the branch. There is no dropout.
    """
    # The method, not the module: a module's call looks for hooks, which costs every step.
    norm = sublayer.norm.forward
    step_size = sublayer.step_size
    if sublayer.is_pre_norm:
        return lambda x, *rest: torch.add(x, branch(norm(x), *rest), alpha=step_size)
    return lambda x, *rest: norm(torch.add(x, branch(x, *rest), alpha=step_size))


def feed_forward(ffn: FeedForward, n_rows: int) -> Branch:
    """Unroll a feed-forward network, for ``n_rows`` rows at a time; without dropout."""
    up = linear(ffn.input, n_rows)
    down = linear(ffn.output, n_rows)
    activation = ffn.activation

    def plain(x: Tensor, *_: Any) -> Tensor:
        return down(activation(up(x)))

    def gated(x: Tensor, *_: Any) -> Tensor:
        gate, value = up(x).chunk(2, dim=-1)
        return down(activation(gate) * value)

    return gated if ffn.is_gated else plain


def linear(module: Linear | StackedLinear, n_rows: int) -> PackedLinear:
    """Unroll a linear map, or stacked ones, whose outputs stand one after another."""
    matrix = module.weight.flatten(0, -2)  # stacked maps one below another
    bias = None if module.bias is None else module.bias.flatten()
    return pack_linear(matrix, bias, n_rows)
