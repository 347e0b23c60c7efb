"""The model's step for one new token of each row, unrolled: its own weights, in as few operations as they take.

Equal to a forward pass behind a cache, which is tested over every axis of the model.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.decode.product import make_product, takes_vectors
from sublayer.decode.unroll import Branch, feed_forward, linear, residual
from sublayer.model.attention import Attention, CrossAttention
from sublayer.model.block import Sublayer
from sublayer.model.cache import Cache, KeyValues, MemoryKeyValues
from sublayer.model.decoder import Decoder
from sublayer.model.positions import Rotation


class Stepper:
    """Adds one token to every row of a cache without padding, and gives the logits of the next."""

    def __init__(self, model: Decoder, n_rows: int) -> None:
        self._model = model
        self._n_rows = n_rows
        self._is_vector = takes_vectors(model.embedding.weight, n_rows)
        unrolled = [[self._sublayer(each) for each in sets] for sets in model.stack.sublayers]  # type: ignore[attr-defined]
        self._layers = [
            [(place, unrolled[place][index]) for place, index in enumerate(slots)] for slots in model.stack.slots
        ]
        matrix, bias = model.output_projection()
        self._output = make_product(matrix, bias, n_rows)
        self._narrow = None if model.head.projection is None else linear(model.head.projection, n_rows)

    def __call__(self, tokens: Int[Tensor, " B"], cache: Cache) -> Float[Tensor, "B V"]:
        """Take the step. Raises ConfigError where the cache is full."""
        cache.check(1)
        model, place = self._model, cache.length
        positions = torch.tensor([place], device=tokens.device)
        x = model.embed(tokens[:, None], positions)[:, 0]  # [B, D]
        rotation = model.positions.rotation_at(positions, x.dtype)
        if self._is_vector:
            x = x[0]
        for layer, sublayers in enumerate(self._layers):
            if layer > 0 and (added := model.positions.vectors(layer, positions, x.dtype)) is not None:
                x = x + added[0]
            for entry, step in sublayers:
                x = step(x, cache.kept(layer, entry), rotation)
        cache.advance(1, None)
        x = model.final_norm(x)
        logits = self._output(x if self._narrow is None else model.head.finish(self._narrow(x)))
        return logits[None] if self._is_vector else logits

    def _sublayer(self, sublayer: Sublayer) -> Branch:
        function = sublayer.function
        assert not isinstance(function, CrossAttention), "a decoder alone has no cross entries"
        if isinstance(function, Attention):
            return residual(sublayer, self._attention(function))
        return residual(sublayer, feed_forward(function, self._n_rows))

    def _attention(self, attention: Attention) -> Branch:
        project, output = linear(attention.projection, self._n_rows), linear(attention.output, self._n_rows)
        n_heads, d_head, scale = attention.n_heads, attention.d_head, attention.scale

        def attend(x: Tensor, kept: KeyValues | MemoryKeyValues | None, rotation: Rotation | None) -> Tensor:
            assert isinstance(kept, KeyValues), "every attention has its place in a cache"
            q, k, v = project(x).view(-1, 3, n_heads, 1, d_head).unbind(1)  # [B, H, 1, K] each
            if rotation is not None:
                q, k = rotation(q), rotation(k)
            keys, values = kept.append_folded(k, v)
            queries = (q.to(kept.dtype) * scale).view(-1, 1, d_head)  # [B H, 1, K]
            weights = torch.bmm(queries, keys).softmax(-1)  # [B H, 1, S]
            mixed = torch.bmm(weights, values).to(x.dtype)  # [B H, 1, K]
            return output(mixed.view(*x.shape[:-1], n_heads * d_head))

        return attend
