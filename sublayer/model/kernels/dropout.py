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

# SplitMix64 (Steele et al. 2014, sec. 4, with variant 13 of Stafford's mixer), its constants as
# signed numbers.
_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_ROUNDS = (
    (30, 0xBF58476D1CE4E5B9 - 2**64),
    (27, 0x94D049BB133111EB - 2**64),
    (31, 1),
)
"""Shift and multiplier of each round."""


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero elements with probability ``p`` and scale the others to keep the mean, in training.

    Draws from PyTorch's global generator. On a CPU ``p`` is rounded to a multiple of 2**-16 below
    1. Outside training, and at a ``p`` of 0, it returns ``x`` itself and draws nothing.
    """
    if not training or p == 0.0:
        return x
    if not is_eager_cpu(x):
        return F.dropout(x, p)
    dropped: Tensor = _Dropout.apply(x, p)  # type: ignore[no-untyped-call]
    return dropped


def add_branch(x: Tensor, branch: Tensor, *, step: float, p: float, training: bool) -> Tensor:
    """Compute ``x + step * dropout(branch)`` in the type of ``x``, which is the wider one.

    Draws as ``dropout`` does. On a CPU step size and dropout's scale are one factor, which saves a
    pass over the branch.
    """
    if not training or p == 0.0:
        return torch.add(x, branch, alpha=step)
    if not is_eager_cpu(x):
        return torch.add(x, F.dropout(branch, p), alpha=step)
    total: Tensor = _AddDropped.apply(x, branch, step, p)  # type: ignore[no-untyped-call]
    return total


def random_lanes(shape: torch.Size) -> Tensor:
    """Draw integers uniform over all of int16, from a key that PyTorch's global generator gives.

    Each four are the 64 bits that SplitMix64 makes of the key and a counter. The generator's own
    draws cost one thread a little more, and they cannot be shared among threads: these are, with
    the same result, whatever their number.
    """
    n = math.prod(shape)
    # Without bounds random_ leaves the top bit 0.
    key = torch.empty((), dtype=torch.int64).random_(-(2**63), None)
    draws = _counters(n // 4 + 1) + key
    shifted = torch.empty_like(draws)
    for shift, factor in _ROUNDS:
        # Shifts of signed numbers fill up with the sign; the mask takes it away.
        low_bits = (1 << (64 - shift)) - 1
        torch.bitwise_right_shift(draws, shift, out=shifted).bitwise_and_(low_bits)
        draws.bitwise_xor_(shifted)
        if factor != 1:
            draws.mul_(factor)
    lanes = draws.view(torch.int16)  # four of each draw, up to three more than asked for
    return lanes[:n].view(shape)


@lru_cache(maxsize=8)
def _counters(n: int) -> Tensor:
    return torch.arange(n).mul_(_GAMMA)


def _keep_mask(shape: torch.Size, p: float) -> tuple[Tensor, float]:
    """Draw the mask of kept elements, and return it with the inverse of its probability.

    The mask is of bytes, which multiply faster than booleans.
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
