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

# Elements for each thread at a time. From 2**16 to 2**18 a step takes as long, with and without avx512; the
# whole leaves every cache, and with fewer the calls begin to show.
PART = 1 << 17

# Numbers from which four simple passes take no more time than the native kernel, whose tanh is slow, with avx512 and
# without: benchmarks/kernel_choices.py.
_MANY = 1 << 13


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
    if is_eager_cpu(x) and x.requires_grad:
        activated: Tensor = _TanhGelu.apply(x)  # type: ignore[no-untyped-call]
        return activated
    if is_eager_cpu(x) and x.dtype == torch.float32 and x.numel() >= _MANY:
        gate = torch.addcmul(torch.tensor(LINEAR), x, x, value=CUBIC).mul_(x).sigmoid_()
        return gate.mul_(x)
    return F.gelu(x, approximate="tanh")


class _TanhGelu(torch.autograd.Function):
    """Compute the slope beside the value and save it instead of the input: half the time of the native pair."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        value, slope = torch.empty(x.shape, dtype=x.dtype), torch.empty(x.shape, dtype=x.dtype)
        flat = x.reshape(-1), value.view(-1), slope.view(-1)
        size = PART * torch.get_num_threads()
        work = torch.empty(2, min(size, x.numel()), dtype=torch.promote_types(x.dtype, torch.float32))
        for start in range(0, x.numel(), size):
            x_part, value_part, slope_part = (t[start : start + size] for t in flat)
            if x.dtype == work.dtype:
                _value_and_slope(x_part, value_part, slope_part, work)
                continue
            wide = x_part.to(work.dtype)
            wide_value, wide_slope = torch.empty_like(wide), torch.empty_like(wide)
            _value_and_slope(wide, wide_value, wide_slope, work)
            value_part.copy_(wide_value)
            slope_part.copy_(wide_slope)
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        slope: Tensor = ctx.saved_tensors[0]
        return grad * slope


def _value_and_slope(x: Tensor, value: Tensor, slope: Tensor, work: Tensor) -> None:
    """Fill ``value`` and ``slope`` in seven passes: each less is time less. ``work`` is room for two arrays."""
    gate, rise = work[:, : x.numel()]
    linear = torch.tensor(LINEAR, dtype=x.dtype)
    torch.addcmul(linear, x, x, value=CUBIC, out=gate).mul_(x).sigmoid_()
    torch.addcmul(linear, x, x, value=3 * CUBIC, out=rise)
    torch.mul(x, gate, out=value)
    # (x s)' = s + x s (1 - s) (LINEAR + 3 CUBIC x**2)
    torch.addcmul(value, value, gate, value=-1, out=slope)
    torch.addcmul(gate, slope, rise, out=slope)
