"""Swish of any slope, which saves its input alone for its backward pass."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from sublayer.estimate.kernel_sizes import SWISH_PART


def swish(x: Tensor, beta: Tensor | float) -> Tensor:
    """Compute ``x * sigmoid(beta x)``, in float32 at least; ``beta`` may have a gradient.

    The result has the type of ``x``. Differentiable once. Departure under the compiler: it is the
    plain expression, in the types of its operands.
    """
    if torch.compiler.is_compiling():
        return x * torch.sigmoid(beta * x)
    if not isinstance(beta, Tensor):
        beta = torch.full((), beta, dtype=_wide(x.dtype), device=x.device)
    activated: Tensor = _Swish.apply(x, beta)  # type: ignore[no-untyped-call]
    return activated


class _Swish(torch.autograd.Function):
    """Differentiated by hand: autograd would save the product and the gate beside the input."""

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
            # With s the sigmoid, x s' / beta = x s (1 - s) is what both derivatives have:
            # d/dbeta = x * (x s (1 - s)), d/dx = s + beta * (x s (1 - s)).
            shared = (1 - gate).mul_(gate).mul_(wide)
            if needs_grad_beta:
                # In one expression: a name would hold another part to the end of the turn.
                grad_beta += (shared * wide).mul_(part_grad).sum()
            slope = gate.addcmul_(shared, beta.to(shared.dtype))
            part_grad_x.copy_(slope.mul_(part_grad))
        if not needs_grad_beta:
            return grad_x, None
        return grad_x, grad_beta.to(beta.dtype)


def _gate(x: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``x`` and ``sigmoid(beta x)``, in float32 at least."""
    wide = x.to(_wide(x.dtype))
    return wide, (wide * beta.to(wide.dtype)).sigmoid_()


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _parts(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split tensors of one shape by rows, so that temporaries are small."""
    width = max(1, tensors[0].shape[-1])
    n_rows = max(1, SWISH_PART // width)
    by_tensor = [torch.split(_as_rows(x), n_rows) for x in tensors]
    yield from zip(*by_tensor, strict=True)


def _as_rows(x: Tensor) -> Tensor:
    """View a tensor as a matrix ``[N, F]``; what has no rows is one."""
    if x.dim() < 2:
        return x[None]
    return x.flatten(0, -2)
