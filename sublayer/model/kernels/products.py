"""Products with weights: linear maps, and the cross-entropy over a vocabulary, in chunks.

In float32 on a CPU that is not Intel's, large products are oneDNN's where PyTorch would call MKL,
which uses AVX-512 on Intel's processors alone and is faster there (benchmarks/kernel_choices.py).
The cross-entropy never has all logits at once.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.model.kernels.elementwise import is_eager_cpu
from sublayer.model.kernels.sizes import CPU_CHUNK_LOGITS, GPU_CHUNK_LOGITS, LEAST_PRODUCTS
from sublayer.system.machine import processor


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


def to_autocast(x: Float[Tensor, "*rows d_in"]) -> Float[Tensor, "*rows d_in"]:
    """Return several maps' input in autocast's dtype, of which each would make a copy."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


def product(
    x: Float[Tensor, "*rows d_in"],
    weight: Float[Tensor, "d_out d_in"],
    bias: Float[Tensor, " d_out"] | None = None,
) -> Float[Tensor, "*rows d_out"]:
    """Compute ``x weight^T + bias``, without a gradient where oneDNN computes it."""
    if not is_by_onednn(x, weight):
        return F.linear(x, weight, bias)
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return result


def product_over_rows(
    left: Float[Tensor, "N d_out"], right: Float[Tensor, "N d_in"]
) -> Float[Tensor, "d_out d_in"]:
    """Compute ``left^T right``, the gradient of a weight, without a gradient of its own."""
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
        and _prefers_onednn()
        and not torch.is_autocast_enabled("cpu")
    )


def has_bfloat16_units() -> bool:
    """Check whether oneDNN has native bfloat16 products here, within the limits set for it."""
    is_supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return bool(is_supported is not None and is_supported())


@cache
def _prefers_onednn() -> bool:
    """Check for oneDNN, and for MKL, which only x86 has, on a processor that is not Intel's."""
    backends: tuple[Any, ...] = (torch.backends.mkldnn, torch.backends.mkl)
    has_operation = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    has_both = all(backend.is_available() for backend in backends) and has_operation
    return has_both and "Intel" not in processor()


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


def linear_cross_entropy(
    hidden: Float[Tensor, "N E"],
    matrix: Float[Tensor, "V E"],
    bias: Float[Tensor, " V"] | None,
    targets: Int[Tensor, " N"],
    weights: Float[Tensor, " N"] | None = None,
    *,
    cap: float | None = None,
) -> Float[Tensor, ""]:
    """Sum the nats of the targets under ``softmax(soft_cap(hidden matrix^T + bias, cap))``.

    Targets of -1 are ignored, the others weighted by ``weights``, by default 1.

    Rows are computed in chunks, with gradients together with the loss, so that only a chunk of
    logits exists at a time. Under autocast matrix products are in its dtype, softmax and sums at
    least in float32. Differentiable once, with respect to all but the targets.
    """
    if not torch.is_grad_enabled():
        nats = nats_of_targets(hidden, matrix, bias, targets, cap=cap)
        return nats.total if weights is None else nats.each @ weights.to(nats.each.dtype)
    losses: tuple[Tensor, Tensor] = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, matrix, bias, targets, NO_SMOOTHING, weights, cap
    )
    return losses[0]


class Nats(NamedTuple):
    """Nats of each target, 0 where ignored, and their sum."""

    total: Float[Tensor, ""]
    each: Float[Tensor, " N"]


@torch.no_grad()
def nats_of_targets(
    hidden: Float[Tensor, "N E"],
    matrix: Float[Tensor, "V E"],
    bias: Float[Tensor, " V"] | None,
    targets: Int[Tensor, " N"],
    *,
    cap: float | None = None,
) -> Nats:
    """Compute ``linear_cross_entropy`` without gradients: nats of each target, and their sum.

    They are at least in float32. Only a chunk of logits exists at a time.
    """
    dtype = _wide(hidden.dtype)
    total = torch.zeros((), dtype=dtype, device=hidden.device)
    by_target = torch.empty(hidden.shape[0], dtype=dtype, device=hidden.device)
    for chunk, _, _, logits, _ in _chunks(hidden, matrix, bias, cap):
        nats, _, _ = _cross_entropy(logits, targets[chunk], NO_SMOOTHING)
        by_target[chunk] = nats
        total += nats.sum()
    return Nats(total, by_target)


class Smoothing(NamedTuple):
    """Weights of the terms of a row's training loss, with label smoothing and z-loss.

    ``target * nll + each * sum over the vocabulary of -log p + z * (log Z)^2``, where Z is the sum
    of ``exp(logit)`` over the vocabulary. The weights sum to 1: ``target + V * each``.

    Source of the last term, the z-loss: Raffel et al. 2020 (1910.10683), as trained by Mesh
    TensorFlow, with z = 1e-4.
    """

    target: float
    """Weight of the target, in addition to its weight as one of all tokens."""
    each: float
    """Weight of every token of the vocabulary."""
    z: float = 0.0
    """Weight of the squared log partition function."""


NO_SMOOTHING = Smoothing(1.0, 0.0)


def smoothed_cross_entropy(
    hidden: Float[Tensor, "N E"],
    matrix: Float[Tensor, "V E"],
    bias: Float[Tensor, " V"] | None,
    targets: Int[Tensor, " N"],
    smoothing: Smoothing,
    *,
    cap: float | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Sum the targets' smoothed loss, z-loss included, and, without gradients, their nats.

    It works like ``linear_cross_entropy``, but always computes gradients; without gradients use
    ``nats_of_targets``. Smoothing needs no extra pass over the logits: their sum is a product with
    the sum of the matrix's rows, whose gradient has rank one, unless they have a ``cap``.
    """
    losses: tuple[Tensor, Tensor] = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, matrix, bias, targets, smoothing, None, cap
    )
    return losses


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        matrix: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: Smoothing,
        weights: Tensor | None,
        cap: float | None,
    ) -> tuple[Tensor, Tensor]:
        is_counted = (targets >= 0)[:, None]
        if weights is not None:
            assert smoothing == NO_SMOOTHING, "smoothed losses cannot be weighted"
            # Targets are scaled by their weights instead of by 0 or 1.
            is_counted = is_counted * weights[:, None].to(hidden.dtype)
        grad_hidden = torch.empty_like(hidden)
        grad_matrix: Tensor | None = None
        grad_bias = None if bias is None else torch.zeros_like(bias)
        total = torch.zeros((), dtype=_wide(hidden.dtype), device=hidden.device)
        partition = torch.zeros_like(total)
        squares = torch.zeros_like(total)
        sum_of_logits: Tensor | float = 0.0
        slopes = None
        for chunk, rows, columns, logits, narrow in _chunks(hidden, matrix, bias, cap):
            if cap is not None:
                slopes = (logits / cap).square_().neg_().add_(1.0)
                sum_of_logits += (logits.sum(-1) * is_counted[chunk, 0]).sum()
            nats, log_partition, errors = _cross_entropy(logits, targets[chunk], smoothing)
            total += nats.sum() if weights is None else (nats * weights[chunk]).sum()
            partition += log_partition.sum()
            if smoothing.z:
                squares += log_partition.square().sum()
            if slopes is not None:
                errors.sub_(smoothing.each).mul_(slopes)
            if grad_bias is not None:
                with torch.autocast(hidden.device.type, enabled=False):
                    counted = is_counted[chunk, 0].to(errors.dtype)
                    grad_bias += counted @ errors
            if narrow is not None:
                errors = narrow.copy_(errors)
            grad_hidden[chunk] = product(errors, columns.t()) * is_counted[chunk]
            part = product_over_rows(errors, rows * is_counted[chunk])
            # The gradient is as large as the matrix, so that a saved pass is noticeable.
            if grad_matrix is None:
                grad_matrix = part.to(matrix.dtype)
            else:
                grad_matrix.add_(part)
        if grad_matrix is None:
            grad_matrix = torch.zeros_like(matrix)
        loss = total
        # The loss may be the same tensor as the sum of nats, which is returned too.
        all_nats = total.clone()
        if smoothing.each and cap is None:
            # The sum of all logits is a product with the sum of the matrix's rows.
            with torch.autocast(hidden.device.type, enabled=False):
                column = matrix.sum(0, dtype=total.dtype)  # [E]
                row = torch.where(is_counted, hidden, 0.0).sum(0, dtype=total.dtype)  # [E]
                n_counted = is_counted.sum(dtype=total.dtype)
                sum_of_biases = 0.0 if bias is None else n_counted * bias.sum()
                sum_of_logits = (row * column).sum() + sum_of_biases
                grad_hidden -= (smoothing.each * column).to(grad_hidden.dtype) * is_counted
                grad_matrix -= (smoothing.each * row).to(grad_matrix.dtype)
                if grad_bias is not None:
                    grad_bias -= smoothing.each * n_counted
        if smoothing.each:
            spread = matrix.shape[0] * partition - sum_of_logits
            loss = smoothing.target * total + smoothing.each * spread
        if smoothing.z:
            loss = loss + smoothing.z * squares
        ctx.save_for_backward(grad_hidden, grad_matrix, grad_bias)
        ctx.mark_non_differentiable(all_nats)
        return loss, all_nats

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients = [
            None if saved is None else saved * grad.to(saved.dtype) for saved in ctx.saved_tensors
        ]
        return *gradients, None, None, None, None


_Chunk = tuple[slice, Tensor, Tensor, Tensor, Tensor | None]


def _chunks(
    hidden: Tensor, matrix: Tensor, bias: Tensor | None, cap: float | None
) -> Iterator[_Chunk]:
    """Yield the rows in chunks with their logits, in the same memory unless oneDNN allocates it.

    A chunk has its indices, its hidden states and the matrix in the dtype of the product, its
    logits, and a buffer for them in the dtype of the product, if the logits have another.

    Allocating a chunk can cost more than computing it: see sublayer/system/machine.py.
    """
    device = hidden.device.type
    is_cast = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if is_cast else matrix.dtype
    columns = matrix.to(dtype)
    n_logits = CPU_CHUNK_LOGITS if device == "cpu" else GPU_CHUNK_LOGITS
    n_rows = max(1, n_logits // matrix.shape[0])
    size = min(n_rows, hidden.shape[0]), matrix.shape[0]
    by_onednn = is_by_onednn(hidden, columns)
    wide = hidden.new_empty((0, 0) if by_onednn else size, dtype=_wide(dtype))
    narrow = None if dtype == wide.dtype else hidden.new_empty(size, dtype=dtype)
    for start in range(0, hidden.shape[0], n_rows):
        where = slice(start, start + n_rows)
        rows = hidden[where].to(dtype)
        part = slice(0, rows.shape[0])
        logits = wide[part]
        products = None if narrow is None else narrow[part]
        if by_onednn:
            logits = product(rows, columns, bias)
        elif products is None:
            torch.mm(rows, columns.t(), out=logits)
        else:
            logits.copy_(torch.mm(rows, columns.t(), out=products))
        if bias is not None and not by_onednn:
            logits.add_(bias)
        if cap is not None:
            logits.div_(cap).tanh_().mul_(cap)
        yield where, rows, columns, logits, products


def _cross_entropy(
    logits: Tensor, targets: Tensor, smoothing: Smoothing
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute each row's nats and log partition function, 0 where ignored.

    Also returns the gradient of the logits, in their memory and without the constant that smoothing
    subtracts: softmax times ``1 + 2 z log Z``, minus the target's weight at the target.
    """
    chosen = targets.clamp_min(0)[:, None]
    largest = logits.amax(-1)
    at_target = logits.gather(1, chosen)[:, 0]
    shares = torch.softmax(logits, -1, out=logits)
    # The largest probability is 1 / sum(exp(logit - largest logit)), which gives the log partition
    # function without another exp.
    log_partition = largest - shares.amax(-1).log()
    if smoothing.z:
        shares.mul_((1.0 + 2.0 * smoothing.z * log_partition)[:, None])
    at_chosen = shares.new_full((1, 1), -smoothing.target).expand_as(chosen)
    shares.scatter_add_(1, chosen, at_chosen)
    is_counted = targets >= 0
    nats = torch.where(is_counted, log_partition - at_target, 0.0)
    return nats, torch.where(is_counted, log_partition, 0.0), shares


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
