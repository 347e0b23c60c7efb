"""A step of beam search: one token of every hypothesis, unrolled, and the continuations it allows.

The decoding step of an encoder-decoder is equal to a forward pass over one hypothesis and its
source; tested over every axis of the model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from sublayer.config.stacks import AttentionForm
from sublayer.decode.sample import Sampling
from sublayer.decode.step import (
    Branch,
    StepBias,
    feed_forward,
    linear,
    pack_linear,
    residuals,
    takes_vectors,
    unrolled_head,
)
from sublayer.model.blocks import Attention, CrossAttention, Sublayer, gated
from sublayer.model.context import Rotation, Rotations, StepKeys
from sublayer.model.kernels.attention import attend
from sublayer.model.transformer import EncoderDecoder

FIRST_LENGTH = 32
"""Initial capacity in positions."""
_NOBODY = -1
"""Ancestor at positions that a hypothesis has yet to reach."""

_Place = tuple[Tensor | slice, slice, Tensor | int]
SublayerIndex = tuple[int, int]
"""A sub-layer by its block and its index there."""


@dataclass
class KeysAndValues:
    """Key/value cache of one executed attention.

    Self-attention: ``[N, H, L, beam, K]``; cross-attention: ``[N, H, S, K]``.
    """

    keys: Tensor
    values: Tensor
    size: int | None = None
    """Most positions of the ring of a local attention; None: no ring."""

    def map(self, change: Callable[[Tensor], Tensor]) -> None:
        """Replace keys, then values, so that only one old tensor is alive with its copy."""
        self.keys = change(self.keys)
        self.values = change(self.values)


class BeamCache:
    """Key/value cache of N slots with ``beam`` hypotheses of a sentence each.

    Slot n has filled ``lengths[n]`` positions, written by all its hypotheses. A hypothesis that
    branches is not copied: hypothesis j reads the keys, values and token that hypothesis
    ``ancestors[n, j, l]`` wrote at position l. A finished sentence leaves its slot to the next.
    Local attentions keep a ring of their window: position l is at ``l % size``.

    While all sentences are equally long, as after a common start, a step writes one position of all
    slots, and a single hypothesis needs no mask.
    """

    def __init__(self, beam: int, device: torch.device) -> None:
        self.beam = beam
        self.device = device
        self._beams = torch.arange(beam, device=device)
        self.lengths: list[int] = []
        """Positions that each slot has filled; 0 where it is not in use."""
        self._is_live: list[bool] = []
        """True for slots in use."""
        self.ancestors = torch.zeros(0, beam, FIRST_LENGTH, dtype=torch.long, device=device)
        self.inputs = torch.zeros(0, FIRST_LENGTH, beam, dtype=torch.long, device=device)
        """The token that each hypothesis read at each position."""
        self.hidden: Bool[Tensor, "N S"] = torch.zeros(0, 0, dtype=torch.bool, device=device)
        """True at padding of the memory."""
        self.kept: dict[SublayerIndex, KeysAndValues] = {}
        self.cross: dict[SublayerIndex, KeysAndValues] = {}
        self.window = 0
        """Positions visible to some hypothesis in this step."""
        self.common: int | None = None
        """The length of all slots in use at this step; None where they differ."""
        self._places: dict[int | None, _Place] = {}
        """The index that this step writes to, by the size of the ring."""
        self._memory: tuple[int, Bool[Tensor, "N S"] | None] | None = None
        """The result of ``memory``, until slots change."""

    @property
    def n_slots(self) -> int:
        """Number of slots, used or not."""
        return len(self.lengths)

    def positions(self) -> Int[Tensor, " R"]:
        """Return the position of each row's next token in its hypothesis.

        Rows are ``n_slots * beam``, slot by slot.
        """
        lengths = torch.tensor(self.lengths, device=self.device)
        return lengths.repeat_interleave(self.beam)

    def ring(self, size: int | None) -> Int[Tensor, "N L"] | None:
        """Return the position of each key of a ring, below 0 where there is none.

        None where keys are in the order of positions: without a ring, or before it is full.
        """
        if size is None or self.window <= size:
            return None
        lengths = self.lengths if self.common is None else [self.common] * self.n_slots
        newest = torch.tensor(lengths, device=self.device)[:, None]  # [N, 1]
        return newest - (newest - torch.arange(size, device=self.device)).remainder(size)

    def key_positions(self, size: int | None = None) -> Int[Tensor, " LB"] | Int[Tensor, "N LB"]:
        """Return the positions of this step's keys, of every hypothesis, in ``append``'s order.

        They are equal for all slots, whatever their lengths, unless the keys are a full ring.
        """
        ring = self.ring(size)
        if ring is None:
            return torch.arange(self.window, device=self.device).repeat_interleave(self.beam)
        return ring.clamp_min(0).repeat_interleave(self.beam, 1)

    def begin(self, tokens: Int[Tensor, " R"]) -> None:
        """Take the next tokens, and set the window of this step."""
        self.window = max(self.lengths) + 1
        room = self.inputs.shape[1]
        if self.window > room:
            # Doubling keeps the total of all copies within a few times the final size.
            length = 2 * self.window
            self.inputs = _widened(self.inputs, length, dim=1)
            self.ancestors = _widened(self.ancestors, length, dim=2, value=_NOBODY)
            for kept in self.kept.values():
                kept.map(partial(_widened, width=min(length, kept.size or length), dim=2))
        of_live = zip(self.lengths, self._is_live, strict=True)
        in_use = {length for length, is_live in of_live if is_live}
        self.common = in_use.pop() if len(in_use) == 1 else None
        self._places = {}
        place = self._newest(None)
        self.inputs.transpose(1, 2)[place] = tokens.view(-1, self.beam)
        self.ancestors[place] = self._beams

    def hidden_keys(self, size: int | None = None) -> Bool[Tensor, "N beam L beam"] | None:
        """Return the mask of this step's keys that are hidden from each hypothesis.

        Keys of non-ancestors and beyond a slot's length are hidden; None hides nothing. The axes
        are slot, reading hypothesis, position, writing hypothesis; ``L`` is the window of this
        step, or the ``size`` of a full ring.
        """
        if self.beam == 1 and self.common is not None:
            return None
        writers = self.ancestors[:, :, : self.window]  # [N, beam, L]
        ring = self.ring(size)
        if ring is not None:
            index = ring.clamp_min(0)[:, None].expand(-1, self.beam, -1)
            writers = writers.gather(2, index).masked_fill_(ring[:, None] < 0, _NOBODY)
        return writers[..., None] != self._beams

    def _newest(self, size: int | None) -> _Place:
        """Return the index of this step's position in ``[slots, any, positions, ...]``."""
        if size not in self._places:
            every = slice(None)
            if self.common is not None:
                place = self.common if size is None else self.common % size
                self._places[size] = every, every, place
            else:
                slots = torch.arange(self.n_slots, device=self.device)
                lengths = torch.tensor(self.lengths, device=self.device)
                self._places[size] = slots, every, lengths if size is None else lengths % size
        return self._places[size]

    def append(
        self,
        index: SublayerIndex,
        k: Float[Tensor, "N H beam K"],
        v: Float[Tensor, "N H beam K"],
        size: int | None = None,
    ) -> tuple[Float[Tensor, "N H LB K"], Float[Tensor, "N H LB K"]]:
        """Write an attention's new keys and values; return all of every hypothesis.

        They are ordered by position, then hypothesis, as the mask of ``hidden_keys``; those of a
        local attention of ``size`` tokens are a ring. The first call for an index allocates them,
        with the dtype and device of ``k``.
        """
        if index not in self.kept:
            n_slots, n_heads, beam, d_head = k.shape
            n_positions = min(self.inputs.shape[1], size or self.inputs.shape[1])
            shape = (n_slots, n_heads, n_positions, beam, d_head)
            keys = k.new_zeros(shape)
            values = v.new_zeros(shape)
            self.kept[index] = KeysAndValues(keys, values, size)
        kept, place = self.kept[index], self._newest(size)
        kept.keys[place] = k
        kept.values[place] = v
        n_filled = min(self.window, size or self.window)
        keys = kept.keys[:, :, :n_filled].flatten(2, 3)  # [N, H, L beam, K]
        values = kept.values[:, :, :n_filled].flatten(2, 3)
        return keys, values

    def written(self, slot: int, hypothesis: int) -> Int[Tensor, " L"]:
        """Return the tokens that a hypothesis has read, without the common first one.

        Called between ``begin`` and ``advance``: the last is the token that this step has read, at
        ``lengths[slot]``.
        """
        positions = torch.arange(1, self.lengths[slot] + 1, device=self.device)
        ancestors = self.ancestors[slot, hypothesis, positions]
        return self.inputs[slot, positions, ancestors]

    def advance(self, origins: Int[Tensor, "N beam"]) -> None:
        """Count the written token; hypothesis j continues from ``origins[:, j]``.

        Origins are hypotheses of the same slot, 0 to ``beam - 1``. Unused slots keep their length.
        """
        if self.beam > 1:
            seen = self.ancestors[:, :, : self.window]
            index = origins[:, :, None].expand_as(seen)
            self.ancestors[:, :, : self.window] = seen.gather(1, index)
        for slot, is_live in enumerate(self._is_live):
            self.lengths[slot] += is_live

    def free(self, slots: Sequence[int]) -> None:
        """Empty slots for other sentences.

        Their keys and values stay in memory, hidden, until they are overwritten.
        """
        for slot in slots:
            self.lengths[slot] = 0
            self._is_live[slot] = False

    def admit(
        self,
        slots: Sequence[int],
        cross: dict[SublayerIndex, KeysAndValues],
        hidden: Bool[Tensor, "n S"],
    ) -> None:
        """Start sentences in free slots, or in the first ones, with their cross keys and values.

        ``cross`` has an entry of n rows for each cross entry of the model; ``hidden`` is True at
        the padding of a memory. The first call creates as many slots as it names and keeps
        ``cross`` and ``hidden`` without a copy; later a wider memory widens all.
        """
        self._memory = None
        if not self.n_slots:
            self._start(len(slots), cross, hidden)
            return
        for slot in slots:
            self._is_live[slot] = True
        width = hidden.shape[1]
        if width > self.hidden.shape[1]:
            self.hidden = _widened(self.hidden, width, dim=1, value=True)
            for held in self.cross.values():
                held.map(partial(_widened, width=width, dim=2))
        chosen = torch.tensor(slots, device=self.device)
        self.ancestors[chosen] = _NOBODY
        # Padding behind a shorter memory is hidden.
        self.hidden[chosen] = True
        self.hidden[chosen, :width] = hidden
        for index, held in self.cross.items():
            held.keys[chosen, :, :width] = cross[index].keys
            held.values[chosen, :, :width] = cross[index].values

    def _start(
        self, n: int, cross: dict[SublayerIndex, KeysAndValues], hidden: Bool[Tensor, "n S"]
    ) -> None:
        self.lengths = [0] * n
        self._is_live = [True] * n
        self.ancestors = self.ancestors.new_full((n, self.beam, FIRST_LENGTH), _NOBODY)
        self.inputs = self.inputs.new_zeros(n, FIRST_LENGTH, self.beam)
        self.hidden = hidden
        self.cross = cross

    def memory(self) -> tuple[int, Bool[Tensor, "N S"] | None]:
        """Return the length S of the longest memory, and the padding mask of each slot.

        None without padding; columns beyond S are padding of every slot.
        """
        if self._memory is None:
            n_real = (~self.hidden).sum(1)
            width = int(n_real.max())
            hidden = self.hidden[:, :width]
            self._memory = width, hidden if bool(hidden.any()) else None
        return self._memory

    def keep(self, slots: Sequence[int]) -> None:
        """Keep only some slots, in their order; ``slots[i]`` becomes slot i."""
        chosen = torch.tensor(slots, dtype=torch.long, device=self.device)
        self._memory = None
        self.lengths = [self.lengths[slot] for slot in slots]
        self._is_live = [self._is_live[slot] for slot in slots]
        self.hidden = self.hidden[chosen]
        self.ancestors = self.ancestors[chosen]
        self.inputs = self.inputs[chosen]
        for held in (*self.kept.values(), *self.cross.values()):
            held.map(partial(torch.index_select, dim=0, index=chosen))


def _widened(tensor: Tensor, width: int, *, dim: int, value: bool | float = 0) -> Tensor:
    """Extend an axis to ``width`` with ``value``."""
    shape = list(tensor.shape)
    shape[dim] = width - shape[dim]
    filling = tensor.new_full(shape, value)
    return torch.cat([tensor, filling], dim)


_ALL = StepKeys()


@dataclass(frozen=True)
class _StepForm:
    """Context of a step's self-attentions of one form."""

    window: int | None
    turns: tuple[Branch, Branch] | None
    """Rotations of queries and of keys."""
    bias: Float[Tensor, "N H 1 LB"] | None
    """Positional bias of a slot's attention scores."""
    keys: StepKeys
    """The keys that each hypothesis sees, of all hypotheses of its slot."""


@dataclass(frozen=True)
class _Step:
    """Context of a step's sub-layers."""

    cache: BeamCache
    forms: list[_StepForm]
    memory: StepKeys
    """The keys of the memory that it sees."""
    memory_width: int
    """Tokens of the longest memory."""
    values: list[Tensor] | None
    """Values of the first attention, as in ``Context``."""


class BeamStepper:
    """Append a token to every row of a cache; return the next-token logits.

    Packed weights are copies: they are valid while the model's do not change. Without dropout.
    Weights are packed for ``n_rows`` rows; unless it is 1, a call may have another number. One row
    in float32 or float64 on a CPU is computed as a vector, not as a matrix of one row.
    """

    def __init__(self, model: EncoderDecoder, n_rows: int) -> None:
        self._model = model
        self._n_rows = n_rows
        self._is_vector = takes_vectors(model.embedding.weight, n_rows)
        self._layers = residuals(model.stack, self._function)
        self._step_bias = StepBias(model.positions)
        self._logits = unrolled_head(model, n_rows)

    def admit(
        self,
        source: Int[Tensor, "n S"],
        mask: Bool[Tensor, "n S"] | None,
        cache: BeamCache,
        slots: Sequence[int],
    ) -> None:
        """Encode sources, and start their hypotheses in slots of a cache.

        Row i of ``source``, with its end, goes to ``slots[i]``; ``mask`` is True at real tokens,
        None without padding. Raises ConfigError for a source longer than the model's positions.
        """
        model = self._model
        memory = model.encode(source, mask)
        cross: dict[SublayerIndex, KeysAndValues] = {}
        for layer in range(len(model.stack.slots)):
            for index, sublayer in enumerate(model.stack.block(layer)):
                if isinstance(sublayer.function, CrossAttention):
                    k, v = sublayer.function.key_value(memory.states)
                    # Both are strided views of one product: copies are read faster.
                    cross[layer, index] = KeysAndValues(k.contiguous(), v.contiguous())
        hidden = torch.zeros_like(source, dtype=torch.bool) if mask is None else ~mask
        cache.admit(slots, cross, hidden)

    def __call__(self, tokens: Int[Tensor, " R"], cache: BeamCache) -> Float[Tensor, "R V"]:
        """Take the step; ``BeamCache.advance`` completes it, with the surviving hypotheses.

        Rows are ``n_slots * beam``, slot by slot; logits of unused slots are meaningless.
        """
        model = self._model
        positions = cache.positions()[:, None]  # [R, 1]
        x = model.embed_tokens(tokens[:, None], positions)[:, 0]  # [R, D]
        cache.begin(tokens)
        forms = [
            _StepForm(
                form.window,
                _turns(rotations),
                self._bias(cache, x.dtype, form),
                _hiding(cache.hidden_keys(form.window), x.dtype),
            )
            for form, rotations in zip(
                model.forms, model.rotations(positions, x.dtype), strict=True
            )
        ]
        width, padding = cache.memory()
        memory = _ALL if padding is None else StepKeys.hiding(padding[:, None], x.dtype)
        step = _Step(cache, forms, memory, width, [] if model.mixes_values else None)
        if self._is_vector:
            x = x[0]  # [D]
        for layer, sublayers in enumerate(self._layers):
            if layer > 0:
                vectors = model.positions.vectors(layer, positions, x.dtype)
                x = x if vectors is None else x + vectors.view(x.shape)
            for group, sublayer in sublayers:
                x = sublayer(x, *[((layer, index), step) for index in group])
        return self._logits(model.final_norm(x))

    def _bias(
        self, cache: BeamCache, dtype: torch.dtype, form: AttentionForm
    ) -> Float[Tensor, "N H 1 LB"] | None:
        """Compute the attention bias: hypotheses of a slot have the same length."""
        scheme = self._model.positions
        if not (scheme.biases_scores and form.has_positions):
            return None
        if cache.common is not None:
            bias = self._step_bias.of(cache.window, dtype, cache.device, form)
            if bias is None or cache.beam == 1:
                return bias
            return bias.repeat_interleave(cache.beam, -1)
        lengths = torch.tensor(cache.lengths, device=cache.device)
        return scheme.score_bias(lengths[:, None], cache.key_positions(form.window), dtype)

    def _function(self, sublayer: Sublayer) -> Branch:
        function = sublayer.function
        if isinstance(function, Attention):
            return self._attention(function)
        if isinstance(function, CrossAttention):
            return self._cross(function)
        return feed_forward(function, self._n_rows)

    def _attention(self, attention: Attention) -> Branch:
        project = pack_linear(*attention.maps(), self._n_rows)
        output = linear(attention.output, self._n_rows)
        gate = None if attention.gate is None else linear(attention.gate, self._n_rows)
        heads = attention.heads
        n_heads = sum(heads)
        d_head = attention.d_head
        scale, cap, sinks = attention.scale, attention.score_cap, attention.sinks

        form_numbers = self._model.form_numbers

        def branch(x: Tensor, index: SublayerIndex, step: _Step) -> Tensor:
            layer, entry = index
            form = step.forms[form_numbers[layer][entry]]
            projected = project(x).view(step.cache.n_slots, -1, n_heads, d_head).transpose(1, 2)
            q, k, v = projected.split_with_sizes(heads, 1)  # [N, H or G, beam, K] each
            q, k = attention.placed(q, k, form.turns)
            if step.values is not None:
                v = attention.mix_values(v, step.values)
            keys, values = step.cache.append(index, k, v, form.window)  # [N, H, L beam, K] each
            mixed = attend(
                q, keys, values, form.keys, form.bias, scale=scale, cap=cap, sinks=sinks
            )  # [N, H, beam, K]
            by_row = mixed.transpose(1, 2).reshape(*x.shape[:-1], -1)
            return output(by_row if gate is None else gated(by_row, gate(x)))

        return branch

    def _cross(self, attention: CrossAttention) -> Branch:
        query = pack_linear(*attention.maps(0, 1), self._n_rows)
        output = linear(attention.output, self._n_rows)
        n_heads = attention.n_heads
        d_head = attention.d_head
        scale, cap, sinks = attention.scale, attention.score_cap, attention.sinks

        def branch(x: Tensor, index: SublayerIndex, step: _Step) -> Tensor:
            cross = step.cache.cross[index]
            keys = cross.keys  # [N, H, S, K]
            values = cross.values
            if step.memory_width < keys.shape[2]:
                keys = keys[:, :, : step.memory_width]
                values = values[:, :, : step.memory_width]
            by_slot = query(x).view(step.cache.n_slots, -1, n_heads, d_head)
            q = attention.normed(by_slot.transpose(1, 2), attention.query_norm)  # [N, H, beam, K]
            mixed = attend(
                q, keys, values, step.memory, scale=scale, cap=cap, sinks=sinks
            )  # [N, H, beam, K]
            by_row = mixed.transpose(1, 2).reshape(*x.shape[:-1], n_heads * d_head)
            return output(by_row)

        return branch


def _hiding(hidden: Bool[Tensor, "N beam L beam"] | None, dtype: torch.dtype) -> StepKeys:
    return _ALL if hidden is None else StepKeys.hiding(hidden.flatten(2), dtype)


def _turns(rotations: Rotations | None) -> tuple[Branch, Branch] | None:
    if rotations is None:
        return None
    return partial(_rotated, rotations.queries), partial(_rotated, rotations.keys)


def _rotated(rotation: Rotation, x: Float[Tensor, "N H beam K"]) -> Float[Tensor, "N H beam K"]:
    """Rotate each row by its position, with the rows laid out as a sequence."""
    n_slots, n_heads, beam, d_head = x.shape
    by_row = x.transpose(1, 2).reshape(-1, n_heads, 1, d_head)
    by_slot = rotation(by_row).view(n_slots, beam, n_heads, d_head)
    return by_slot.transpose(1, 2)


_PIECE = 64
"""Scores per piece; the maximum of each piece is found first."""
_ROWS = 64
"""Rows with exponentials that fit the processor's cache."""


def top(
    scores: Float[Tensor, "R V"], count: int
) -> tuple[Float[Tensor, "R C"], Int[Tensor, "R C"]]:
    """Return the ``count`` highest scores of each row and their indices; ties in no order.

    Both are ordered from the highest score down; ``count`` is at most V.

    The highest scores lie in the pieces with the highest maxima, so that few pieces are searched,
    which is faster on a CPU.
    """
    n_pieces = scores.shape[1] // _PIECE
    # With few pieces most would be gathered, which saves nothing.
    if n_pieces <= 2 * count:
        best = scores.topk(count, -1)
        return best.values, best.indices
    n_whole = n_pieces * _PIECE
    by_piece = scores[:, :n_whole].view(-1, n_pieces, _PIECE)  # [R, P, piece]
    maxima = by_piece.amax(-1)  # [R, P]
    pieces = maxima.topk(count, -1, sorted=False).indices[:, :, None]  # [R, C, 1]
    index = pieces.expand(-1, -1, _PIECE)
    in_pieces = by_piece.gather(1, index).flatten(1)  # [R, C piece]
    # The incomplete last piece is searched in full.
    rest = scores[:, n_whole:]
    candidates = torch.cat([in_pieces, rest], 1)
    best = candidates.topk(count, -1)  # [R, C]

    device = scores.device
    offsets = torch.arange(_PIECE, device=device)
    piece_ids = (pieces * _PIECE + offsets).flatten(1)  # [R, C piece]
    rest_ids = torch.arange(n_whole, scores.shape[1], device=device)
    ids = torch.cat([piece_ids, rest_ids.expand(len(scores), -1)], 1)
    best_ids = ids.gather(1, best.indices)  # [R, C]
    return best.values, best_ids


def log_sum_exp(logits: Float[Tensor, "R V"]) -> Float[Tensor, "R 1"]:
    """Compute ``logsumexp`` of each row, on a CPU faster than the native one.

    In the dtype of the logits. Departure from the native one: a row of only minus infinity gives
    NaN, not minus infinity.
    """
    # The largest share is 1 / sum(exp(logit - largest logit)).
    parts = torch.split(logits, _ROWS)
    by_part = [part.softmax(-1).amax(-1, keepdim=True) for part in parts]
    largest_shares = torch.cat(by_part)  # [R, 1]
    largest_logits = logits.amax(-1, keepdim=True)
    return largest_logits - largest_shares.log()


@dataclass(frozen=True)
class Continuations:
    """Continuations of each slot, best first; all fields are ``[N, C]``."""

    log_p: NDArray[np.floating]
    """Natural log-probability of the whole hypothesis; minus infinity for none."""
    origins: NDArray[np.int64]
    """The hypothesis that each continues."""
    tokens: NDArray[np.int64]

    def take(self, order: NDArray[np.int64]) -> "Continuations":
        """Select continuations of each slot by their indices ``[N, beam]``."""
        return Continuations(
            np.take_along_axis(self.log_p, order, 1),
            np.take_along_axis(self.origins, order, 1),
            np.take_along_axis(self.tokens, order, 1),
        )


def best_continuations(
    logits: Float[Tensor, "R V"], partition: Float[Tensor, "R 1"], log_p: Float[Tensor, "N beam"]
) -> Continuations:
    """Select the best ``2 * beam`` continuations of each slot.

    ``partition`` is the log of the partition function of each row, ``log_p`` the log-probability of
    each hypothesis so far, in nats. Rows are ``N * beam``, slot by slot; forbidden tokens have a
    logit of minus infinity. C is ``2 * beam``, or ``beam * V`` where that is less.
    """
    n_slots, beam = log_p.shape
    width = min(2 * beam, logits.shape[1])
    values, token_ids = top(logits, width)  # [R, W] each
    log_p_of_tokens = (values - partition).view(n_slots, beam, width)
    continued = log_p_of_tokens + log_p[:, :, None]  # [N, beam, W]
    n_best = min(2 * beam, beam * width)
    best = continued.view(n_slots, -1).topk(n_best, -1)  # [N, C]
    by_slot = token_ids.view(n_slots, -1)  # [N, beam W]
    tokens = by_slot.gather(1, best.indices)
    origins = best.indices // width
    return Continuations(
        log_p=best.values.cpu().numpy(),
        origins=origins.cpu().numpy(),
        tokens=tokens.cpu().numpy(),
    )


Continue = Callable[[Tensor, Tensor, Tensor], Continuations]
"""Selects continuations from the arguments of ``best_continuations``."""


class DrawnContinuations:
    """Sample a continuation of each slot's only hypothesis; depends on the calls before.

    ``log_p`` is the model's, before temperature and truncation. Called as ``best_continuations``,
    with a beam of 1. Unused slots sample nothing.
    """

    def __init__(self, sampling: Sampling, seed: int, device: torch.device) -> None:
        self._sampling = sampling
        self._generator = torch.Generator(device=device).manual_seed(seed)

    def __call__(
        self,
        logits: Float[Tensor, "N V"],
        partition: Float[Tensor, "N 1"],
        log_p: Float[Tensor, "N 1"],
    ) -> Continuations:
        """Sample a token for each slot, ``[N, 1]``."""
        assert log_p.shape[1] == 1, "only one hypothesis of each slot is drawn"
        in_use = log_p[:, 0].isfinite()
        tokens = torch.zeros_like(log_p, dtype=torch.long)  # [N, 1]
        tokens[in_use, 0] = self._sampling.choose(logits[in_use], self._generator)
        continued = log_p + logits.gather(1, tokens) - partition
        continued = continued.masked_fill(~in_use[:, None], -torch.inf)
        return Continuations(
            log_p=continued.cpu().numpy(),
            origins=np.zeros(tokens.shape, dtype=np.int64),
            tokens=tokens.cpu().numpy(),
        )
