"""A decoding step of a decoder, unrolled: one token of every row, in as few operations as it takes.

Equal to a forward pass behind a cache, which is tested over every axis of the model.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.decode.packed_linear import pack_linear, takes_vectors
from sublayer.decode.step_bias import StepBias
from sublayer.decode.unroll import Branch, feed_forward, linear, residual
from sublayer.model.build import Decoder
from sublayer.model.cache import Cache, KeyValues
from sublayer.model.context import Rotation, StepKeys
from sublayer.model.kernels.attention import attend
from sublayer.model.layers.attention import Attention, CrossAttention
from sublayer.model.layers.stack import AnySublayer, Sublayer

_ALL = StepKeys()


@runtime_checkable
class StepKeyValues(Protocol):
    """Where a step writes the keys and values of its token, and what it then reads."""

    @property
    def dtype(self) -> torch.dtype:
        """The type in which they are kept."""

    def append_folded(
        self, k: Float[Tensor, "B H T K"], v: Float[Tensor, "B H T K"]
    ) -> tuple[Float[Tensor, "BH S K"], Float[Tensor, "BH S K"]]:
        """Write a token's, and return those of all, rows and heads as one axis."""


class Stepper:
    """Add one token to every row of a cache without padding, and return the logits of the next.

    Weights may be packed, which copies them: it serves as long as the model's do not change. There
    is no dropout in the blocks. ``n_rows`` is the number of rows of every call; one row in float32
    or float64 on a CPU goes through the blocks as a vector, not as a matrix of one row.
    """

    def __init__(self, model: Decoder, n_rows: int) -> None:
        self._model = model
        self._n_rows = n_rows
        self._is_vector = takes_vectors(model.embedding.weight, n_rows)
        self._step_bias = StepBias(model.positions)
        self._layers = model.stack.map_slots(self._sublayer)
        matrix, bias = model.token_projection()
        self._output = pack_linear(matrix, bias, n_rows)
        projection = model.vocabulary_head.projection
        self._head = None if projection is None else linear(projection, n_rows)

    def __call__(self, tokens: Int[Tensor, " B"], cache: Cache) -> Float[Tensor, "B V"]:
        """Take the step: the tokens stand at position ``cache.length``, which grows by one.

        Raises ConfigError where the cache is full; nothing is written to it then.
        """
        cache.check(1)
        position = cache.length
        # Filled in, not copied: a copy would wait for another device at every token.
        positions = torch.full((1,), position, device=tokens.device)
        bias = self.bias_of(position + 1, cache.dtype, tokens.device)

        def key_values(layer: int, index: int) -> KeyValues | None:
            found = cache.key_values(layer, index)
            assert found is None or isinstance(found, KeyValues), "a decoder alone has no others"
            return found

        logits = self.compute(tokens, positions, bias, key_values)
        cache.advance(1, None)
        return logits

    def bias_of(
        self, n_positions: int, dtype: torch.dtype, device: torch.device
    ) -> Float[Tensor, "BH 1 S"] | None:
        """Return what is added to the scores of a token at the last of so many positions."""
        bias = self._step_bias.of(n_positions, dtype, device)
        return None if bias is None else bias.expand(self._n_rows, -1, -1, -1).flatten(0, 1)

    def compute(
        self,
        tokens: Int[Tensor, " B"],
        positions: Int[Tensor, " 1"],
        bias: Float[Tensor, "#BH 1 S"] | None,
        key_values: Callable[[int, int], StepKeyValues | None],
    ) -> Float[Tensor, "B V"]:
        """Compute the logits behind tokens at a position, and write their keys and values.

        ``bias`` is added to scores; ``key_values`` are those of an entry of a block.
        """
        model = self._model
        x = model.embed_tokens(tokens[:, None], positions)[:, 0]  # [B, D]
        rotation = model.positions.rotation(positions, x.dtype)
        if self._is_vector:
            x = x[0]
        for layer, sublayers in enumerate(self._layers):
            if layer > 0:
                vectors = model.positions.vectors(layer, positions, x.dtype)
                x = x if vectors is None else x + vectors[0]
            for index, sublayer in enumerate(sublayers):
                x = sublayer(x, key_values(layer, index), rotation, bias)
        x = model.final_norm(x)
        if self._head is not None:
            x = self._head(x)
        logits = self._output(model.vocabulary_head.finish(x))
        return logits[None] if self._is_vector else logits

    def _sublayer(self, sublayer: AnySublayer) -> Branch:
        assert isinstance(sublayer, Sublayer), "an LSTM has a step of its own"
        function = sublayer.function
        assert not isinstance(function, CrossAttention), "a decoder alone has no cross entries"
        if isinstance(function, Attention):
            return residual(sublayer, self._attention(function))
        return residual(sublayer, feed_forward(function, self._n_rows))

    def _attention(self, attention: Attention) -> Branch:
        project = linear(attention.projection, self._n_rows)
        output = linear(attention.output, self._n_rows)
        n_heads = attention.n_heads
        d_head = attention.d_head
        scale = attention.scale

        def step(
            x: Tensor,
            key_values: StepKeyValues | None,
            rotation: Rotation | None,
            bias: Tensor | None,
        ) -> Tensor:
            assert key_values is not None, "every attention has keys and values in a cache"
            projected = project(x).view(-1, 3, n_heads, 1, d_head)
            q, k, v = projected.unbind(1)  # [B, H, 1, K] each
            if rotation is not None:
                q = rotation(q)
                k = rotation(k)
            keys, values = key_values.append_folded(k, v)  # [B H, S, K] each
            # Scaled here: the product is contiguous, so that folding rows and heads copies nothing.
            queries = (q.to(key_values.dtype) * scale).view(-1, 1, d_head)  # [B H, 1, K]
            mixed = attend(queries, keys, values, _ALL, bias, scale=1.0)  # [B H, 1, K]
            row_shape = (*x.shape[:-1], n_heads * d_head)
            by_row = mixed.to(x.dtype).view(row_shape)  # [B, H K]
            return output(by_row)

        return step
