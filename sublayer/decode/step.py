"""The model's step for one new token of each row, unrolled: its own weights, in as few operations as they take.

Equal to a forward pass behind a cache, which is tested over every axis of the model.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.model.attention import Attention
from sublayer.model.block import Sublayer
from sublayer.model.cache import Cache, KeyValues
from sublayer.model.feedforward import FeedForward
from sublayer.model.linear import Linear, StackedLinear
from sublayer.model.positions import Rotation
from sublayer.model.transformer import Transformer

Product = Callable[[Tensor], Tensor]
Function = Callable[[Tensor, KeyValues | None, Rotation | None], Tensor]


class Stepper:
    """Adds one token to every row of a cache without padding, and gives the logits of the next."""

    def __init__(self, model: Transformer, n_rows: int) -> None:
        self._model = model
        self._is_vector = n_rows == 1
        config = model.config
        # Shared weights are unrolled once for each block that executes them.
        self._layers = [
            [(place, self._sublayer(sublayer)) for place, sublayer in enumerate(model.decoder.block(layer))]
            for layer in range(config.n_layers)
        ]
        matrix, bias = model.output_projection()
        self._output = self._product(matrix, bias)
        self._to_embedding = None if model.head.projection is None else self._linear(model.head.projection)

    def __call__(self, tokens: Int[Tensor, " B"], cache: Cache) -> Float[Tensor, "B V"]:
        """Take the step. Raises ConfigError where the cache is full."""
        cache.check(1)
        model, place = self._model, cache.length
        positions = torch.tensor([place], device=tokens.device)
        x = model.embedding(tokens[:, None])[:, 0]  # [B, D]
        rotation = model.positions.rotation_at(positions, x.dtype)
        if self._is_vector:
            x = x[0]
        for layer, sublayers in enumerate(self._layers):
            if (added := model.positions.vectors(layer, positions, x.dtype)) is not None:
                x = x + added[0]
            for entry, step in sublayers:
                x = step(x, cache.kept(layer, entry), rotation)
        cache.advance(1, None)
        x = model.final_norm(x)
        logits = self._output(x if self._to_embedding is None else self._to_embedding(x))
        return logits[None] if self._is_vector else logits

    def _sublayer(self, sublayer: Sublayer) -> Function:
        function, norm, size = sublayer.function, sublayer.norm.forward, sublayer.step
        branch = self._attention(function) if isinstance(function, Attention) else self._feed_forward(function)
        if sublayer.is_pre_norm:
            return lambda x, kept, rotation: torch.add(x, branch(norm(x), kept, rotation), alpha=size)
        return lambda x, kept, rotation: norm(torch.add(x, branch(x, kept, rotation), alpha=size))

    def _attention(self, attention: Attention) -> Function:
        project, output = self._linear(attention.projection), self._linear(attention.output)
        n_heads, d_head, scale = attention.n_heads, attention.d_head, attention.scale

        def attend(x: Tensor, kept: KeyValues | None, rotation: Rotation | None) -> Tensor:
            assert kept is not None, "every attention has its place in a cache"
            projected = project(x).view(-1, 3, n_heads, 1, d_head)  # [B, 3, H, 1, K]
            q, k, v = projected.unbind(1)
            if rotation is not None:
                q, k = rotation(q), rotation(k)
            keys, values = kept.append(k, v)
            mixed = F.scaled_dot_product_attention(q, keys, values, scale=scale)  # [B, H, 1, K]
            return output(mixed.reshape(*x.shape[:-1], n_heads * d_head))

        return attend

    def _feed_forward(self, ffn: FeedForward) -> Function:
        read, write, activation = self._linear(ffn.input), self._linear(ffn.output), ffn.activation

        def gated(x: Tensor, kept: KeyValues | None, rotation: Rotation | None) -> Tensor:
            gate, value = read(x).chunk(2, dim=-1)
            return write(activation(gate) * value)

        if ffn.is_gated:
            return gated
        return lambda x, kept, rotation: write(activation(read(x)))

    def _linear(self, linear: Linear | StackedLinear) -> Product:
        bias = None if linear.bias is None else linear.bias.flatten()
        return self._product(linear.weight.flatten(0, -2), bias)

    def _product(self, matrix: Tensor, bias: Tensor | None) -> Product:
        matrix, bias = matrix.detach(), None if bias is None else bias.detach()
        if not self._is_vector:
            return lambda x: F.linear(x, matrix, bias)
        # A matrix times a vector reads each weight once, and has less to prepare than a product of matrices.
        if bias is None:
            return lambda x: torch.mv(matrix, x)
        return lambda x: torch.addmv(bias, matrix, x)
