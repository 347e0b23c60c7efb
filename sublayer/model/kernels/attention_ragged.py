"""Attention of sequences of unequal length, without padding, by PyTorch's fused kernel on a GPU."""

import torch
from jaxtyping import Float
from torch import Tensor

from sublayer.model.context.ragged import Ragged

_HAS_KERNEL = torch.__version__ >= "2.13"
"""Whose ``varlen_attn`` has a scale and a window."""
_FIRST_MAJOR = 8
"""Of a GPU's compute capability."""
_WIDEST, _WIDTH_MULTIPLE = 256, 8
"""Of heads, in features. Source of all limits: the checks of FlashAttention 2."""
_TYPES = (torch.bfloat16, torch.float16)


def is_supported(q: Tensor, k: Tensor, *, has_bias: bool, p_dropout: float) -> bool:
    """Check whether the kernel computes this: on which GPU, in which types, and what it lacks.

    It has no bias of scores and drops no weights.
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
    """Average values by ``softmax(scale * q k)`` over the keys of each query's own sequence.

    Under ``is_causal`` a query sees those up to its own. What is computed at padding means nothing.
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
