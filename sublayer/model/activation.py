"""The activations of feed-forward networks."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from sublayer.model.kernels import is_eager_cpu

Activation = Callable[[Tensor], Tensor]
ActivationName = Literal["relu", "gelu", "swish", "sigmoid", "identity"]

# gelu(x) = x * sigmoid(LINEAR * x + CUBIC * x**3), which is the tanh form: (1 + tanh(u)) / 2 = sigmoid(2 u).
LINEAR = 2 * math.sqrt(2 / math.pi)
CUBIC = 0.044715 * LINEAR

# Elements that fit a core's second-level cache in float32, with a copy or two.
PART = 1 << 17


def build_activation(name: str, gelu: Literal["exact", "tanh"]) -> Activation:
    """Give the function of a name; ``gelu`` says which form of GELU is meant. Swish has a slope of 1: it is SiLU."""
    activations: dict[str, Activation] = {
        "relu": F.relu,
        "gelu": tanh_gelu if gelu == "tanh" else partial(F.gelu, approximate="none"),
        "swish": F.silu,
        "sigmoid": F.sigmoid,
        "identity": lambda x: x,
    }
    return activations[name]


def tanh_gelu(x: Tensor) -> Tensor:
    """Compute ``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x**3)))``. Source: Hendrycks & Gimpel 2016, sec. 2."""
    if not (is_eager_cpu(x) and x.requires_grad):
        return F.gelu(x, approximate="tanh")
    activated: Tensor = _TanhGelu.apply(x)  # type: ignore[no-untyped-call]
    return activated


class _TanhGelu(torch.autograd.Function):
    """Compute the slope beside the value and save it instead of the input: half the time of the native pair."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        value, slope = torch.empty(x.shape, dtype=x.dtype), torch.empty(x.shape, dtype=x.dtype)
        wide = torch.promote_types(x.dtype, torch.float32)
        flat = x.reshape(-1), value.view(-1), slope.view(-1)
        for start in range(0, x.numel(), PART):
            x_part, value_part, slope_part = (t[start : start + PART] for t in flat)
            _value_and_slope(x_part.to(wide, copy=True), value_part, slope_part)
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        slope: Tensor = ctx.saved_tensors[0]
        return grad * slope


def _value_and_slope(x: Tensor, value: Tensor, slope: Tensor) -> None:
    """Fill ``value`` and ``slope``, using up ``x``: every temporary less is time less."""
    factor = (x * x).mul_(CUBIC).add_(LINEAR)
    gate = (factor * x).sigmoid_()
    product = x.mul_(gate)
    value.copy_(product)
    # (x s)' = s + x s (1 - s) (LINEAR + 3 CUBIC x**2), whose last factor is 3 (factor - 2/3 LINEAR)
    rest = torch.addcmul(product, product, gate, value=-1)
    slope.copy_(gate.addcmul_(rest, factor.sub_(LINEAR * 2 / 3), value=3))
