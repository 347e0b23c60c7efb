"""Sub-layers as functions of one new token of each row: their own weights, in as few operations as they take."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sublayer.decode.product import Product, make_product
from sublayer.model.block import Sublayer
from sublayer.model.feedforward import FeedForward
from sublayer.model.linear import Linear, StackedLinear

Branch = Callable[..., Tensor]
"""A sub-layer's function: of the rows, and of what its kind needs beside them."""


def residual(sublayer: Sublayer, branch: Branch) -> Branch:
    """Put norm and step size around a branch."""
    norm, size = sublayer.norm.forward, sublayer.step
    if sublayer.is_pre_norm:
        return lambda x, *rest: torch.add(x, branch(norm(x), *rest), alpha=size)
    return lambda x, *rest: norm(torch.add(x, branch(x, *rest), alpha=size))


def feed_forward(ffn: FeedForward, n_rows: int) -> Branch:
    """Unroll a feed-forward network."""
    read, write, activation = linear(ffn.input, n_rows), linear(ffn.output, n_rows), ffn.activation

    def gated(x: Tensor, *_: Any) -> Tensor:
        gate, value = read(x).chunk(2, dim=-1)
        return write(activation(gate) * value)

    return gated if ffn.is_gated else lambda x, *_: write(activation(read(x)))


def linear(module: Linear | StackedLinear, n_rows: int) -> Product:
    """Unroll a linear map."""
    bias = None if module.bias is None else module.bias.flatten()
    return make_product(module.weight.flatten(0, -2), bias, n_rows)
