"""Products with weights; in float32 on a CPU by oneDNN where PyTorch would call MKL.

oneDNN adds the bias in the same pass, and uses AVX-512 on every processor that has it, MKL on
Intel's alone (benchmarks/kernel_choices.py).
"""

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sublayer.model.kernels.elementwise import is_eager_cpu
from sublayer.model.kernels.sizes import LEAST_PRODUCTS


def linear(
    x: Float[Tensor, "*rows d_in"],
    weight: Float[Tensor, "d_out d_in"],
    bias: Float[Tensor, " d_out"] | None = None,
) -> Float[Tensor, "*rows d_out"]:
    """Compute ``x weight^T + bias``; differentiable once in float32 on a CPU."""
    if not torch.is_grad_enabled() or not is_by_onednn(x, weight):
        return product(x, weight, bias)
    mapped: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return mapped


def product(
    x: Float[Tensor, "*rows d_in"],
    weight: Float[Tensor, "d_out d_in"],
    bias: Float[Tensor, " d_out"] | None = None,
) -> Float[Tensor, "*rows d_out"]:
    """Compute ``x weight^T + bias``, for use without gradients."""
    if not is_by_onednn(x, weight):
        return F.linear(x, weight, bias)
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return result


def product_over_rows(
    left: Float[Tensor, "N d_out"], right: Float[Tensor, "N d_in"]
) -> Float[Tensor, "d_out d_in"]:
    """Compute ``left^T right``, the gradient of a weight, for use without gradients."""
    if is_by_onednn(left.t(), right.t()) and left.shape[1] > right.shape[1]:
        # The factor with fewer columns is faster as the second.
        return product(right.t(), left.t()).t()
    return product(left.t(), right.t())


def is_by_onednn(x: Float[Tensor, "*rows d_in"], weight: Float[Tensor, "d_out d_in"]) -> bool:
    """Check whether oneDNN computes ``x weight^T``."""
    return (
        x.dtype == weight.dtype == torch.float32
        and is_eager_cpu(x)
        and x.numel() * weight.shape[0] >= LEAST_PRODUCTS
        and _has_both()
        and not torch.is_autocast_enabled("cpu")
    )


@cache
def _has_both() -> bool:
    """Check whether PyTorch has oneDNN, and MKL, which only x86 processors have."""
    backends: tuple[Any, ...] = (torch.backends.mkldnn, torch.backends.mkl)
    has_operation = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return all(backend.is_available() for backend in backends) and has_operation


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = product(grad, weight.t())
        rows = grad.flatten(0, -2)
        if ctx.needs_input_grad[1]:
            grad_weight = product_over_rows(rows, x.flatten(0, -2))
        if ctx.needs_input_grad[2]:
            grad_bias = rows.sum(0)
        return grad_x, grad_weight, grad_bias
