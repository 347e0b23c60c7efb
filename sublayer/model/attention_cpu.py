"""Attention as matrix products and a softmax, differentiated by hand: on a CPU faster than the fused kernels.

Queries go in blocks of rows, so that a causal one multiplies little more than the half of the keys that it sees.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from sublayer.model.dropout import random_lanes

# Measured with bf16 and float32 at 256 and 512 tokens: blocks of 64 and of all rows are both slower.
BLOCK_ROWS = 128


def attend_blockwise(
    q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, mask: Tensor | None, scale: float, p_dropout: float
) -> Tensor:
    """Average values by ``softmax(scale * q k)`` of ``[B, H, T, K]`` queries and ``[B, H, S, K]`` keys and values.

    Under ``is_causal`` the last query sees every key, each earlier one a key less; ``mask`` ``[B, 1, T, S]`` must then
    agree; one row of it stands for all queries. Attention weights are dropped with probability ``p_dropout``, rounded
    to a multiple of 2**-15.
    """
    n_heads = q.shape[1]
    bias = _score_bias(q, k.shape[2], is_causal=is_causal, mask=mask)
    folded = (x.flatten(0, 1).contiguous() for x in (q, k, v))  # [B H, T or S, K] each
    mixed: Tensor = _Attend.apply(*folded, bias, is_causal, scale, p_dropout)  # type: ignore[no-untyped-call]
    return mixed.view(-1, n_heads, *mixed.shape[1:])


def _score_bias(q: Tensor, n_keys: int, *, is_causal: bool, mask: Tensor | None) -> Tensor | None:
    """Make what is added to scores, 0 or minus infinity: [T, S], or [B H, T or 1, S] under a mask."""
    n_queries = q.shape[2]
    if mask is not None:
        bias = torch.zeros(mask.shape, dtype=q.dtype).masked_fill_(~mask, float("-inf"))
        return bias.expand(-1, q.shape[1], -1, -1).flatten(0, 1)
    return _triangle(n_queries, n_keys, q.dtype) if is_causal else None


@lru_cache(maxsize=8)
def _triangle(n_queries: int, n_keys: int, dtype: torch.dtype) -> Tensor:
    return torch.full((n_queries, n_keys), float("-inf"), dtype=dtype).triu_(1 + n_keys - n_queries)


def _blocks(n_queries: int, n_keys: int, is_causal: bool) -> Iterator[tuple[slice, slice]]:
    """Pair blocks of query rows with the keys they may see, the widest first."""
    for end in range(n_queries, 0, -BLOCK_ROWS):
        rows = slice(max(end - BLOCK_ROWS, 0), end)
        yield rows, slice(0, n_keys - n_queries + end if is_causal else n_keys)


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
        for rows, keys in _blocks(q.shape[1], k.shape[1], is_causal):
            scores = _scores(q[:, rows], k[:, keys], _part(bias, rows, keys), scale)
            weights = torch.softmax(scores, -1)
            del scores
            if n_dropped:
                weights.copysign_(_signs(weights, n_dropped))
                out[:, rows] = torch.bmm(weights.clamp_min(0), v[:, keys])
            else:
                out[:, rows] = torch.bmm(weights, v[:, keys])
            if is_training:
                saved.append(weights)
        ctx.save_for_backward(q, k, v, *saved)
        ctx.is_causal, ctx.scale, ctx.is_dropped = is_causal, scale, n_dropped > 0
        ctx.keep_scale = 2**15 / (2**15 - n_dropped)
        return out.mul_(ctx.keep_scale) if n_dropped else out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *saved = ctx.saved_tensors
        grad = grad * ctx.keep_scale if ctx.is_dropped else grad.contiguous()
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for (rows, keys), weights in zip(_blocks(q.shape[1], k.shape[1], ctx.is_causal), saved, strict=True):
            grad_rows = grad[:, rows]
            grad_weights = torch.bmm(grad_rows, v[:, keys].transpose(1, 2))
            kept = weights
            if ctx.is_dropped:
                kept = weights.clamp_min(0)
                grad_weights = torch.ops.aten.threshold_backward(grad_weights, weights, 0)
                weights = weights.abs()
            grad_v[:, keys] += torch.bmm(kept.transpose(1, 2), grad_rows)
            grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
            grad_q[:, rows] = torch.bmm(grad_scores, k[:, keys])
            grad_k[:, keys] += torch.bmm(grad_scores.transpose(1, 2), q[:, rows])
        return grad_q.mul_(ctx.scale), grad_k.mul_(ctx.scale), grad_v, None, None, None, None


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
