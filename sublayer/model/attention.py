"""Multi-head attention, and the choice of its kernel."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.model.attention_cpu import attend_blockwise, split_heads
from sublayer.model.cache import KeyValues, MemoryKeyValues
from sublayer.model.context import Context
from sublayer.model.kernels import is_eager_cpu
from sublayer.model.layout import Layout
from sublayer.model.linear import Linear, StackedLinear


def attend(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S K"],
    layout: Layout,
    *,
    scale: float,
    p_dropout: float = 0.0,
) -> Float[Tensor, "B H T K"]:
    """Average values by ``softmax(scale * q k)``, dropping weights with probability ``p_dropout``.

    On a CPU several queries take our own kernel (faster than SDPA's at every length measured, two to four times in
    training, and SDPA has no fast dropout there); one query, a GPU and the compiler take SDPA.
    """
    is_causal = layout.is_causal and q.shape[2] > 1
    if q.shape[2] > 1 and is_eager_cpu(q):
        return attend_blockwise(q, k, v, is_causal=is_causal, mask=layout.mask, scale=scale, p_dropout=p_dropout)
    mask = layout.mask
    if mask is None and is_causal and q.shape[2] < k.shape[2]:
        # SDPA aligns its causal mask with the first key; queries behind a past end with the last.
        mask = q.new_ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, mask, p_dropout, is_causal and mask is None, scale=scale)


class _Attention(nn.Module):
    """What attentions have: the maps to queries, keys and values, stored together, and the map of what they mix.

    ``p_weights`` drops attention weights; scores are divided by the root of ``d_head`` if ``is_scaled``.
    """

    def __init__(
        self, d_model: int, n_heads: int, d_head: int, *, bias: bool, is_scaled: bool, p_weights: float
    ) -> None:
        super().__init__()
        self.projection = StackedLinear(3, d_model, n_heads * d_head, bias=bias, fans_together=True)
        self.output = Linear(n_heads * d_head, d_model, bias=bias, ends_branch=True)
        self.n_heads, self.d_head = n_heads, d_head
        self.scale = d_head**-0.5 if is_scaled else 1.0
        self.p_weights = p_weights

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Float[Tensor, "B H T K"]:
        p_dropout = self.p_weights if self.training else 0.0
        return attend(q, k, v, layout, scale=self.scale, p_dropout=p_dropout)


class Attention(_Attention):
    """Multi-head attention of a sequence to itself. Source: Vaswani et al. 2017, sec. 3.2."""

    def forward(self, x: Float[Tensor, "B T D"], context: Context) -> Float[Tensor, "B T D"]:
        """Let each token attend to those that the layout shows it."""
        projected = self.projection(x)  # [B, T, 3 H K]
        q, k, v = split_heads(projected, self.n_heads)  # [B, H, T, K] each
        if context.rotation is not None:
            q, k = context.rotation(q), context.rotation(k)
        if context.kept is not None:
            assert isinstance(context.kept, KeyValues), "an attention to itself keeps its own"
            k, v = context.kept.append(k, v)
            q = q.to(k.dtype)
        mixed = self._mix(q, k, v, context.layout)
        output: Tensor = self.output(mixed.to(projected.dtype).transpose(1, 2).flatten(2))  # [B, T, D]
        return output


class CrossAttention(_Attention):
    """Multi-head attention of a decoder to what an encoder made of another sequence. Source: the same, sec. 3.2.3.

    No place turns queries or keys: rotary positions are of a sequence's own tokens.
    """

    def forward(self, x: Float[Tensor, "B T D"], context: Context) -> Float[Tensor, "B T D"]:
        """Let each token attend to the real tokens of the memory."""
        memory = context.memory
        assert memory is not None, "there is a memory where a decoder has cross entries"
        if context.kept is None:
            k, v = self.read(memory.states)
        else:
            assert isinstance(context.kept, MemoryKeyValues), "a cross entry keeps what it made of the memory"
            k, v = context.kept.get(lambda: self.read(memory.states))
        q = self.ask(x)  # [B, T, H, K]
        # Rows that read the same row of the memory are queries of one sequence.
        together = q.reshape(k.shape[0], -1, *q.shape[2:]).transpose(1, 2)  # [B', H, n T, K]
        mixed = self._mix(together.to(k.dtype), k, v, memory.layout).to(q.dtype).transpose(1, 2)  # [B', n T, H, K]
        output: Tensor = self.output(mixed.reshape(*x.shape[:2], -1))  # [B, T, D]
        return output

    def ask(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T H K"]:
        """Make the queries of tokens."""
        weight, bias = self.projection.part(0, 1)
        return F.linear(x, weight, bias).view(*x.shape[:-1], self.n_heads, self.d_head)

    def read(self, states: Float[Tensor, "B S D"]) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H S K"]]:
        """Make the keys and values of a memory."""
        weight, bias = self.projection.part(1, 3)
        projected = F.linear(states, weight, bias).view(*states.shape[:-1], 2, self.n_heads, self.d_head)
        k, v = projected.permute(2, 0, 3, 1, 4).unbind()
        return k, v
