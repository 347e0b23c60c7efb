"""A decoding step of an encoder-decoder, unrolled: one token of every hypothesis.

Equal to a forward pass over each hypothesis with its source alone, which is tested over every axis
of the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sublayer.decode.beam_cache import BeamCache, CrossKeyValues, SublayerIndex
from sublayer.decode.packed_linear import pack_linear, takes_vectors
from sublayer.decode.step_bias import StepBias
from sublayer.decode.unroll import Branch, feed_forward, linear, residual
from sublayer.model.build import EncoderDecoder
from sublayer.model.context import Rotation, StepKeys
from sublayer.model.kernels.attention import attend
from sublayer.model.layers.attention import Attention, CrossAttention
from sublayer.model.layers.stack import AnySublayer, Sublayer

_ALL = StepKeys()


@dataclass(frozen=True)
class _Step:
    """The context of the sub-layers of a step."""

    cache: BeamCache
    rotation: Rotation | None
    bias: Float[Tensor, "N H 1 LB"] | None
    """What positions add to the scores of a slot's own tokens."""
    own: StepKeys
    """What each hypothesis sees of what all hypotheses of its slot wrote."""
    memory: StepKeys
    """What it sees of its memory."""
    memory_width: int
    """Tokens of the longest memory."""


class BeamStepper:
    """Add one token to every row of a cache, and return the logits of the next.

    Weights may be packed, which copies them: it serves as long as the model's do not change. There
    is no dropout in the blocks. ``n_rows`` is for how many rows weights are packed; a call may have
    another number, but where it is one. One row in float32 or float64 on a CPU goes through the
    blocks as a vector, not as a matrix of one row.
    """

    def __init__(self, model: EncoderDecoder, n_rows: int) -> None:
        self._model = model
        self._n_rows = n_rows
        self._is_vector = takes_vectors(model.embedding.weight, n_rows)
        unrolled = model.stack.map_slots(self._sublayer)
        self._step_bias = StepBias(model.positions)
        self._layers = [
            [((layer, index), branch) for index, branch in enumerate(block)]
            for layer, block in enumerate(unrolled)
        ]
        matrix, bias = model.output_projection()
        self._output = pack_linear(matrix, bias, self._n_rows)
        projection = model.vocabulary_head.projection
        self._head = None if projection is None else linear(projection, self._n_rows)

    def admit(
        self,
        source: Int[Tensor, "n S"],
        mask: Bool[Tensor, "n S"] | None,
        cache: BeamCache,
        slots: Sequence[int],
    ) -> None:
        """Encode sources, and start their hypotheses in slots of a cache.

        Row i of ``source``, its end included, goes to ``slots[i]``; ``mask`` is True at real
        tokens, None where all are. Raises ConfigError where a source is longer than the positions.
        """
        model = self._model
        memory = model.encode(source, mask)
        cross: dict[SublayerIndex, CrossKeyValues] = {}
        for layer in range(len(model.stack.slots)):
            for index, sublayer in enumerate(model.stack.block(layer)):
                if isinstance(sublayer.function, CrossAttention):
                    k, v = sublayer.function.key_value(memory.states)
                    # The two are views of one product, which reads of either would step through.
                    cross[layer, index] = CrossKeyValues(k.contiguous(), v.contiguous())
        hidden = torch.zeros_like(source, dtype=torch.bool) if mask is None else ~mask
        cache.admit(slots, cross, hidden)

    def __call__(self, tokens: Int[Tensor, " R"], cache: BeamCache) -> Float[Tensor, "R V"]:
        """Take the step; the cache counts it when it learns which hypotheses continue: ``advance``.

        Rows are ``n_slots * beam``, slot by slot, those of slots that are not in use included:
        their logits mean nothing.
        """
        model = self._model
        positions = cache.positions()[:, None]  # [R, 1]
        x = model.embed_tokens(tokens[:, None], positions)[:, 0]  # [R, D]
        rotation = model.positions.rotation(positions, x.dtype)
        hidden = cache.begin(tokens)  # [N, beam, L, beam]
        own = _ALL if hidden is None else StepKeys.hiding(hidden.flatten(2), x.dtype)
        width, padding = cache.memory()
        memory = _ALL if padding is None else StepKeys.hiding(padding[:, None], x.dtype)
        bias = self._bias(cache, x.dtype)
        step = _Step(cache, rotation, bias, own, memory, width)
        if self._is_vector:
            x = x[0]  # [D]
        for layer, sublayers in enumerate(self._layers):
            if layer > 0:
                vectors = model.positions.vectors(layer, positions, x.dtype)
                x = x if vectors is None else x + vectors.view(x.shape)
            for index, sublayer in sublayers:
                x = sublayer(x, index, step)
        x = model.final_norm(x)  # [R, D]
        if self._head is not None:
            x = self._head(x)
        logits = self._output(model.vocabulary_head.finish(x))
        return logits[None] if self._is_vector else logits

    def _bias(self, cache: BeamCache, dtype: torch.dtype) -> Float[Tensor, "N H 1 LB"] | None:
        """Compute what the positions add to scores: hypotheses of a slot have the same length."""
        scheme = self._model.positions
        if not scheme.biases_scores:
            return None
        if cache.common is not None:
            bias = self._step_bias.of(cache.window, dtype, cache.device)
            if bias is None or cache.beam == 1:
                return bias
            return bias.repeat_interleave(cache.beam, -1)
        lengths = torch.tensor(cache.lengths, device=cache.device)
        return scheme.score_bias(lengths[:, None], cache.key_positions(), dtype)

    def _sublayer(self, sublayer: AnySublayer) -> Branch:
        assert isinstance(sublayer, Sublayer), "no LSTM stands beside an encoder"
        function = sublayer.function
        if isinstance(function, Attention):
            return residual(sublayer, self._attention(function))
        if isinstance(function, CrossAttention):
            return residual(sublayer, self._cross(function))
        return residual(sublayer, feed_forward(function, self._n_rows))

    def _attention(self, attention: Attention) -> Branch:
        project = linear(attention.projection, self._n_rows)
        output = linear(attention.output, self._n_rows)
        n_heads = attention.n_heads
        d_head = attention.d_head
        scale = attention.scale

        def branch(x: Tensor, index: SublayerIndex, step: _Step) -> Tensor:
            projected = project(x).view(step.cache.n_slots, -1, 3, n_heads, d_head)
            q, k, v = projected.permute(2, 0, 3, 1, 4).unbind(0)  # [N, H, beam, K] each
            if step.rotation is not None:
                q = _rotated(q, step.rotation)
                k = _rotated(k, step.rotation)
            keys, values = step.cache.append(index, k, v)  # [N, H, L beam, K] each
            mixed = attend(q, keys, values, step.own, step.bias, scale=scale)  # [N, H, beam, K]
            by_row = mixed.transpose(1, 2).reshape(*x.shape[:-1], n_heads * d_head)
            return output(by_row)

        return branch

    def _cross(self, attention: CrossAttention) -> Branch:
        weight, bias = attention.projection.part(0, 1)
        query = pack_linear(weight, bias, self._n_rows)
        output = linear(attention.output, self._n_rows)
        n_heads = attention.n_heads
        d_head = attention.d_head
        scale = attention.scale

        def branch(x: Tensor, index: SublayerIndex, step: _Step) -> Tensor:
            cross = step.cache.cross[index]
            keys = cross.keys  # [N, H, S, K]
            values = cross.values
            if step.memory_width < keys.shape[2]:
                keys = keys[:, :, : step.memory_width]
                values = values[:, :, : step.memory_width]
            by_slot = query(x).view(step.cache.n_slots, -1, n_heads, d_head)
            q = by_slot.transpose(1, 2)  # [N, H, beam, K]
            mixed = attend(q, keys, values, step.memory, scale=scale)  # [N, H, beam, K]
            by_row = mixed.transpose(1, 2).reshape(*x.shape[:-1], n_heads * d_head)
            return output(by_row)

        return branch


def _rotated(x: Float[Tensor, "N H beam K"], rotation: Rotation) -> Float[Tensor, "N H beam K"]:
    """Rotate each row by its own position, for which rows stand one behind another."""
    n_slots, n_heads, beam, d_head = x.shape
    by_row = x.transpose(1, 2).reshape(-1, n_heads, 1, d_head)
    by_slot = rotation(by_row).view(n_slots, beam, n_heads, d_head)
    return by_slot.transpose(1, 2)
