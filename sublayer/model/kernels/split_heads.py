"""Queries, keys and values as views of their projection, and one gradient for the three."""

from typing import Any

import torch
from torch import Tensor

from sublayer.model.kernels.choice import is_eager_cpu


def split_heads(projected: Tensor, n_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split ``[B, T, 3 H K]`` into queries, keys and values ``[B, H, T, K]``.

    They are views. On a CPU their gradients are not copied where they are views of one tensor too.
    """
    if not is_eager_cpu(projected):
        return _split(projected, n_heads)
    q, k, v = _SplitHeads.apply(projected, n_heads)  # type: ignore[no-untyped-call]
    return q, k, v


def _split(projected: Tensor, n_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    by_head = projected.view(*projected.shape[:2], 3, n_heads, -1)  # [B, T, 3, H, K]
    q, k, v = by_head.permute(2, 0, 3, 1, 4).unbind()  # [B, H, T, K] each
    return q, k, v


class _SplitHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, projected: Tensor, n_heads: int) -> tuple[Tensor, ...]:
        return _split(projected, n_heads)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        whole = whole_of(*grads)
        if whole is None:
            by_token = [grad.transpose(1, 2) for grad in grads]  # [B, T, H, K] each
            whole = torch.stack(by_token, dim=2)  # [B, T, 3, H, K]
        return whole.flatten(2), None


def whole_of(*parts: Tensor) -> Tensor | None:
    """Return the ``[B, T, 3, H, K]`` that queries, keys and values are views of, or None.

    It is None too where they are in another order, or not from the start of a storage.
    """
    first = parts[0]
    n, n_heads, n_tokens, width = first.shape  # [B, H, T, K]
    part_width = n_heads * width
    row = 3 * part_width
    strides = (n_tokens * row, width, row, 1)
    storage = first.untyped_storage().data_ptr()
    for index, part in enumerate(parts):
        is_own = (
            part.shape == first.shape
            and part.stride() == strides
            and part.storage_offset() == index * part_width
            and part.untyped_storage().data_ptr() == storage
        )
        if not is_own:
            return None
    whole_shape = (n, n_tokens, 3, n_heads, width)
    whole_strides = (n_tokens * row, row, part_width, width, 1)
    return first.as_strided(whole_shape, whole_strides)
