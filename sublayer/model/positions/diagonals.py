"""A bias of scores from its diagonals: one number for all pairs that are as far apart."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def spread_diagonals(by_offset: Float[Tensor, "H L"], n_queries: int) -> Float[Tensor, "H T S"]:
    """Spread numbers of offsets over the pairs of ``n_queries`` queries with keys.

    Query t and key s have number ``T - 1 - t + s``, of L = T + S - 1. A gradient is summed over
    diagonals, which adds rows: what indexing would scatter one by one.
    """
    if n_queries == 1:
        return by_offset[:, None]
    spread: Tensor = _Spread.apply(by_offset, n_queries)  # type: ignore[no-untyped-call]
    return spread


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, by_offset: Tensor, n_queries: int) -> Tensor:
        n_keys = by_offset.shape[1] - n_queries + 1
        # Window t is that of the last query but t.
        windows = by_offset.unfold(1, n_keys, 1)  # [H, T, S]
        return windows.flip(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        n_heads, n_queries, n_keys = grad.shape
        n_offsets = n_queries + n_keys - 1
        total = grad.new_empty(n_heads, n_offsets)
        # Rows of L - 1 numbers in a storage of rows of L: each is one further left than the last.
        aligned = grad.new_zeros(n_queries * n_offsets)
        inner = aligned[n_queries - 1 :][: n_queries * (n_offsets - 1)]
        skewed = inner.view(n_queries, n_offsets - 1)[:, :n_keys]
        # A head at a time, which holds little beside the gradient.
        for head in range(n_heads):
            skewed.copy_(grad[head])
            torch.sum(aligned.view(n_queries, n_offsets), 0, out=total[head])
        return total, None
