"""Attention as matrix products and a softmax, differentiated by hand: on a CPU faster than the fused kernels.

Queries go in blocks of rows, so that a causal one multiplies little more than the half of the keys that it sees.
"""

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from sublayer.model.dropout import random_lanes
from sublayer.model.kernels import is_eager_cpu

# Measured with bf16 and float32 at 256 and 512 tokens: blocks of 64 and of all rows are both slower.
BLOCK_ROWS = 128

# Scores of a sequence for each thread from which it goes alone: of fewer, the many small operations show, most where
# threads wait for each other beside other programs.
GRAIN = 1 << 16


def attend_blockwise(
    q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, mask: Tensor | None, scale: float, p_dropout: float
) -> Tensor:
    """Average values by ``softmax(scale * q k)`` of ``[B, H, T, K]`` queries and ``[B, H, S, K]`` keys and values.

    Under ``is_causal`` the last query sees every key, each earlier one a key less; ``mask`` ``[B, 1, T, S]`` must then
    agree; one row of it stands for all queries. Attention weights are dropped with probability ``p_dropout``, rounded
    to a multiple of 2**-15.
    """
    bias = _score_bias(q, k.shape[2], is_causal=is_causal, mask=mask)
    if _goes_by_sequence(q, k):
        mixed: Tensor = _Attend.apply(*_without_rest(q, k, v), bias, is_causal, scale, p_dropout)  # type: ignore[no-untyped-call]
        return mixed
    if bias is not None and bias.dim() == 4:
        bias = bias.expand(-1, q.shape[1], -1, -1).flatten(0, 1)[None]
    folded = (x.flatten(0, 1).contiguous()[None] for x in (q, k, v))  # [1, B H, T or S, K] each
    mixed = _Attend.apply(*folded, bias, is_causal, scale, p_dropout)  # type: ignore[no-untyped-call]
    return mixed.view(q.shape)


def split_heads(projected: Tensor, n_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split ``[B, T, 3 H K]`` into queries, keys and values ``[B, H, T, K]``, views whose gradients are not copied."""
    if not is_eager_cpu(projected):
        return _split(projected, n_heads)
    q, k, v = _SplitHeads.apply(projected, n_heads)  # type: ignore[no-untyped-call]
    return q, k, v


def _split(projected: Tensor, n_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = projected.view(*projected.shape[:2], 3, n_heads, -1).permute(2, 0, 3, 1, 4).unbind()
    return q, k, v


def _goes_by_sequence(q: Tensor, k: Tensor) -> bool:
    """Tell whether to take sequences one at a time, as they are: their scores then stay in the cache.

    That needs enough of them for every thread, and products that read rows at any distance: bf16's copy them first.
    """
    n_scores = q.shape[1] * q.shape[2] * k.shape[2]
    are_rows = all(x.stride(3) == 1 and x.stride(2) >= x.shape[3] for x in (q, k))
    return q.dtype in (torch.float32, torch.float64) and n_scores >= GRAIN * torch.get_num_threads() and are_rows


def _without_rest(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Copy what is part of a tensor that these do not cover: saving it would keep all of that."""
    covered: Counter[int] = Counter()
    for x in tensors:
        covered[x.untyped_storage().data_ptr()] += x.nbytes
    storages = (x.untyped_storage() for x in tensors)
    return tuple(
        x if covered[storage.data_ptr()] >= storage.nbytes() else x.contiguous()
        for x, storage in zip(tensors, storages, strict=True)
    )


def _score_bias(q: Tensor, n_keys: int, *, is_causal: bool, mask: Tensor | None) -> Tensor | None:
    """Make what is added to scores, 0 or minus infinity: [T, S], or [B, 1, T or 1, S] under a mask."""
    if mask is not None:
        return torch.zeros(mask.shape, dtype=q.dtype).masked_fill_(~mask, float("-inf"))
    return _triangle(q.shape[2], n_keys, q.dtype) if is_causal else None


@lru_cache(maxsize=8)
def _triangle(n_queries: int, n_keys: int, dtype: torch.dtype) -> Tensor:
    return torch.full((n_queries, n_keys), float("-inf"), dtype=dtype).triu_(1 + n_keys - n_queries)


def _blocks(n_queries: int, n_keys: int, is_causal: bool) -> Iterator[tuple[slice, slice]]:
    """Pair blocks of query rows with the keys they may see, the widest first."""
    for end in range(n_queries, 0, -BLOCK_ROWS):
        rows = slice(max(end - BLOCK_ROWS, 0), end)
        yield rows, slice(0, n_keys - n_queries + end if is_causal else n_keys)


class _SplitHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, projected: Tensor, n_heads: int) -> tuple[Tensor, ...]:
        return _split(projected, n_heads)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        whole = _whole(*grads)
        if whole is None:
            whole = torch.stack([grad.transpose(1, 2) for grad in grads], dim=2)  # [B, T, 3, H, K]
        return whole.flatten(2), None


def _whole(*parts: Tensor) -> Tensor | None:
    """Return the tensor ``[B, T, 3, H, K]`` that queries, keys and values are views of, if there is one."""
    first, shape = parts[0], parts[0].shape
    n, n_heads, n_tokens, width = shape
    row = 3 * n_heads * width
    places = [(part.shape, part.stride(), part.storage_offset(), part.untyped_storage().data_ptr()) for part in parts]
    strides, storage = (n_tokens * row, width, row, 1), first.untyped_storage().data_ptr()
    if places != [(shape, strides, index * n_heads * width, storage) for index in range(3)]:
        return None
    return first.as_strided((n, n_tokens, 3, n_heads, width), (n_tokens * row, row, n_heads * width, width, 1))


class _Attend(torch.autograd.Function):
    """The weights are saved with their sign: negative ones were dropped, so that no mask is kept beside them."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        is_causal: bool,
        scale: float,
        p_dropout: float,
    ) -> Tensor:
        out, saved = torch.empty_like(q), []
        n_dropped, is_training = round(p_dropout * 2**15), any(ctx.needs_input_grad)
        blocks = list(_blocks(q.shape[2], k.shape[2], is_causal))
        biases = bias if bias is not None and bias.dim() == 4 else [bias] * q.shape[0]
        for own_q, own_k, own_v, own_bias, own_out in zip(q, k, v, biases, out, strict=True):
            for rows, keys in blocks:
                scores = _scores(own_q[:, rows], own_k[:, keys], _part(own_bias, rows, keys), scale)
                weights = torch.softmax(scores, -1)
                del scores
                kept = weights
                if n_dropped:
                    weights.copysign_(_signs(weights, n_dropped))
                    kept = weights.clamp_min(0)
                own_out[:, rows] = torch.bmm(kept, own_v[:, keys])
                if is_training:
                    saved.append(weights)
        ctx.save_for_backward(q, k, v, *saved)
        ctx.is_causal, ctx.scale, ctx.is_dropped = is_causal, scale, n_dropped > 0
        ctx.keep_scale = 2**15 / (2**15 - n_dropped)
        return out.mul_(ctx.keep_scale) if n_dropped else out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *saved = ctx.saved_tensors
        if ctx.is_dropped:
            grad = grad * ctx.keep_scale
        elif q.shape[0] == 1:
            grad = grad.contiguous()
        grads, blocks = _room(q, k, v), list(_blocks(q.shape[2], k.shape[2], ctx.is_causal))
        weights = iter(saved)
        for of_one in zip(q, k, v, grad, *grads, strict=True):
            for rows, keys in blocks:
                _back_through_block(of_one, rows, keys, next(weights), scale=ctx.scale, is_dropped=ctx.is_dropped)
        return *grads, None, None, None, None


def _room(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """Make room for gradients: that of three views of one tensor is one, too."""
    whole = _whole(q, k, v)
    if whole is None:
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    return torch.empty_like(whole).permute(2, 0, 3, 1, 4).unbind()


def _back_through_block(
    of_one: tuple[Tensor, ...], rows: slice, keys: slice, weights: Tensor, *, scale: float, is_dropped: bool
) -> None:
    """Write the gradient of a block's queries, and write or add those of the keys and values that it sees."""
    q, k, v, grad, grad_q, grad_k, grad_v = of_one
    q, grad, k, v = q[:, rows], grad[:, rows], k[:, keys], v[:, keys]
    grad_weights = torch.bmm(grad, v.transpose(1, 2))
    kept = weights
    if is_dropped:
        kept = weights.clamp_min(0)
        grad_weights = torch.ops.aten.threshold_backward(grad_weights, weights, 0)
        weights = weights.abs()
    grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
    grad_q[:, rows] = _scaled_bmm(grad_scores, k, scale)
    of_values = torch.bmm(kept.transpose(1, 2), grad)
    of_keys = _scaled_bmm(grad_scores.transpose(1, 2), q, scale)
    if rows.stop == grad_q.shape[1]:  # the first block, which has all keys
        grad_v.copy_(of_values)
        grad_k.copy_(of_keys)
    else:
        grad_v[:, keys] += of_values
        grad_k[:, keys] += of_keys


def _scaled_bmm(one: Tensor, other: Tensor, scale: float) -> Tensor:
    """Multiply, and scale for nothing where the product does so as it writes."""
    if one.dtype == torch.bfloat16:
        return torch.bmm(one, other).mul_(scale)
    return torch.baddbmm(one.new_empty(()), one, other, beta=0, alpha=scale)


def _part(bias: Tensor | None, rows: slice, keys: slice) -> Tensor | None:
    if bias is None:
        return None
    return bias[..., keys] if bias.shape[-2] == 1 else bias[..., rows, keys]


def _scores(q: Tensor, k: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    if bias is None:
        return torch.bmm(q, k.transpose(1, 2)).mul_(scale)
    return torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale)


def _signs(weights: Tensor, n_dropped: int) -> Tensor:
    """Draw numbers that are negative with probability ``n_dropped / 2**15``."""
    lanes = random_lanes(weights.shape)
    lanes.bitwise_right_shift_(1).add_(2**14 - n_dropped)
    return lanes.view(weights.dtype) if weights.element_size() == 2 else lanes
