"""Multi-head attention, and the choice of its kernel."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.model.attention_cpu import attend_blockwise
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


class Attention(nn.Module):
    """Multi-head attention of a sequence to itself. Source: Vaswani et al. 2017, sec. 3.2.

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

    def forward(self, x: Float[Tensor, "B T D"], context: Context) -> Float[Tensor, "B T D"]:
        """Let each token attend to those that the layout shows it."""
        projected = self.projection(x).unflatten(-1, (3, self.n_heads, self.d_head))  # [B, T, 3, H, K]
        q, k, v = projected.permute(2, 0, 3, 1, 4).unbind()  # [B, H, T, K] each
        if context.rotation is not None:
            q, k = context.rotation(q), context.rotation(k)
        if context.kept is not None:
            k, v = context.kept.append(k, v)
            q = q.to(k.dtype)
        p_dropout = self.p_weights if self.training else 0.0
        mixed = attend(q, k, v, context.layout, scale=self.scale, p_dropout=p_dropout)
        output: Tensor = self.output(mixed.to(projected.dtype).transpose(1, 2).flatten(2))  # [B, T, D]
        return output
