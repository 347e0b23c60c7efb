"""Attention on a CPU, faster than the fused kernels: all sequences together, or one at a time."""

from collections import Counter
from functools import lru_cache, partial

import torch
from torch import Tensor

from sublayer.estimate.kernel_sizes import GRAIN
from sublayer.model.kernels.attention_blocks import attend_in_blocks


def attend_blockwise(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    is_causal: bool,
    mask: Tensor | None,
    scale: float,
    p_dropout: float,
    bias: Tensor | None = None,
) -> Tensor:
    """Average values by ``softmax(scale * q k + bias)`` of ``[B, H, T, K]`` queries.

    Keys and values are ``[B, H, S, K]``, a bias is ``[1 or B, H, T, S]`` of any floating type.

    Under ``is_causal`` the last query sees every key, each earlier one a key less; ``mask`` ``[B,
    1, T, S]`` must then agree; one row of it stands for all queries. Attention weights are dropped
    with probability ``p_dropout``, rounded to a multiple of 2**-15.

    Differentiable once, by queries, keys, values and bias.
    """
    hidden = _hidden_scores(q, k.shape[2], is_causal=is_causal, mask=mask)
    attend = partial(
        attend_in_blocks, bias=bias, is_causal=is_causal, scale=scale, p_dropout=p_dropout
    )
    if _goes_by_sequence(q, k):
        return attend(*without_rest(q, k, v), hidden=hidden)
    if hidden is not None and hidden.dim() == 4:
        by_head = hidden.expand(-1, q.shape[1], -1, -1)
        hidden = by_head.flatten(0, 1)[None]  # [1, B H, T or 1, S]
    folded = (x.flatten(0, 1).contiguous()[None] for x in (q, k, v))  # [1, B H, T or S, K] each
    return attend(*folded, hidden=hidden).view(q.shape)


def _goes_by_sequence(q: Tensor, k: Tensor) -> bool:
    """Check whether to take sequences one at a time, so that their scores stay in the cache.

    That needs enough of them for every thread, and products that read rows at any distance: bf16's
    copy them first.
    """
    n_heads = q.shape[1]
    n_queries = q.shape[2]
    n_keys = k.shape[2]
    n_scores = n_heads * n_queries * n_keys
    has_many = n_scores >= GRAIN * torch.get_num_threads()
    is_wide = q.dtype in (torch.float32, torch.float64)
    return is_wide and has_many and _has_rows(q) and _has_rows(k)


def _has_rows(x: Tensor) -> bool:
    """Check whether the features of a token stand together, and apart from other tokens'."""
    width = x.shape[3]
    return x.stride(3) == 1 and x.stride(2) >= width


def without_rest(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Copy views of a storage that these do not cover: saving them would keep all of it."""
    covered_bytes: Counter[int] = Counter()
    for x in tensors:
        covered_bytes[x.untyped_storage().data_ptr()] += x.nbytes
    copied = []
    for x in tensors:
        storage = x.untyped_storage()
        is_covered = covered_bytes[storage.data_ptr()] >= storage.nbytes()
        copied.append(x if is_covered else x.contiguous())
    return tuple(copied)


def _hidden_scores(
    q: Tensor, n_keys: int, *, is_causal: bool, mask: Tensor | None
) -> Tensor | None:
    """Build what is added to scores, 0 or minus infinity.

    It is ``[T, S]``, or ``[B, 1, T or 1, S]`` under a mask.
    """
    if mask is not None:
        hidden = torch.zeros(mask.shape, dtype=q.dtype)
        return hidden.masked_fill_(~mask, float("-inf"))
    if not is_causal:
        return None
    n_queries = q.shape[2]
    return _triangle(n_queries, n_keys, q.dtype)


@lru_cache(maxsize=8)
def _triangle(n_queries: int, n_keys: int, dtype: torch.dtype) -> Tensor:
    hidden = torch.full((n_queries, n_keys), float("-inf"), dtype=dtype)
    return hidden.triu_(1 + n_keys - n_queries)
