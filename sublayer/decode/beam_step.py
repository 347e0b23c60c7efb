"""The step of an encoder-decoder for the next token of every hypothesis, unrolled.

Equal to a forward pass over each hypothesis with its source alone, which is tested over every axis of the model.
"""

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

    def admit(self, source: Int[Tensor, "n S"], mask: Bool[Tensor, "n S"] | None, cache: BeamCache) -> None:
        """Read sources, and let their hypotheses begin."""
        model = self._model
        memory = model.encode(source, mask)
        made: dict[Place, Read] = {}
        for layer in range(len(model.stack.slots)):
            for place, sublayer in enumerate(model.stack.block(layer)):
                if isinstance(sublayer.function, CrossAttention):
                    k, v = sublayer.function.read(memory.states)
                    made[layer, place] = Read(k.transpose(2, 3).contiguous(), v.contiguous())
        hidden = torch.zeros_like(source, dtype=torch.bool) if mask is None else ~mask
        cache.admit(made, hidden)

    def __call__(self, tokens: Int[Tensor, " R"], cache: BeamCache) -> Float[Tensor, "R V"]:
        """Take the step."""
        model = self._model
        positions = cache.positions()[:, None]  # [R, 1]
        x = model.embed(tokens[:, None], positions)[:, 0]  # [R, D]
        rotation = model.positions.rotation_at(positions, x.dtype)
        unseen, hidden = _bias(cache.unseen(), x.dtype), _bias(cache.hidden, x.dtype)
        for layer, sublayers in enumerate(self._layers):
            if layer > 0 and (added := model.positions.vectors(layer, positions, x.dtype)) is not None:
                x = x + added[:, 0]
            for place, step in sublayers:
                x = step(x, cache, place, rotation, unseen, hidden)
        cache.advance()
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
            x: Tensor,
            cache: BeamCache,
            place: Place,
            rotation: Rotation | None,
            unseen: Tensor | None,
            _: Tensor | None,
        ) -> Tensor:
            n_rows = x.shape[0]
            q, k, v = project(x).view(n_rows, 3, n_heads, 1, d_head).unbind(1)  # [R, H, 1, K] each
            if rotation is not None:
                q, k = rotation(q), rotation(k)
            keys, values = cache.append(place, k.reshape(n_rows, -1), v.reshape(n_rows, -1))  # [L, R, H K] each
            folded = keys.view(-1, n_rows * n_heads, d_head).permute(1, 2, 0)  # [R H, K, L]
            scores = torch.bmm((q * scale).view(n_rows * n_heads, 1, d_head), folded)
            if unseen is not None:
                scores = (scores.view(n_rows, n_heads, 1, -1) + unseen).view_as(scores)
            weights = scores.softmax(-1)  # [R H, 1, L]
            mixed = torch.bmm(weights, values.view(-1, n_rows * n_heads, d_head).transpose(0, 1))
            return output(mixed.view(n_rows, n_heads * d_head))

        return attend

    def _cross(self, attention: CrossAttention) -> Branch:
        weight, bias = attention.projection.part(0, 1)
        ask, output = make_product(weight, bias, self._n_rows), linear(attention.output, self._n_rows)
        n_heads, d_head, scale = attention.n_heads, attention.d_head, attention.scale

        def attend(
            x: Tensor,
            cache: BeamCache,
            place: Place,
            rotation: Rotation | None,
            _: Tensor | None,
            hidden: Tensor | None,
        ) -> Tensor:
            read, n = cache.read[place], cache.n_sentences
            q = (ask(x) * scale).view(n, -1, n_heads, d_head).transpose(1, 2)  # [N, H, beam, K]
            scores = q @ read.keys  # [N, H, beam, S]
            if hidden is not None:
                scores = scores + hidden
            mixed = scores.softmax(-1) @ read.values  # [N, H, beam, K]
            return output(mixed.transpose(1, 2).reshape(x.shape[0], n_heads * d_head))

        return attend


def _bias(hidden: Bool[Tensor, "N S"] | None, dtype: torch.dtype) -> Float[Tensor, "N 1 1 S"] | None:
    """Make what is added to scores: minus infinity at what is hidden; None where nothing is."""
    if hidden is None or not bool(hidden.any()):
        return None
    zeros = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
    return zeros.masked_fill_(hidden, -torch.inf)[:, None, None]
