"""Attention from queries, keys and values, and the choice of its kernel."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sublayer.model.context import Keys, Ragged, StepKeys
from sublayer.model.kernels.attention_cpu import attend_blockwise, without_rest
from sublayer.model.kernels.choice import is_eager_cpu
from sublayer.model.kernels.sizes import NARROW_HEAD

_HAS_KERNEL = torch.__version__ >= "2.13"
"""Whose ``varlen_attn`` has a scale and a window."""
_FIRST_MAJOR = 8
"""Of a GPU's compute capability."""
_WIDEST, _WIDTH_MULTIPLE = 256, 8
"""Of heads, in features. Source of all limits: the checks of FlashAttention 2."""
_TYPES = (torch.bfloat16, torch.float16)


def is_supported(q: Tensor, k: Tensor, *, has_bias: bool, p_dropout: float) -> bool:
    """Check whether the kernel supports a device, dtype and features.

    It has no attention bias and no dropout.
    """
    width = q.shape[-1]
    return (
        _HAS_KERNEL
        and q.device.type == "cuda"
        and torch.cuda.get_device_properties(q.device).major >= _FIRST_MAJOR
        and q.dtype == k.dtype
        and q.dtype in _TYPES
        and width % _WIDTH_MULTIPLE == 0
        and width <= _WIDEST
        and not has_bias
        and p_dropout == 0.0
    )


def attend_ragged(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S K"],
    ragged: Ragged,
    *,
    is_causal: bool,
    scale: float,
) -> Float[Tensor, "B H T K"]:
    """Average values by ``softmax(scale * q k)`` over the keys of a query's sequence.

    Under ``is_causal`` a query sees keys up to its position. Results at padding are meaningless.
    """
    n_rows, n_heads, n_queries, width = q.shape
    mixed = attend_sequences(
        _in_one_row(q),
        _in_one_row(k),
        _in_one_row(v),
        ragged,
        longest=(n_queries, k.shape[2]),
        is_causal=is_causal,
        scale=scale,
    )
    return mixed.view(n_rows, n_queries, n_heads, width).transpose(1, 2)  # [B, H, T, K]


def attend_sequences(
    q: Float[Tensor, "BT H K"],
    k: Float[Tensor, "BS H K"],
    v: Float[Tensor, "BS H K"],
    ragged: Ragged,
    *,
    longest: tuple[int, int],
    is_causal: bool,
    scale: float,
) -> Float[Tensor, "BT H K"]:
    """Call the kernel; ``longest`` bounds the queries and the keys of a sequence."""
    from torch.nn.attention.varlen import varlen_attn

    mixed = varlen_attn(
        q,
        k,
        v,
        ragged.query_starts,
        ragged.key_starts,
        *longest,
        scale=scale,
        window_size=(-1, 0) if is_causal else (-1, -1),
    )
    assert isinstance(mixed, Tensor), "nothing else was asked for"
    return mixed


def _in_one_row(x: Float[Tensor, "B H T K"]) -> Float[Tensor, "BT H K"]:
    return x.transpose(1, 2).flatten(0, 1)


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

    ``bias`` is ``[1 or B, H, T, S]`` and has a gradient; in a step one row may serve all queries.
    Dropout of weights has probability ``p_dropout`` and scale ``1 / (1 - p_dropout)``; a step has
    none. Every query sees at least one key.

    On a CPU several queries take our kernel, faster than SDPA with heads wider than
    ``NARROW_HEAD``, in bfloat16, and under dropout, for which SDPA has no fast CPU kernel. Narrow
    heads with only causality, single queries, GPUs and the compiler take SDPA; GPUs replace a mask
    by the kernel without padding where possible (``is_supported``). A decoding step takes plain
    matrix products, the fastest on few rows.
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
    """Return a bias with minus infinity at invisible keys.

    The bias itself, not a copy, where all keys are visible.
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
    """Check for narrow heads of float32 or float64 with only causality."""
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
        # SDPA aligns its causal mask with the first key; queries after a past align with the last.
        n_past = n_keys - n_queries
        mask = q.new_ones(n_queries, n_keys, dtype=torch.bool).tril(n_past)
    # SDPA takes a mask or ``is_causal``, not both.
    is_causal = is_causal and mask is None
    return F.scaled_dot_product_attention(q, k, v, mask, p_dropout, is_causal, scale=scale)


def _attend_by_softmax(
    q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, bias: Tensor | None, scale: float
) -> Tensor:
    if scale != 1.0:
        q = q * scale
    # Leading axes folded: matmul's shape checks take as long as a small product.
    queries, keys, values = (x.flatten(0, -3) for x in (q, k, v))
    scores = torch.bmm(queries, keys.mT).view(*q.shape[:-1], -1)
    if hidden is not None:
        scores.add_(hidden)
    if bias is not None:
        scores.add_(bias)
    weights = scores.softmax(-1).flatten(0, -3)
    return torch.bmm(weights, values).view(q.shape)
