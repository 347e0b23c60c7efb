"""Dropout with cheap masks on a CPU, the native one elsewhere.

On a CPU ``bernoulli_`` costs more than the matrix products around it. Here one 64-bit draw serves
four elements: each 16-bit lane is compared with a threshold, and kept elements are scaled by the
keep probability of that threshold.
"""

import math
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sublayer.model.kernels.choice import is_eager_cpu

LANES = 1 << 16
"""Values of a 16-bit lane."""

# SplitMix64 (Steele et al. 2014, sec. 4, with variant 13 of Stafford's mixer), constants as signed
# numbers.
_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_ROUNDS = (
    (30, 0xBF58476D1CE4E5B9 - 2**64),
    (27, 0x94D049BB133111EB - 2**64),
    (31, 1),
)
"""Shift and multiplier of each round."""


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero elements with probability ``p`` in training, and scale the others to keep the mean.

    Draws from PyTorch's global generator. On a CPU ``p`` is rounded to a multiple of 2**-16 below
    1. Outside training, or with ``p`` 0, ``x`` is returned and nothing drawn.
    """
    if not training or p == 0.0:
        return x
    if not is_eager_cpu(x):
        return F.dropout(x, p)
    dropped: Tensor = _Dropout.apply(x, p)  # type: ignore[no-untyped-call]
    return dropped


def add_branch(x: Tensor, branch: Tensor, *, step: float, p: float, training: bool) -> Tensor:
    """Compute ``x + step * dropout(branch)`` in the dtype of ``x``, the wider one.

    Draws as ``dropout`` does. On a CPU step size and dropout's scale are fused, which saves a pass.
    """
    if not training or p == 0.0:
        return torch.add(x, branch, alpha=step)
    if not is_eager_cpu(x):
        return torch.add(x, F.dropout(branch, p), alpha=step)
    total: Tensor = _AddDropped.apply(x, branch, step, p)  # type: ignore[no-untyped-call]
    return total


def random_lanes(shape: torch.Size) -> Tensor:
    """Draw uniform int16 integers, from a key drawn from PyTorch's global generator.

    Four integers are the 64 bits of SplitMix64 of the key and a counter. The generator's draws are
    a little slower on one thread, and do not parallelise; these do, independently of the number of
    threads.
    """
    n = math.prod(shape)
    # Without bounds random_ leaves the top bit 0.
    key = torch.empty((), dtype=torch.int64).random_(-(2**63), None)
    draws = _counters(n // 4 + 1) + key
    shifted = torch.empty_like(draws)
    for shift, factor in _ROUNDS:
        # Signed shifts extend the sign; the mask removes it.
        low_bits = (1 << (64 - shift)) - 1
        torch.bitwise_right_shift(draws, shift, out=shifted).bitwise_and_(low_bits)
        draws.bitwise_xor_(shifted)
        if factor != 1:
            draws.mul_(factor)
    lanes = draws.view(torch.int16)  # four per draw, up to three surplus
    return lanes[:n].view(shape)


@lru_cache(maxsize=8)
def _counters(n: int) -> Tensor:
    return torch.arange(n).mul_(_GAMMA)


def _keep_mask(shape: torch.Size, p: float) -> tuple[Tensor, float]:
    """Draw the mask of kept elements; return it with its inverse probability.

    The mask is uint8, which multiplies faster than bool.
    """
    n_dropped = min(round(p * LANES), LANES - 1)  # values of a lane
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
