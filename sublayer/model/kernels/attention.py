"""Attention from queries, keys and values, and the choice of its kernel."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sublayer.estimate.kernel_sizes import NARROW_HEAD
from sublayer.model.context.keys import Keys, StepKeys
from sublayer.model.kernels.attention_cpu import attend_blockwise, without_rest
from sublayer.model.kernels.attention_ragged import attend_ragged, is_supported
from sublayer.model.kernels.choice import is_eager_cpu


def attend(
    q: Float[Tensor, "*B T K"],
    k: Float[Tensor, "*B S K"],
    v: Float[Tensor, "*B S K"],
    keys: Keys | StepKeys,
    bias: Float[Tensor, "... #T S"] | None = None,
    *,
    scale: float,
    p_dropout: float = 0.0,
) -> Float[Tensor, "*B T K"]:
    """Average values by ``softmax(scale * q k + bias)`` over the keys that a query sees.

    ``bias`` is ``[1 or B, H, T, S]`` and has a gradient; a step's may have one row for all queries.
    Weights are dropped with probability ``p_dropout``, and those kept scaled by
    ``1 / (1 - p_dropout)``; a step drops none. Every query sees a key at least.

    On a CPU several queries take our own kernel, faster than SDPA's with heads wider than
    ``NARROW_HEAD``, in bfloat16, and under dropout, which SDPA has no fast kernel for there. Narrow
    heads under causality alone, one query, a GPU and the compiler take SDPA, and a GPU in the place
    of a mask the kernel without padding, where it has what is asked (``attention_ragged.py``). A
    decoding step takes plain matrix products, which on few rows are faster than either.
    """
    if isinstance(keys, StepKeys):
        return _attend_by_softmax(q, k, v, keys.hidden, bias, scale)
    if q.shape[2] > 1 and is_eager_cpu(q):
        if _is_narrow(q, k, keys, bias, p_dropout):
            q, k, v = without_rest(q, k, v)
            return _attend_fused(q, k, v, keys, scale, p_dropout)
        return attend_blockwise(
            q,
            k,
            v,
            is_causal=keys.is_causal,
            mask=keys.mask,
            scale=scale,
            p_dropout=p_dropout,
            bias=bias,
        )
    ragged = keys.ragged
    if ragged is not None and is_supported(q, k, has_bias=bias is not None, p_dropout=p_dropout):
        return attend_ragged(q, k, v, ragged, is_causal=keys.is_causal, scale=scale)
    if bias is not None:
        added = hide(bias, keys).to(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, added, p_dropout, scale=scale)
    return _attend_fused(q, k, v, keys, scale, p_dropout)


def hide(bias: Float[Tensor, "N H T S"], keys: Keys) -> Float[Tensor, "B H T S"]:
    """Return a bias with minus infinity where a query does not see a key.

    Where every key is seen it is the bias itself, not a copy.
    """
    mask = keys.mask
    n_queries, n_keys = bias.shape[2:]
    if mask is None and keys.is_causal and n_queries > 1:
        is_seen = torch.ones(n_queries, n_keys, dtype=torch.bool, device=bias.device)
        mask = is_seen.tril(n_keys - n_queries)[None, None]
    if mask is None:
        return bias
    return bias.masked_fill(~mask, -torch.inf)


def _is_narrow(q: Tensor, k: Tensor, keys: Keys, bias: Tensor | None, p_dropout: float) -> bool:
    """Check for narrow heads of float32 or float64 under causality alone."""
    is_plain = bias is None and keys.mask is None and not p_dropout
    is_square = keys.is_causal and q.shape[2] == k.shape[2]
    is_wide = q.dtype in (torch.float32, torch.float64)
    return is_plain and is_square and is_wide and q.shape[3] <= NARROW_HEAD


def _attend_fused(
    q: Tensor, k: Tensor, v: Tensor, keys: Keys, scale: float, p_dropout: float
) -> Tensor:
    n_queries = q.shape[2]
    n_keys = k.shape[2]
    mask = keys.mask
    is_causal = keys.is_causal and n_queries > 1
    if mask is None and is_causal and n_queries < n_keys:
        # SDPA aligns its causal mask with the first key; queries behind a past end with the last.
        n_past = n_keys - n_queries
        mask = q.new_ones(n_queries, n_keys, dtype=torch.bool).tril(n_past)
    # SDPA takes a mask or its own causality, not both.
    is_causal = is_causal and mask is None
    return F.scaled_dot_product_attention(q, k, v, mask, p_dropout, is_causal, scale=scale)


def _attend_by_softmax(
    q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, bias: Tensor | None, scale: float
) -> Tensor:
    if scale != 1.0:
        q = q * scale
    # Leading axes in one: matmul's look at shapes takes as long as a small product.
    queries, keys, values = (x.flatten(0, -3) for x in (q, k, v))
    scores = torch.bmm(queries, keys.mT).view(*q.shape[:-1], -1)
    if hidden is not None:
        scores.add_(hidden)
    if bias is not None:
        scores.add_(bias)
    weights = scores.softmax(-1).flatten(0, -3)
    return torch.bmm(weights, values).view(q.shape)
