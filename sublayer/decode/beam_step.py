"""The step of an encoder-decoder for the next token of every hypothesis, unrolled.

Equal to a forward pass over each hypothesis with its source alone, which is tested over every axis of the model.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sublayer.decode.beam_cache import BeamCache, Read
from sublayer.decode.product import make_product
from sublayer.decode.unroll import Branch, feed_forward, linear, residual
from sublayer.model.attention import Attention, CrossAttention
from sublayer.model.block import Sublayer
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.positions import Rotation

Place = tuple[int, int]


class BeamStepper:
    """Adds one token to every row of a cache, and gives the logits of the next."""

    def __init__(self, model: EncoderDecoder, n_rows: int) -> None:
        self._model, self._n_rows = model, max(n_rows, 2)
        unrolled = [[self._sublayer(each) for each in sets] for sets in model.stack.sublayers]  # type: ignore[attr-defined]
        self._layers = [
            [((layer, place), unrolled[place][index]) for place, index in enumerate(slots)]
            for layer, slots in enumerate(model.stack.slots)
        ]
        matrix, bias = model.output_projection()
        self._output = make_product(matrix, bias, self._n_rows)
        self._narrow = None if model.head.projection is None else linear(model.head.projection, self._n_rows)

    def admit(
        self, source: Int[Tensor, "n S"], mask: Bool[Tensor, "n S"] | None, cache: BeamCache, slots: Sequence[int]
    ) -> None:
        """Read sources, and let their hypotheses begin in slots of a cache."""
        model = self._model
        memory = model.encode(source, mask)
        made: dict[Place, Read] = {}
        for layer in range(len(model.stack.slots)):
            for place, sublayer in enumerate(model.stack.block(layer)):
                if isinstance(sublayer.function, CrossAttention):
                    k, v = sublayer.function.read(memory.states)
                    made[layer, place] = Read(k.contiguous(), v.contiguous())
        hidden = torch.zeros_like(source, dtype=torch.bool) if mask is None else ~mask
        cache.admit(slots, made, hidden)

    def __call__(self, tokens: Int[Tensor, " R"], cache: BeamCache) -> Float[Tensor, "R V"]:
        """Take the step; the cache counts it when it learns which hypotheses go on (``advance``)."""
        model = self._model
        positions = cache.positions()[:, None]  # [R, 1]
        x = model.embed(tokens[:, None], positions)[:, 0]  # [R, D]
        rotation = model.positions.rotation_at(positions, x.dtype)
        unseen = _bias(cache.begin(tokens).flatten(2), x.dtype)  # [N, 1, beam, L beam]
        width = cache.memory_width()
        hidden = _bias(cache.hidden[:, None, :width], x.dtype)  # [N, 1, 1, S]
        for layer, sublayers in enumerate(self._layers):
            if layer > 0 and (added := model.positions.vectors(layer, positions, x.dtype)) is not None:
                x = x + added[:, 0]
            for place, step in sublayers:
                x = step(x, cache, place, rotation, unseen, hidden)
        x = model.final_norm(x)
        return self._output(x if self._narrow is None else model.head.finish(self._narrow(x)))

    def _sublayer(self, sublayer: Sublayer) -> Branch:
        function = sublayer.function
        if isinstance(function, Attention):
            return residual(sublayer, self._attention(function))
        if isinstance(function, CrossAttention):
            return residual(sublayer, self._cross(function))
        return residual(sublayer, feed_forward(function, self._n_rows))

    def _attention(self, attention: Attention) -> Branch:
        project, output = linear(attention.projection, self._n_rows), linear(attention.output, self._n_rows)
        n_heads, d_head, scale = attention.n_heads, attention.d_head, attention.scale

        def attend(
            x: Tensor, cache: BeamCache, place: Place, rotation: Rotation | None, unseen: Tensor, _: Tensor
        ) -> Tensor:
            n_rows, n = x.shape[0], cache.n_slots
            q, k, v = project(x).view(n_rows, 3, n_heads, 1, d_head).unbind(1)  # [R, H, 1, K] each
            if rotation is not None:
                q, k = rotation(q), rotation(k)
            q, k, v = (
                each.view(n, -1, n_heads, d_head).transpose(1, 2) for each in (q * scale, k, v)
            )  # [N, H, beam, K]
            keys, values = cache.append(place, k, v)  # [N, H, L beam, K] each
            weights = (q @ keys.transpose(2, 3)).add_(unseen).softmax(-1)  # [N, H, beam, L beam]
            return output((weights @ values).transpose(1, 2).reshape(n_rows, n_heads * d_head))

        return attend

    def _cross(self, attention: CrossAttention) -> Branch:
        weight, bias = attention.projection.part(0, 1)
        ask, output = make_product(weight, bias, self._n_rows), linear(attention.output, self._n_rows)
        n_heads, d_head, scale = attention.n_heads, attention.d_head, attention.scale

        def attend(
            x: Tensor, cache: BeamCache, place: Place, rotation: Rotation | None, _: Tensor, hidden: Tensor
        ) -> Tensor:
            read, width = cache.read[place], hidden.shape[-1]
            q = (ask(x) * scale).view(cache.n_slots, -1, n_heads, d_head).transpose(1, 2)  # [N, H, beam, K]
            weights = (q @ read.keys[:, :, :width].transpose(2, 3)).add_(hidden).softmax(-1)  # [N, H, beam, S]
            mixed = weights @ read.values[:, :, :width]  # [N, H, beam, K]
            return output(mixed.transpose(1, 2).reshape(x.shape[0], n_heads * d_head))

        return attend


def _bias(hidden: Bool[Tensor, "N T S"], dtype: torch.dtype) -> Float[Tensor, "N 1 T S"]:
    """Make what is added to scores: minus infinity at what is hidden."""
    zeros = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
    return zeros.masked_fill_(hidden, -torch.inf)[:, None]
