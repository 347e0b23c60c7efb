"""Element-wise kernels: activations and dropout, and the choice between ours and PyTorch's."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sublayer.model.kernels.sizes import GELU_PART, SWISH_PART


def is_eager_cpu(x: Tensor) -> bool:
    """Check whether to use our kernels, which is on a CPU and not under the compiler.

    Elsewhere PyTorch's kernels are faster.
    """
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def constants(values: Sequence[float], dtype: torch.dtype, beside: Tensor) -> Tensor:
    """Return a vector of numbers on a tensor's device, without synchronization.

    The numbers are filled in on a GPU, since a copy to it would synchronize.
    """
    if is_eager_cpu(beside):
        return torch.tensor(values, dtype=dtype)
    filled = [torch.full((), value, dtype=dtype, device=beside.device) for value in values]
    return torch.stack(filled)


def swish(x: Tensor, beta: Tensor | float) -> Tensor:
    """Compute ``x * sigmoid(beta x)``, at least in float32; ``beta`` may have a gradient.

    The result has the dtype of ``x``. Differentiable once. Under the compiler it is the plain
    expression in its operands' dtypes.
    """
    if torch.compiler.is_compiling():
        return x * torch.sigmoid(beta * x)
    if not isinstance(beta, Tensor):
        beta = torch.full((), beta, dtype=_wide(x.dtype), device=x.device)
    activated: Tensor = _Swish.apply(x, beta)  # type: ignore[no-untyped-call]
    return activated


class _Swish(torch.autograd.Function):
    """Swish differentiated by hand, since autograd would also save the product and the gate."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, beta: Tensor) -> Tensor:
        ctx.save_for_backward(x, beta)
        value = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        for part_x, part_value in _parts(x, value):
            wide, gate = _gate(part_x, beta)
            part_value.copy_(gate.mul_(wide))
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        x, beta = ctx.saved_tensors
        grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        grad_beta = torch.zeros_like(beta, dtype=_wide(x.dtype))
        needs_grad_beta = ctx.needs_input_grad[1]
        for part_x, part_grad, part_grad_x in _parts(x, grad, grad_x):
            wide, gate = _gate(part_x, beta)
            # With s the sigmoid, both derivatives share x s' / beta = x s (1 - s):
            # d/dbeta = x * (x s (1 - s)), d/dx = s + beta * (x s (1 - s)).
            shared = (1 - gate).mul_(gate).mul_(wide)
            if needs_grad_beta:
                # One expression, since a name would keep another tensor until the end of the
                # iteration.
                grad_beta += (shared * wide).mul_(part_grad).sum()
            slope = gate.addcmul_(shared, beta.to(shared.dtype))
            part_grad_x.copy_(slope.mul_(part_grad))
        if not needs_grad_beta:
            return grad_x, None
        return grad_x, grad_beta.to(beta.dtype)


def _gate(x: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``x`` and ``sigmoid(beta x)``, at least in float32."""
    wide = x.to(_wide(x.dtype))
    return wide, (wide * beta.to(wide.dtype)).sigmoid_()


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _parts(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split tensors of the same shape by rows, so that temporaries are small."""
    width = max(1, tensors[0].shape[-1])
    n_rows = max(1, SWISH_PART // width)
    # As matrices [N, F]; a tensor without rows is a single row.
    matrices = [x[None] if x.dim() < 2 else x.flatten(0, -2) for x in tensors]
    yield from zip(*(torch.split(matrix, n_rows) for matrix in matrices), strict=True)


def soft_cap(x: Tensor, cap: float | None) -> Tensor:
    """Compute ``cap * tanh(x / cap)``; without a cap return ``x`` itself.

    Source: Gemma Team 2024 (Gemma 2), as released.
    """
    return x if cap is None else torch.tanh(x / cap) * cap


Activation = Callable[[Tensor], Tensor]

# gelu(x) = x * sigmoid(LINEAR * x + CUBIC * x**3) is the tanh form, since (1 + tanh(u)) / 2 =
# sigmoid(2 u).
LINEAR = 2 * math.sqrt(2 / math.pi)
CUBIC = 0.044715 * LINEAR

# Sizes from which four simple passes are no slower than the native kernel with its slow tanh, with
# and without AVX-512 (benchmarks/kernel_choices.py).
_MANY = 1 << 13


def squared_relu(x: Tensor) -> Tensor:
    """Compute ``max(x, 0)**2``. Source: So et al. 2021 (2109.08668), sec. 4.1."""
    if torch.compiler.is_compiling() or not x.requires_grad:
        return F.relu(x).square()
    squared: Tensor = _SquaredRelu.apply(x)  # type: ignore[no-untyped-call]
    return squared


class _SquaredRelu(torch.autograd.Function):
    """Squared ReLU that saves its input, where autograd would save another tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.relu().square_()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return x.relu().mul_(grad).mul_(2.0)


FUNCTIONS: dict[str, Activation] = {
    "relu": F.relu,
    "relu2": squared_relu,
    "swish": F.silu,  # swish with slope 1
    "sigmoid": F.sigmoid,
    "identity": lambda x: x,
}
"""Function of each activation, except the two forms of GELU and swish with another slope than 1."""


def tanh_gelu(x: Tensor) -> Tensor:
    """Compute GELU in its tanh form, ``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x**3)))``.

    Source: Hendrycks & Gimpel 2016, sec. 2. On a CPU it may be computed as ``x * sigmoid(2 u)``,
    with ``u`` the argument of the tanh: equal up to rounding, and differentiable once.
    """
    if is_eager_cpu(x) and x.requires_grad:
        activated: Tensor = _TanhGelu.apply(x)  # type: ignore[no-untyped-call]
        return activated
    if is_eager_cpu(x) and x.dtype == torch.float32 and x.numel() >= _MANY:
        exponent = torch.addcmul(torch.tensor(LINEAR), x, x, value=CUBIC).mul_(x)
        return exponent.sigmoid_().mul_(x)
    return F.gelu(x, approximate="tanh")


class _TanhGelu(torch.autograd.Function):
    """GELU that computes value and slope together, and saves the slope instead of the input.

    It takes half the time of the native forward and backward.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        value = torch.empty(x.shape, dtype=x.dtype)
        slope = torch.empty(x.shape, dtype=x.dtype)
        flat = x.reshape(-1), value.view(-1), slope.view(-1)
        size = GELU_PART * torch.get_num_threads()
        work_dtype = torch.promote_types(x.dtype, torch.float32)
        work = torch.empty(2, min(size, x.numel()), dtype=work_dtype)
        for start in range(0, x.numel(), size):
            x_part, value_part, slope_part = (t[start : start + size] for t in flat)
            if x.dtype == work.dtype:
                _value_and_slope(x_part, value_part, slope_part, work)
                continue
            wide = x_part.to(work.dtype)
            wide_value = torch.empty_like(wide)
            wide_slope = torch.empty_like(wide)
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
    """Write ``value`` and ``slope``; ``work`` has room for two arrays.

    There are seven passes, and the time is proportional to their number.
    """
    gate, rise = work[:, : x.numel()]
    linear = torch.tensor(LINEAR, dtype=x.dtype)
    torch.addcmul(linear, x, x, value=CUBIC, out=gate).mul_(x).sigmoid_()
    torch.addcmul(linear, x, x, value=3 * CUBIC, out=rise)
    torch.mul(x, gate, out=value)
    # (x s)' = s + x s (1 - s) (LINEAR + 3 CUBIC x**2)
    torch.addcmul(value, value, gate, value=-1, out=slope)
    torch.addcmul(gate, slope, rise, out=slope)


LANES = 1 << 16
"""Number of values of a 16-bit lane."""

# SplitMix64 (Steele et al. 2014, sec. 4, with variant 13 of Stafford's mixer), its constants as
# signed integers.
_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_ROUNDS = (
    (30, 0xBF58476D1CE4E5B9 - 2**64),
    (27, 0x94D049BB133111EB - 2**64),
    (31, 1),
)
"""Shift and multiplier of each round."""


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero elements with probability ``p`` in training, and scale the others to keep the mean.

    Draws are from PyTorch's global generator. On a CPU ``p`` is rounded to a multiple of 2**-16
    below 1. Outside training, or if ``p`` is 0, ``x`` is returned and nothing is drawn.
    """
    if not training or p == 0.0:
        return x
    if not is_eager_cpu(x):
        return F.dropout(x, p)
    dropped: Tensor = _Dropout.apply(x, p)  # type: ignore[no-untyped-call]
    return dropped


def add_branch(x: Tensor, branch: Tensor, *, step: float, p: float, training: bool) -> Tensor:
    """Compute ``x + step * dropout(branch)`` in the dtype of ``x``, the wider one.

    Draws are as in ``dropout``. On a CPU the step size and the scale of dropout are fused, which
    saves a pass.
    """
    if not training or p == 0.0:
        return torch.add(x, branch, alpha=step)
    if not is_eager_cpu(x):
        return torch.add(x, F.dropout(branch, p), alpha=step)
    total: Tensor = _AddDropped.apply(x, branch, step, p)  # type: ignore[no-untyped-call]
    return total


def random_lanes(shape: torch.Size) -> Tensor:
    """Draw uniform int16 integers, from a key drawn from PyTorch's global generator.

    Four integers are the 64 bits of SplitMix64 of the key and a counter. Draws of the generator are
    a little slower on one thread, and do not parallelize; these do, with the same results for any
    number of threads.
    """
    n = math.prod(shape)
    # Without bounds random_ would leave the top bit 0.
    key = torch.empty((), dtype=torch.int64).random_(-(2**63), None)
    draws = _counters(n // 4 + 1) + key
    shifted = torch.empty_like(draws)
    for shift, factor in _ROUNDS:
        # Signed shifts extend the sign, which the mask removes.
        low_bits = (1 << (64 - shift)) - 1
        torch.bitwise_right_shift(draws, shift, out=shifted).bitwise_and_(low_bits)
        draws.bitwise_xor_(shifted)
        if factor != 1:
            draws.mul_(factor)
    lanes = draws.view(torch.int16)  # four per draw, up to three of them surplus
    return lanes[:n].view(shape)


@lru_cache(maxsize=8)
def _counters(n: int) -> Tensor:
    return torch.arange(n).mul_(_GAMMA)


def _keep_mask(shape: torch.Size, p: float) -> tuple[Tensor, float]:
    """Draw the mask of kept elements; return it with its inverse probability.

    The mask is uint8, which multiplies faster than bool.
    """
    n_dropped = min(round(p * LANES), LANES - 1)  # number of values that drop an element
    threshold = n_dropped - LANES // 2  # lanes are signed
    is_kept = random_lanes(shape) >= threshold
    scale = LANES / (LANES - n_dropped)
    return is_kept.view(torch.uint8), scale


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        mask, ctx.scale = _keep_mask(x.shape, p)
        ctx.save_for_backward(mask)
        return x.mul(mask).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return grad.mul(mask).mul_(ctx.scale), None


class _AddDropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, branch: Tensor, step: float, p: float) -> Tensor:
        mask, scale = _keep_mask(branch.shape, p)
        ctx.save_for_backward(mask)
        ctx.alpha = step * scale
        ctx.dtype = branch.dtype
        return torch.add(x, branch.mul(mask), alpha=ctx.alpha)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        grad_branch = grad.to(ctx.dtype).mul(mask).mul_(ctx.alpha)
        return grad, grad_branch, None, None
