"""Attention of queries to keys and values: the choice of a kernel, and our CPU kernel."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.model.context import Keys, Ragged, StepKeys
from sublayer.model.kernels.elementwise import is_eager_cpu, random_lanes, soft_cap
from sublayer.model.kernels.sizes import BLOCK_ROWS, GRAIN, NARROW_HEAD

_HAS_KERNEL = torch.__version__ >= "2.13"
"""Whether PyTorch's ``varlen_attn`` takes a scale and a window."""
_FIRST_MAJOR = 8
"""Lowest major number of a GPU's compute capability."""
_WIDEST, _WIDTH_MULTIPLE = 256, 8
"""Maximum width of heads in features, and its divisor. Source of limits: FlashAttention 2."""
_TYPES = (torch.bfloat16, torch.float16)


def is_supported(q: Tensor, k: Tensor, *, has_bias: bool, p_dropout: float) -> bool:
    """Check whether the kernel without padding supports the device, dtype and features.

    It supports neither attention bias nor dropout.
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
    k: Float[Tensor, "B G S K"],
    v: Float[Tensor, "B G S K"],
    ragged: Ragged,
    *,
    is_causal: bool,
    scale: float,
    reach: int | None = None,
) -> Float[Tensor, "B H T K"]:
    """Average values by ``softmax(scale * q k)`` over the keys of a query's sequence.

    With ``is_causal`` a query sees keys up to its position, with ``reach`` none farther away.
    Results at padding are meaningless.
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
        reach=reach,
    )
    return mixed.view(n_rows, n_queries, n_heads, width).transpose(1, 2)  # [B, H, T, K]


def attend_sequences(
    q: Float[Tensor, "BT H K"],
    k: Float[Tensor, "BS G K"],
    v: Float[Tensor, "BS G K"],
    ragged: Ragged,
    *,
    longest: tuple[int, int],
    is_causal: bool,
    scale: float,
    reach: int | None = None,
) -> Float[Tensor, "BT H K"]:
    """Call the kernel; ``longest`` is the maximum number of queries and of keys in a sequence."""
    from torch.nn.attention.varlen import varlen_attn

    before = -1 if reach is None else reach
    mixed = varlen_attn(
        q,
        k,
        v,
        ragged.query_starts,
        ragged.key_starts,
        *longest,
        scale=scale,
        window_size=(before, 0 if is_causal else before),
        enable_gqa=k.shape[1] < q.shape[1],
    )
    assert isinstance(mixed, Tensor), "no further output was requested"
    return mixed


def _equal_starts(x: Float[Tensor, "B H T K"]) -> Int[Tensor, " N"]:
    """Return the start of each row among concatenated rows, and their end."""
    n_rows, _, length, _ = x.shape
    return torch.arange(0, n_rows * length + 1, length, dtype=torch.int32, device=x.device)


def _in_one_row(x: Float[Tensor, "B H T K"]) -> Float[Tensor, "BT H K"]:
    return x.transpose(1, 2).flatten(0, 1)


def attend(
    q: Float[Tensor, "*B H T K"],
    k: Float[Tensor, "*B G S K"],
    v: Float[Tensor, "*B G S K"],
    keys: Keys | StepKeys,
    bias: Float[Tensor, "... #T S"] | None = None,
    *,
    scale: float,
    p_dropout: float = 0.0,
    cap: float | None = None,
    sinks: Float[Tensor, " heads"] | None = None,
) -> Float[Tensor, "*B H T K"]:
    """Average values by ``softmax(soft_cap(scale * q k) + bias)`` over the keys that a query sees.

    A sink is one more score of each query of a head, without a value (GPT-OSS, as released).

    Each of G heads of keys and values serves H / G consecutive heads of queries.

    ``bias`` is ``[1 or B, H, T, S]`` and has a gradient; in a decoding step a single row may apply
    to all queries. Dropout of weights has probability ``p_dropout`` and scale
    ``1 / (1 - p_dropout)``; a decoding step has none. Every query sees at least one key.

    On a CPU, several queries use our kernel, which is faster than SDPA for heads wider than
    ``NARROW_HEAD``, in bfloat16, and with dropout, for which SDPA has no fast CPU kernel. Narrow
    heads with causality alone, single queries, GPUs and the compiler use SDPA, or with a cap or
    sinks, which it lacks, plain matrix products; on GPUs, the kernel without padding replaces a
    mask where possible (``is_supported``). A decoding step uses plain matrix products, which are
    fastest for few rows. Keys and values are not repeated for heads of queries that share them, but
    by SDPA where its kernels take no fewer, and by those plain products.
    """
    if isinstance(keys, StepKeys):
        if scale != 1.0:
            q = q * scale
        # Leading axes are folded, since matmul's shape checks take as long as a small product;
        # heads that share keys are rows of one product.
        folded_keys, values = (x.flatten(0, -3) for x in (k, v))
        queries = q.reshape(folded_keys.shape[0], -1, q.shape[-1])
        products = torch.bmm(queries, folded_keys.mT)  # [B G, H / G * T, S]
        scores = soft_cap(products.view(*q.shape[:-1], -1), cap)
        if keys.hidden is not None:
            scores.add_(keys.hidden)
        if bias is not None:
            scores.add_(bias)
        weights = _softmax(scores, sinks).view(products.shape)
        return torch.bmm(weights, values).view(q.shape)
    is_fusable = cap is None and sinks is None
    if q.shape[2] > 1 and is_eager_cpu(q):
        is_plain = bias is None and keys.mask is None and keys.reach is None and not p_dropout
        is_plain = is_plain and is_fusable
        is_square = keys.is_causal and q.shape[1:3] == k.shape[1:3]
        if is_plain and is_square and _is_wide(q) and q.shape[3] <= NARROW_HEAD:
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
            reach=keys.reach,
            cap=cap,
            sinks=sinks,
        )
    if not is_fusable:
        if bias is None:
            bias = q.new_zeros(1, 1, q.shape[2], k.shape[2])
        if k.shape[1] < q.shape[1]:
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        scores = soft_cap(scale * q @ k.mT, cap) + hide(bias, keys).to(q.dtype)
        weights = _softmax(scores, sinks)
        if p_dropout:
            weights = F.dropout(weights, p_dropout)
        return weights.to(v.dtype) @ v
    ragged, reach = keys.ragged, keys.reach
    # Of that kernel alone a window saves time.
    is_local = reach is not None and keys.mask is None and q.shape[2] > 1
    if (ragged is not None or is_local) and is_supported(
        q, k, has_bias=bias is not None, p_dropout=p_dropout
    ):
        ragged = ragged or Ragged(_equal_starts(q), _equal_starts(k))
        return attend_ragged(q, k, v, ragged, is_causal=keys.is_causal, scale=scale, reach=reach)
    if bias is not None:
        added = hide(bias, keys).to(q.dtype)
        is_shared = k.shape[1] < q.shape[1]
        return F.scaled_dot_product_attention(
            q, k, v, added, p_dropout, scale=scale, enable_gqa=is_shared
        )
    return _attend_fused(q, k, v, keys, scale, p_dropout)


def _softmax(
    scores: Float[Tensor, "*BH T S"], sinks: Float[Tensor, " heads"] | None
) -> Float[Tensor, "*BH T S"]:
    """Compute the softmax over keys; leading axes end with the heads of ``sinks``."""
    if sinks is None:
        return scores.softmax(-1)
    n_queries, n_keys = scores.shape[-2:]
    by_head = scores.view(-1, len(sinks), n_queries, n_keys)
    column = sinks[:, None, None].expand(*by_head.shape[:3], 1)
    weights = torch.cat([by_head, column], -1).softmax(-1)[..., :-1]
    return weights.to(scores.dtype).reshape(scores.shape)


def hide(bias: Float[Tensor, "N H T S"], keys: Keys) -> Float[Tensor, "B H T S"]:
    """Return a bias with minus infinity at invisible keys.

    If all keys are visible, it is the bias itself, not a copy.
    """
    mask = keys.mask
    n_queries, n_keys = bias.shape[2:]
    if mask is None and (keys.is_causal or keys.reach is not None) and n_queries > 1:
        mask = keys.band(n_queries, n_keys, bias.device)[None, None]
    if mask is None:
        return bias
    return bias.masked_fill(~mask, -torch.inf)


def _attend_fused(
    q: Tensor, k: Tensor, v: Tensor, keys: Keys, scale: float, p_dropout: float
) -> Tensor:
    n_queries = q.shape[2]
    n_keys = k.shape[2]
    mask = keys.mask
    is_causal = keys.is_causal and n_queries > 1
    has_past = is_causal and n_queries < n_keys
    if mask is None and n_queries > 1 and (has_past or keys.reach is not None):
        # SDPA aligns its causal mask with the first key, but queries after a past with the last.
        mask = keys.band(n_queries, n_keys, q.device)
    # SDPA takes a mask or ``is_causal``, not both.
    is_causal = is_causal and mask is None
    is_shared = k.shape[1] < q.shape[1]
    return F.scaled_dot_product_attention(
        q, k, v, mask, p_dropout, is_causal, scale=scale, enable_gqa=is_shared
    )


def split_heads(projected: Tensor, n_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split ``[B, T, 3 H K]`` into queries, keys and values ``[B, H, T, K]``, as views.

    On a CPU, gradients that are views of one tensor are not copied.
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
    """Return the base ``[B, T, 3, H, K]`` of views of queries, keys and values.

    None if they are not such views, in this order and without an offset in the storage.
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


def _blocks(
    q: Tensor, k: Tensor, is_causal: bool, reach: int | None
) -> Iterator[tuple[slice, slice]]:
    """Pair blocks of query rows with the keys that some of them see, the last rows first."""
    n_queries, n_keys = q.shape[2], k.shape[2]
    n_past = n_keys - n_queries
    for end in range(n_queries, 0, -BLOCK_ROWS):
        rows = slice(max(end - BLOCK_ROWS, 0), end)
        first, n_seen = 0, n_past + end if is_causal else n_keys
        if reach is not None:
            first = max(0, n_past + rows.start - reach)
            n_seen = min(n_seen, n_past + end + reach)
        yield rows, slice(first, n_seen)


def _edges(
    rows: slice, keys: slice, n_past: int, is_causal: bool, reach: int, dtype: torch.dtype
) -> list[tuple[slice, Tensor]]:
    """Return the columns of a block's scores that some rows do not see, with what hides them."""
    n_rows = rows.stop - rows.start
    n_seen = reach if is_causal else 2 * reach
    strip = _strip(n_rows, n_seen, dtype)
    # The strip begins ``reach`` before the first row.
    start = keys.start - (n_past + rows.start - reach)
    stop = start + keys.stop - keys.start
    bounds = (start, min(n_rows, stop)), (max(n_seen, start), stop)
    return [
        (slice(first - start, last - start), strip[:, first:last])
        for first, last in bounds
        if first < last
    ]


@lru_cache(maxsize=8)
def _strip(n_rows: int, n_seen: int, dtype: torch.dtype) -> Tensor:
    """Return what hides all keys of row i from it but key i and the next ``n_seen``."""
    hidden = torch.full((n_rows, n_rows + n_seen), float("-inf"), dtype=dtype)
    is_seen = torch.ones(hidden.shape, dtype=torch.bool).triu_().tril_(n_seen)
    return hidden.masked_fill_(is_seen, 0.0)


class _Attend(torch.autograd.Function):
    """Attention of N sequences in turn; a negative sign marks dropped weights among those saved.

    Queries are ``[N, H, T, K]``, keys and values ``[N, G, S, K]``. ``bias`` is ``[1 or B, heads, T,
    S]``; either N is 1 and H has all heads of B sequences, or N is B. ``hidden``, 0 or minus
    infinity, is ``[T, S]`` or ``[N, 1 or H, T or 1, S]``.

    The bias is not saved: its gradient is that of the scores, summed over the sequences that share
    the bias and written block by block. Nor is the tanh of capped scores, which is computed again.
    ``sinks`` are ``[heads]``.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        hidden: Tensor | None,
        is_causal: bool,
        scale: float,
        p_dropout: float,
        reach: int | None,
        cap: float | None,
        sinks: Tensor | None,
    ) -> Tensor:
        out = torch.empty_like(q)
        saved = []
        n_dropped = round(p_dropout * 2**15)
        is_training = any(ctx.needs_input_grad)
        n_sequences = q.shape[0]
        blocks = list(_blocks(q, k, is_causal, reach))
        all_edges: list[list[tuple[slice, Tensor]]] = [[] for _ in blocks]
        if reach is not None and hidden is None:
            n_past = k.shape[2] - q.shape[2]
            all_edges = [_edges(*each, n_past, is_causal, reach, q.dtype) for each in blocks]
        all_hidden: Sequence[Tensor | None] = [hidden] * n_sequences
        if hidden is not None and hidden.dim() > 2:
            all_hidden = hidden.unbind()
        all_bias = _bias_by_sequence(bias, n_sequences)
        for one_q, one_k, one_v, one_bias, one_hidden, one_out in zip(
            q, k, v, all_bias, all_hidden, out, strict=True
        ):
            for (rows, keys), edges in zip(blocks, all_edges, strict=True):
                block_bias = None if one_bias is None else one_bias[..., rows, keys]
                block_hidden = one_hidden
                if one_hidden is not None:
                    # A single row may apply to all queries.
                    all_rows = slice(None) if one_hidden.shape[-2] == 1 else rows
                    block_hidden = one_hidden[..., all_rows, keys]
                scores = _scores(
                    one_q[:, rows], one_k[:, keys], block_bias, block_hidden, scale, edges, cap
                )
                weights = _put_softmax(scores, sinks)  # [H, t, s]
                undropped = weights
                if n_dropped:
                    weights.copysign_(_signs(weights, n_dropped))
                    undropped = weights.clamp_min(0)
                _put_product(one_out[:, rows], undropped, one_v[:, keys])
                if is_training:
                    saved.append(weights)
        ctx.save_for_backward(q, k, v, *saved)
        ctx.is_causal = is_causal
        ctx.reach = reach
        ctx.scale = scale
        ctx.cap = cap
        ctx.sinks_like = None
        if sinks is not None and ctx.needs_input_grad[10]:
            ctx.sinks_like = sinks.shape, sinks.dtype
        ctx.is_dropped = n_dropped > 0
        ctx.keep_scale = 2**15 / (2**15 - n_dropped)
        ctx.bias_like = None
        if bias is not None and ctx.needs_input_grad[3]:
            ctx.bias_like = bias.shape, bias.dtype
        return out.mul_(ctx.keep_scale) if n_dropped else out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *saved = ctx.saved_tensors
        n_sequences = q.shape[0]
        if ctx.is_dropped:
            grad = grad * ctx.keep_scale
        elif n_sequences == 1:
            grad = grad.contiguous()
        # Gradients are views of one tensor if the inputs are.
        whole = whole_of(q, k, v)
        grads: tuple[Tensor, ...]
        # The first block has the last query rows, which see all keys unless they reach fewer.
        fresh = torch.empty_like if ctx.reach is None else torch.zeros_like
        if whole is None:
            grads = fresh(q), fresh(k), fresh(v)
        else:
            grads = fresh(whole).permute(2, 0, 3, 1, 4).unbind()
        grad_bias = None
        if ctx.bias_like is not None:
            shape, dtype = ctx.bias_like
            # Keys outside all blocks are never written.
            make = torch.zeros if ctx.is_causal or ctx.reach is not None else torch.empty
            grad_bias = make(shape, dtype=dtype)
        all_grad_bias = _bias_by_sequence(grad_bias, n_sequences)
        grad_sinks = None
        if ctx.sinks_like is not None:
            shape, dtype = ctx.sinks_like
            grad_sinks = torch.zeros(shape, dtype=dtype)
        blocks = list(_blocks(q, k, ctx.is_causal, ctx.reach))
        weights = iter(saved)
        for turn, (one_grad_bias, *tensors) in enumerate(
            zip(all_grad_bias, q, k, v, grad, *grads, strict=True)
        ):
            # A shared bias accumulates in every turn.
            adds = turn > 0 and one_grad_bias is grad_bias
            for rows, keys in blocks:
                grad_scores = _back_through_block(
                    tensors,
                    rows,
                    keys,
                    next(weights),
                    scale=ctx.scale,
                    is_dropped=ctx.is_dropped,
                    adds=ctx.reach is not None or (rows, keys) != blocks[0],
                    cap=ctx.cap,
                )
                if grad_sinks is not None:
                    # The gradients of a softmax's inputs, keys and sink, sum to 0.
                    by_head = grad_scores.sum((1, 2), dtype=grad_sinks.dtype)
                    grad_sinks -= by_head.view(-1, len(grad_sinks)).sum(0)
                if one_grad_bias is not None:
                    _put_by_head(one_grad_bias[..., rows, keys], grad_scores, adds=adds)
                # Freed before the next block is allocated.
                del grad_scores
        return *grads, grad_bias, None, None, None, None, None, None, grad_sinks


def _bias_by_sequence(bias: Tensor | None, n: int) -> list[Tensor | None]:
    """Return the part of a bias for each of ``n`` turns; a single turn gets all of it."""
    if bias is None or n == 1 or bias.shape[0] == 1:
        return [bias] * n
    return [bias[row : row + 1] for row in range(n)]


def _put_by_head(total: Tensor, grad_scores: Tensor, *, adds: bool) -> None:
    """Write or add the gradient of scores ``[B H, t, s]`` to a bias's ``[1 or B, H, t, s]``."""
    n_heads = total.shape[1]
    by_head = grad_scores.view(-1, n_heads, *grad_scores.shape[1:])  # [B, H, t, s]
    is_summed = total.shape[0] < by_head.shape[0]
    if is_summed and not adds:
        torch.sum(by_head, 0, keepdim=True, dtype=total.dtype, out=total)
        return
    if is_summed:
        by_head = by_head.sum(0, keepdim=True, dtype=total.dtype)
    if adds:
        total.add_(by_head)
    else:
        total.copy_(by_head)


def _back_through_block(
    tensors: Sequence[Tensor],
    rows: slice,
    keys: slice,
    weights: Tensor,
    *,
    scale: float,
    is_dropped: bool,
    adds: bool,
    cap: float | None,
) -> Tensor:
    """Write the gradient of a block's queries; write or add the gradients of keys and values.

    ``tensors`` are a turn's inputs q, k and v, and the gradients of its output and inputs. Returns
    the gradient of the block's scores, after the cap.
    """
    q, k, v, grad, grad_q, grad_k, grad_v = tensors
    q = q[:, rows]
    k = k[:, keys]
    v = v[:, keys]
    # In bfloat16 both products would copy strided rows.
    grad = grad[:, rows].contiguous()
    # The gradient of the weights, overwritten by that of the scores.
    grad_scores = torch.bmm(_folded(grad, len(v)), v.transpose(1, 2)).view(weights.shape)
    undropped = weights
    if is_dropped:
        undropped = weights.clamp_min(0)
        torch.ops.aten.threshold_backward(grad_scores, weights, 0, grad_input=grad_scores)
    _put_product(grad_v[:, keys], undropped.transpose(1, 2), grad, adds=adds)
    if is_dropped:
        weights = torch.abs(weights, out=undropped)
    torch._softmax_backward_data(grad_scores, weights, -1, weights.dtype, grad_input=grad_scores)
    grad_products = grad_scores
    if cap is not None:
        grad_products = _tanh_of_products(q, k, scale / cap)
        torch.ops.aten.tanh_backward(grad_scores, grad_products, grad_input=grad_products)
    _put_product(grad_q[:, rows], grad_products, k, scale)
    _put_product(grad_k[:, keys], grad_products.transpose(1, 2), q, scale, adds=adds)
    return grad_scores


def _put_product(
    total: Tensor, one: Tensor, other: Tensor, scale: float = 1.0, *, adds: bool = False
) -> None:
    """Write or add a scaled product of batches of matrices.

    If ``other`` or ``total`` has one matrix for several of ``one``, consecutive ones, these are
    rows of one matrix: the product of each with the shared one, or the sum of their products.
    """
    whole = total
    if len(total) < len(one):
        other = _folded(other, len(total))
        one = _folded(one.mT, len(total)).mT
    elif len(other) < len(one):
        one = _folded(one, len(other))
        if total.is_contiguous():
            total = _folded(total, len(other))
    # MKL, which has all types but bfloat16, computes matrices that are not contiguous one after
    # another, where several threads would wait for each other.
    is_direct = total.is_contiguous() or not _is_wide(total) or torch.get_num_threads() == 1
    if is_direct and len(total) == len(one):
        torch.baddbmm(total, one, other, beta=1 if adds else 0, alpha=scale, out=total)
        return
    product = torch.baddbmm(total.new_empty(()), one, other, beta=0, alpha=scale).view(whole.shape)
    if adds:
        whole.add_(product)
    else:
        whole.copy_(product)


def _folded(x: Float[Tensor, "H t K"], n: int) -> Float[Tensor, "n rows K"]:
    """Stack consecutive matrices one below another, so that there are ``n``."""
    return x if len(x) == n else x.reshape(n, -1, x.shape[2])


def _scores(
    q: Tensor,
    k: Tensor,
    bias: Tensor | None,
    hidden: Tensor | None,
    scale: float,
    edges: Sequence[tuple[slice, Tensor]],
    cap: float | None,
) -> Tensor:
    """Compute the attention scores of a block."""
    if cap is None:
        scores = q.new_empty(q.shape[0], q.shape[1], k.shape[1])
        if hidden is not None:
            scores.copy_(hidden)
        _put_product(scores, q, k.transpose(1, 2), scale, adds=hidden is not None)
    else:
        scores = _tanh_of_products(q, k, scale / cap).mul_(cap)
        if hidden is not None:
            scores.add_(hidden)
    if bias is not None:
        n_heads = bias.shape[1]
        by_head = scores.view(-1, n_heads, *scores.shape[1:])  # [1 or B, H, t, s]
        by_head.add_(bias)
    for columns, hidden_there in edges:
        scores[..., columns].add_(hidden_there)
    return scores


def _tanh_of_products(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Compute ``tanh(scale * q k)`` of a block."""
    products = q.new_empty(q.shape[0], q.shape[1], k.shape[1])
    _put_product(products, q, k.transpose(1, 2), scale)
    return products.tanh_()


def _put_softmax(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Replace a block's scores ``[B H, t, s]`` by its attention weights."""
    if sinks is None:
        return torch.softmax(scores, -1, out=scores)
    largest = scores.amax(-1).to(sinks.dtype)
    weights = torch.softmax(scores, -1, out=scores)
    # The largest weight is 1 / sum(exp(score - largest score)).
    log_partition = largest - weights.amax(-1).to(sinks.dtype).log()  # [B H, t]
    by_head = log_partition.view(-1, len(sinks), log_partition.shape[1])
    kept = torch.sigmoid(by_head - sinks[:, None]).view_as(log_partition)
    return weights.mul_(kept[..., None])


def _signs(weights: Tensor, n_dropped: int) -> Tensor:
    """Draw numbers that are negative with probability ``n_dropped / 2**15``."""
    lanes = random_lanes(weights.shape)
    # 15 bits, from -2**14 to 2**14 - 1; the lowest ``n_dropped`` values become negative.
    lanes.bitwise_right_shift_(1).add_(2**14 - n_dropped)
    # A 16-bit number and a lane share the sign bit.
    if weights.element_size() == 2:
        return lanes.view(weights.dtype)
    return lanes


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
    reach: int | None = None,
    cap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Average values by ``softmax(soft_cap(scale * q k) + bias)`` of ``[B, H, T, K]`` queries.

    Keys and values are ``[B, G, S, K]``, a bias is ``[1 or B, H, T, S]`` of any floating type.

    With ``is_causal`` the last query sees every key, and each earlier query one key less; with
    ``reach`` no query sees a key farther away, and no such scores are computed. With both ``mask``
    ``[B, 1, T, S]`` must agree; a mask of a single row applies to all queries.
    Attention weights are dropped with probability ``p_dropout``, rounded to a multiple of 2**-15.

    Differentiable once, with respect to queries, keys, values, bias and ``sinks`` (``attend``).
    """
    shape, n_keys = q.shape, k.shape[2]
    _, n_heads, n_queries, _ = shape
    # Bias that hides keys: 0 or minus infinity.
    hidden: Tensor | None = None
    if mask is not None:
        hidden = torch.zeros(mask.shape, dtype=q.dtype)  # [B, 1, T or 1, S]
        hidden.masked_fill_(~mask, float("-inf"))
    elif is_causal and reach is None:
        hidden = _triangle(n_queries, n_keys, q.dtype)  # [T, S]
    # If a sequence has enough scores for all threads, sequences are computed in turn, so that
    # scores stay in the CPU cache; in bfloat16 products of strided rows would be copied first.
    has_many = n_heads * n_queries * n_keys >= GRAIN * torch.get_num_threads()
    is_by_sequence = _is_wide(q) and has_many and _has_rows(q) and _has_rows(k)
    if is_by_sequence:
        q, k, v = without_rest(q, k, v)
    else:
        q, k, v = (x.flatten(0, 1).contiguous()[None] for x in (q, k, v))  # [1, B H, T or S, K]
        if hidden is not None and hidden.dim() == 4:
            by_head = hidden.expand(-1, n_heads, -1, -1)
            hidden = by_head.flatten(0, 1)[None]  # [1, B H, T or 1, S]
    mixed: Tensor = _Attend.apply(  # type: ignore[no-untyped-call]
        q, k, v, bias, hidden, is_causal, scale, p_dropout, reach, cap, sinks
    )
    return mixed if is_by_sequence else mixed.view(shape)


def _is_wide(x: Tensor) -> bool:
    return x.dtype in (torch.float32, torch.float64)


def _has_rows(x: Tensor) -> bool:
    """Check whether a token's features are contiguous, without overlap with other tokens."""
    width = x.shape[3]
    return x.stride(3) == 1 and x.stride(2) >= width


def without_rest(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Copy tensors that are partial views of a storage, since saving them would keep all of it."""
    covered_bytes: Counter[int] = Counter()
    for x in tensors:
        covered_bytes[x.untyped_storage().data_ptr()] += x.nbytes
    copied = []
    for x in tensors:
        storage = x.untyped_storage()
        is_covered = covered_bytes[storage.data_ptr()] >= storage.nbytes()
        copied.append(x if is_covered else x.contiguous())
    return tuple(copied)


@lru_cache(maxsize=8)
def _triangle(n_queries: int, n_keys: int, dtype: torch.dtype) -> Tensor:
    hidden = torch.full((n_queries, n_keys), float("-inf"), dtype=dtype)
    return hidden.triu_(1 + n_keys - n_queries)
