"""Cross-entropy over a vocabulary, never holding all logits at once."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Logits per chunk of rows. On a CPU fewer make the matrix products slower, more only cost memory.
CPU_CHUNK_LOGITS = 1 << 22
GPU_CHUNK_LOGITS = 1 << 27


def linear_cross_entropy(
    hidden: Float[Tensor, "N E"],
    matrix: Float[Tensor, "V E"],
    bias: Float[Tensor, " V"] | None,
    targets: Int[Tensor, " N"],
) -> Float[Tensor, ""]:
    """Sum the nats of the targets under ``softmax(hidden matrix^T + bias)``; a target of -1 does not count.

    Works in chunks of rows and computes gradients along with the loss, so that only a chunk of logits exists at a time.
    Under autocast the matrix products are in its type; softmax and sums in float32 at least. Differentiable once.
    """
    if not torch.is_grad_enabled():
        return _nats(hidden, matrix, bias, targets)
    return smoothed_cross_entropy(hidden, matrix, bias, targets, NO_SMOOTHING)[0]


class Smoothing(NamedTuple):
    """Label smoothing of a row: ``target * nll + each * sum over the vocabulary of -log p``, weights that sum to 1."""

    target: float
    each: float


NO_SMOOTHING = Smoothing(1.0, 0.0)


def smoothed_cross_entropy(
    hidden: Float[Tensor, "N E"],
    matrix: Float[Tensor, "V E"],
    bias: Float[Tensor, " V"] | None,
    targets: Int[Tensor, " N"],
    smoothing: Smoothing,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Sum the smoothed loss of the targets, and, without gradients, their nats; otherwise as ``linear_cross_entropy``.

    That the loss is spread over the whole vocabulary costs no pass over the logits: their sum is one product with the
    sum of the matrix's rows, and the gradient of that has rank one.
    """
    found: tuple[Tensor, Tensor] = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, matrix, bias, targets, smoothing
    )
    return found


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, matrix: Tensor, bias: Tensor | None, targets: Tensor, smoothing: Smoothing
    ) -> tuple[Tensor, Tensor]:
        is_counted = (targets >= 0)[:, None]
        grad_hidden, grad_matrix = torch.empty_like(hidden), None
        grad_bias = None if bias is None else torch.zeros_like(bias)
        total = torch.zeros((), dtype=_wide(hidden.dtype), device=hidden.device)
        partition = torch.zeros_like(total)
        for chunk, rows, columns, logits, narrow in _chunks(hidden, matrix, bias):
            part_nats, log_partition, shares = _cross_entropy(logits, targets[chunk], smoothing.target)
            total += part_nats
            partition += log_partition
            if grad_bias is not None:
                with torch.autocast(hidden.device.type, enabled=False):
                    grad_bias += is_counted[chunk, 0].to(shares.dtype) @ shares
            errors = shares if narrow is None else narrow.copy_(shares)
            grad_hidden[chunk] = (errors @ columns) * is_counted[chunk]
            part = errors.t() @ (rows * is_counted[chunk])
            # As large as the matrix: each pass over it that is saved shows.
            grad_matrix = part.to(matrix.dtype) if grad_matrix is None else grad_matrix.add_(part)
        if grad_matrix is None:
            grad_matrix = torch.zeros_like(matrix)
        loss, nats = total, total.clone()
        if smoothing.each:
            with torch.autocast(hidden.device.type, enabled=False):
                column = matrix.sum(0, dtype=total.dtype)  # [E]
                row = torch.where(is_counted, hidden, 0.0).sum(0, dtype=total.dtype)  # [E]
                n_counted = is_counted.sum(dtype=total.dtype)
                sum_of_logits = (row * column).sum() + (0.0 if bias is None else n_counted * bias.sum())
                loss = smoothing.target * total + smoothing.each * (matrix.shape[0] * partition - sum_of_logits)
                grad_hidden -= (smoothing.each * column).to(grad_hidden.dtype) * is_counted
                grad_matrix -= (smoothing.each * row).to(grad_matrix.dtype)
                if grad_bias is not None:
                    grad_bias -= smoothing.each * n_counted
        ctx.save_for_backward(grad_hidden, grad_matrix, grad_bias)
        ctx.mark_non_differentiable(nats)
        return loss, nats

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        return *(None if saved is None else saved * grad.to(saved.dtype) for saved in ctx.saved_tensors), None, None


def _nats(hidden: Tensor, matrix: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    total = torch.zeros((), dtype=_wide(hidden.dtype), device=hidden.device)
    for chunk, _, _, logits, _ in _chunks(hidden, matrix, bias):
        total += _cross_entropy(logits, targets[chunk], 1.0)[0]
    return total


class _Chunk(NamedTuple):
    """Some rows: where they are, their states and the matrix as multiplied, their logits, and room for narrow ones."""

    where: slice
    rows: Tensor
    columns: Tensor
    logits: Tensor
    narrow: Tensor | None


def _chunks(hidden: Tensor, matrix: Tensor, bias: Tensor | None) -> Iterator[_Chunk]:
    """Give the rows in chunks, one after another in the same memory.

    To ask for that of each chunk can cost more than to compute what is in it: see train/allocator.py.
    """
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else matrix.dtype
    columns = matrix.to(dtype)
    n_rows = max(1, (CPU_CHUNK_LOGITS if device == "cpu" else GPU_CHUNK_LOGITS) // matrix.shape[0])
    size = min(n_rows, hidden.shape[0]), matrix.shape[0]
    wide = hidden.new_empty(size, dtype=_wide(dtype))
    narrow = None if dtype == wide.dtype else hidden.new_empty(size, dtype=dtype)
    for start in range(0, hidden.shape[0], n_rows):
        chunk = slice(start, start + n_rows)
        rows = hidden[chunk].to(dtype)
        part = slice(0, rows.shape[0])
        logits, products = wide[part], None if narrow is None else narrow[part]
        if products is None:
            torch.mm(rows, columns.t(), out=logits)
        else:
            logits.copy_(torch.mm(rows, columns.t(), out=products))
        yield _Chunk(chunk, rows, columns, logits if bias is None else logits.add_(bias), products)


def _cross_entropy(logits: Tensor, targets: Tensor, weight: float) -> tuple[Tensor, Tensor, Tensor]:
    """Give the nats and the logs of the partition function of the counted rows, and every row's gradient.

    That is softmax less ``weight`` at the target; it takes the place of the logits.
    """
    chosen = targets.clamp_min(0)[:, None]
    largest, at_target = logits.amax(-1), logits.gather(1, chosen)[:, 0]
    shares = torch.softmax(logits, -1, out=logits)
    # The largest share is 1 / sum(exp(logit - largest logit)): the log of the partition function without an exp.
    log_partition = largest - shares.amax(-1).log()
    shares.scatter_add_(1, chosen, shares.new_full((1, 1), -weight).expand_as(chosen))
    is_counted = targets >= 0
    nats = torch.where(is_counted, log_partition - at_target, 0.0).sum()
    return nats, torch.where(is_counted, log_partition, 0.0).sum(), shares


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
