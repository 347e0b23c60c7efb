"""Multi-head attention: of a sequence to itself, and of a decoder to an encoder's output."""

from typing import TypeVar

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.config.architecture import Entry
from sublayer.config.recipe import ResolvedModel
from sublayer.model.cache import KeyValues, MemoryKeyValues
from sublayer.model.context import Context, Keys, Queries
from sublayer.model.kernels.attention import attend
from sublayer.model.kernels.attention_cpu import split_heads
from sublayer.model.layers.linear import Linear, StackedLinear

_A = TypeVar("_A", bound="_Attention")


class _Attention(nn.Module):
    """Maps of an attention: to queries, to keys and values, and of the output.

    Maps of equal shape are stacked. ``p_weights`` is the dropout of attention weights; scores are
    divided by the root of ``d_head`` if ``is_scaled``.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_head: int,
        *,
        bias: bool,
        is_scaled: bool,
        p_weights: float,
    ) -> None:
        super().__init__()
        self.projection = StackedLinear(3, d_model, n_heads * d_head, bias=bias)
        self.output = Linear(n_heads * d_head, d_model, bias=bias, ends_branch=True)
        self.n_heads = n_heads
        self.heads = (n_heads, n_heads, n_heads)
        """The numbers of heads of queries, keys and values, in the order of their maps."""
        self.d_head = d_head
        self.scale = d_head**-0.5 if is_scaled else 1.0
        self.p_weights = p_weights

    @classmethod
    def from_config(cls: type[_A], config: ResolvedModel, entry: Entry) -> _A:
        """Build the attention of an entry of a resolved config."""
        return cls(
            config.d_model,
            config.n_heads,
            config.d_head,
            bias=config.bias,
            is_scaled=config.attention_scale == "sqrt",
            p_weights=config.dropout_attention,
        )

    def _mix(
        self, q: Tensor, k: Tensor, v: Tensor, keys: Keys, bias: Tensor | None = None
    ) -> Float[Tensor, "B H Q K"]:
        p_dropout = self.p_weights if self.training else 0.0
        return attend(q, k, v, keys, bias, scale=self.scale, p_dropout=p_dropout)

    @property
    def stored_maps(self) -> dict[nn.Module, int]:
        """Return the modules of the maps to queries, keys and values.

        With the number of query maps, the first ones, in each.
        """
        return {self.projection: 1}

    def maps(
        self, start: int = 0, stop: int = 3
    ) -> tuple[Float[Tensor, "HK D"], Float[Tensor, " HK"] | None]:
        """Return concatenated matrix and bias of the maps to queries, keys and values.

        Maps ``start`` to ``stop`` of the three; differentiable views.
        """
        return self.projection.part(start, stop)

    def query(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T H K"]:
        """Compute only queries."""
        weight, bias = self.maps(0, 1)
        by_head = (*x.shape[:-1], self.n_heads, self.d_head)
        return F.linear(x, weight, bias).view(by_head)

    def key_value(
        self, states: Float[Tensor, "B S D"]
    ) -> tuple[Float[Tensor, "B G S K"], Float[Tensor, "B G S K"]]:
        """Compute only keys and values, of G heads: non-contiguous views of one product."""
        weight, bias = self.maps(1, 3)
        by_head = (*states.shape[:-1], 2, self.heads[1], self.d_head)
        projected = F.linear(states, weight, bias).view(by_head)  # [B, S, 2, G, K]
        k, v = projected.permute(2, 0, 3, 1, 4).unbind()  # [B, G, S, K] each
        return k, v


class Attention(_Attention):
    """Multi-head attention of a sequence to itself. Source: Vaswani et al. 2017, sec. 3.2."""

    def forward(self, x: Float[Tensor, "B T D"], context: Context) -> Float[Tensor, "B Q D"]:
        """Let tokens attend to their visible tokens.

        Keys and values are appended to the context's cache, in its dtype. Q is T, or the number of
        the context's queries.
        """
        q, k, v = self._project(x, context.queries)  # [B, H, Q or T, K]
        dtype = q.dtype
        if context.rotations is not None:
            q = context.rotations.queries(q)
            k = context.rotations.keys(k)
        if context.key_values is not None:
            assert isinstance(context.key_values, KeyValues), "an attention to itself keeps its own"
            k, v = context.key_values.append(k, v)
            q = q.to(k.dtype)
        mixed = self._mix(q, k, v, context.layout.keys, context.bias)
        by_token = mixed.to(dtype).transpose(1, 2).flatten(2)  # [B, Q, H K]
        output: Tensor = self.output(by_token)  # [B, Q, D]
        return output

    def _project(
        self, x: Float[Tensor, "B T D"], queries: Queries | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        if queries is None:
            q, k, v = split_heads(self.projection(x), self.n_heads)
            return q, k, v
        return self.query(queries.pick(x)).transpose(1, 2), *self.key_value(x)


class CrossAttention(_Attention):
    """Multi-head attention of a decoder to an encoder's output. Source: the same, sec. 3.2.3.

    Without rotations and position bias, which belong to self-attention.
    """

    def forward(self, x: Float[Tensor, "B T D"], context: Context) -> Float[Tensor, "B T D"]:
        """Let each token attend to the real tokens of the memory.

        There may be several consecutive rows of tokens per row of the memory. A cache keeps keys
        and values of the first call, whatever the memory is later.
        """
        memory = context.memory
        assert memory is not None, "there is a memory where a decoder has cross entries"
        if context.key_values is None:
            k, v = self.key_value(memory.states)
        else:
            assert isinstance(context.key_values, MemoryKeyValues), (
                "a cross entry keeps what it made of the memory"
            )
            k, v = context.key_values.get(lambda: self.key_value(memory.states))
        q = self.query(x)  # [B, T, H, K]
        # Rows with the same memory row are queries of one sequence.
        n_sequences = k.shape[0]
        by_sequence = q.reshape(n_sequences, -1, self.n_heads, self.d_head)  # [B', n T, H, K]
        together = by_sequence.transpose(1, 2)  # [B', H, n T, K]
        mixed = self._mix(together.to(k.dtype), k, v, memory.layout.keys)  # [B', H, n T, K]
        n_rows, n_tokens, _ = x.shape
        by_token = mixed.to(q.dtype).transpose(1, 2).reshape(n_rows, n_tokens, -1)  # [B, T, H K]
        output: Tensor = self.output(by_token)  # [B, T, D]
        return output
