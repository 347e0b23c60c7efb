"""Unrolled steps of decoders and LSTMs: one token of every row, in as few operations as possible.

Equal to a forward pass with a cache; tested over every axis of the model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.decode.packed_linear import (
    Branch,
    feed_forward,
    linear,
    pack_linear,
    residual,
    takes_vectors,
    unrolled_head,
)
from sublayer.model.blocks import AnySublayer, Attention, CrossAttention, Sublayer
from sublayer.model.cache import Cache, KeyValues
from sublayer.model.context import Layout, Rotations, StepKeys
from sublayer.model.kernels.attention import attend
from sublayer.model.positions import Positions
from sublayer.model.transformer import Decoder

_FIRST_ROOM = 64
"""Keys for which there is room at first."""


class StepBias:
    """Attention bias of a stack's newest query over all keys.

    It depends only on the distance between key and query, so that the bias over many keys ends with
    the bias over fewer.
    """

    def __init__(self, scheme: Positions) -> None:
        self._scheme = scheme
        self._room = 0
        self._bias: Tensor | None = None  # [1, H, 1, room]

    def of(
        self, n_positions: int, dtype: torch.dtype, device: torch.device
    ) -> Float[Tensor, "1 H 1 S"] | None:
        """Return the bias of a query at position S - 1, S = ``n_positions``; None for none."""
        if not self._scheme.biases_scores:
            return None
        if n_positions > self._room:
            self._room = max(_FIRST_ROOM, 2 * n_positions)
            keys = torch.arange(self._room, device=device)
            self._bias = self._scheme.score_bias(keys[-1:], keys, dtype)
        assert self._bias is not None, "a scheme biases scores where its row says so"
        return self._bias[..., -n_positions:]


_ALL = StepKeys()


@runtime_checkable
class StepKeyValues(Protocol):
    """Key/value cache of one attention that a step appends to and reads."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the cache."""

    def append_folded(
        self, k: Float[Tensor, "B H T K"], v: Float[Tensor, "B H T K"]
    ) -> tuple[Float[Tensor, "BH S K"], Float[Tensor, "BH S K"]]:
        """Append a token's keys and values; return all, rows and heads as one axis."""


class Stepper:
    """Append a token to every row of a cache without padding; return the next-token logits.

    Packed weights are copies: they are valid while the model's do not change. Without dropout.
    ``n_rows`` is the number of rows of every call; one row in float32 or float64 on a CPU is
    computed as a vector, not as a matrix of one row.
    """

    def __init__(self, model: Decoder, n_rows: int) -> None:
        self._model = model
        self._n_rows = n_rows
        self._is_vector = takes_vectors(model.embedding.weight, n_rows)
        self._step_bias = StepBias(model.positions)
        self._layers = model.stack.map_slots(self._sublayer)
        self._logits = unrolled_head(model, n_rows)

    def __call__(self, tokens: Int[Tensor, " B"], cache: Cache) -> Float[Tensor, "B V"]:
        """Take the step at position ``cache.length``, which grows by one.

        Raises ConfigError where the cache is full, which then stays as it is.
        """
        cache.check(1)
        position = cache.length
        # Filled, not copied: a copy would synchronise with the device at every token.
        positions = torch.full((1,), position, device=tokens.device)
        bias = self.bias_of(position + 1, cache.dtype, tokens.device)

        def key_values(layer: int, index: int) -> KeyValues | None:
            cached = cache.key_values(layer, index)
            assert cached is None or isinstance(cached, KeyValues), "a decoder alone has no others"
            return cached

        logits = self.compute(tokens, positions, bias, key_values)
        cache.advance(1, None)
        return logits

    def bias_of(
        self, n_positions: int, dtype: torch.dtype, device: torch.device
    ) -> Float[Tensor, "BH 1 S"] | None:
        """Return the attention bias of a token at the last of so many positions."""
        bias = self._step_bias.of(n_positions, dtype, device)
        return None if bias is None else bias.expand(self._n_rows, -1, -1, -1).flatten(0, 1)

    def compute(
        self,
        tokens: Int[Tensor, " B"],
        positions: Int[Tensor, " 1"],
        bias: Float[Tensor, "#BH 1 S"] | None,
        key_values: Callable[[int, int], StepKeyValues | None],
    ) -> Float[Tensor, "B V"]:
        """Compute the next-token logits at a position, and write keys and values.

        ``bias`` is added to scores; ``key_values`` returns the cache of an executed attention.
        """
        model = self._model
        x = model.embed_tokens(tokens[:, None], positions)[:, 0]  # [B, D]
        rotations = model.positions.rotations(positions, x.dtype)
        if self._is_vector:
            x = x[0]
        for layer, sublayers in enumerate(self._layers):
            if layer > 0:
                vectors = model.positions.vectors(layer, positions, x.dtype)
                x = x if vectors is None else x + vectors[0]
            for index, sublayer in enumerate(sublayers):
                x = sublayer(x, key_values(layer, index), rotations, bias)
        return self._logits(model.final_norm(x))

    def _sublayer(self, sublayer: AnySublayer) -> Branch:
        assert isinstance(sublayer, Sublayer), "an LSTM has a step of its own"
        function = sublayer.function
        assert not isinstance(function, CrossAttention), "a decoder alone has no cross entries"
        if isinstance(function, Attention):
            return residual(sublayer, self._attention(function))
        return residual(sublayer, feed_forward(function, self._n_rows))

    def _attention(self, attention: Attention) -> Branch:
        project = pack_linear(*attention.maps(), self._n_rows)
        output = linear(attention.output, self._n_rows)
        heads = attention.heads
        n_heads = sum(heads)
        d_head = attention.d_head
        scale = attention.scale

        def step(
            x: Tensor,
            key_values: StepKeyValues | None,
            rotations: Rotations | None,
            bias: Tensor | None,
        ) -> Tensor:
            assert key_values is not None, "every attention has keys and values in a cache"
            projected = project(x).view(-1, n_heads, 1, d_head)
            q, k, v = projected.split_with_sizes(heads, 1)  # [B, H or G, 1, K] each
            if rotations is not None:
                q = rotations.queries(q)
                k = rotations.keys(k)
            keys, values = key_values.append_folded(k, v)  # [B G, S, K] each
            # Scaled here: the product is contiguous, so that folding rows and heads copies nothing.
            queries = (q.to(key_values.dtype) * scale).view(-1, 1, d_head)  # [B H, 1, K]
            mixed = attend(queries, keys, values, _ALL, bias, scale=1.0)  # [B H, 1, K]
            by_row = mixed.to(x.dtype).view(*x.shape[:-1], -1)  # [B, H K]
            return output(by_row)

        return step


class LstmStepper:
    """Read one token of every row; return the next-token logits.

    The layers run as a forward pass of one token. A packed output matrix is a copy: it is valid
    while the model's weights do not change.
    """

    def __init__(self, model: Decoder, n_rows: int) -> None:
        self._model = model
        self._logits = unrolled_head(model, n_rows)
        self._is_vector = takes_vectors(model.embedding.weight, n_rows)

    def __call__(self, tokens: Int[Tensor, " B"], cache: Cache) -> Float[Tensor, "B V"]:
        """Take the step; the states of the cache change."""
        model = self._model
        rows = tokens[:, None]
        states = model.hidden(rows, Layout.causal(rows), cache=cache).final[:, 0]  # [B, D]
        cache.advance(1, None)
        return self._logits(states[0] if self._is_vector else states)


Compute = Callable[[], Tensor]
"""Computes from tensors that stay in their places, and writes to such."""
Record = Callable[[Compute], Compute]
"""Makes of a computation one that does the same again, and returns the same tensor each time."""


@dataclass(frozen=True)
class _Placed:
    """The first ``room`` keys and values of an attention, written at a position in a tensor."""

    key_values: KeyValues
    position: Int[Tensor, " 1"]
    room: int

    @property
    def dtype(self) -> torch.dtype:
        return self.key_values.dtype

    def append_folded(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.key_values.append_at(k, v, self.position, self.room)


class FixedStepper:
    """``Stepper`` for one cache, replayed from a CUDA graph.

    It attends to a fixed room of the cache, positions beyond the token masked. A full room is
    doubled and the step recorded again.
    """

    def __init__(self, model: Decoder, n_rows: int, cache: Cache, record: Record) -> None:
        self._stepper = Stepper(model, n_rows)
        self._cache = cache
        self._record = record
        device = cache.mask.device
        self._tokens = torch.zeros(n_rows, dtype=torch.long, device=device)
        self._position = torch.zeros(1, dtype=torch.long, device=device)
        self._room = 0
        self._step: Compute | None = None

    def __call__(self, tokens: Int[Tensor, " B"], cache: Cache) -> Float[Tensor, "B V"]:
        """Take the step in its cache; the next step overwrites the logits.

        Raises ConfigError where the cache is full.
        """
        assert cache is self._cache, "a recorded step reads one cache"
        cache.check(1)
        self._tokens.copy_(tokens)
        self._position.fill_(cache.length)
        if self._step is None or cache.length >= self._room:
            self._step = self._recorded(cache.length + 1)
        logits = self._step()
        cache.advance(1, None)
        return logits

    def _recorded(self, n_needed: int) -> Compute:
        self._room = _FIRST_ROOM
        while self._room < n_needed:
            self._room *= 2
        room = min(self._room, self._cache.max_len)
        keys = torch.arange(room, device=self._position.device)
        # The bias of the room's last position contains all others.
        table = self._stepper.bias_of(room, self._cache.dtype, keys.device)  # [B H, 1, S]

        def key_values(layer: int, index: int) -> _Placed | None:
            cached = self._cache.key_values(layer, index)
            return _Placed(cached, self._position, room) if isinstance(cached, KeyValues) else None

        def compute() -> Tensor:
            bias = torch.zeros(1, 1, room, dtype=self._cache.dtype, device=keys.device)
            if table is not None:
                places = (keys + (room - 1) - self._position).clamp_max(room - 1)
                bias = table.index_select(2, places)
            hidden = bias.masked_fill(keys > self._position, -torch.inf)
            return self._stepper.compute(self._tokens, self._position, hidden, key_values)

        return self._record(compute)


_N_WARMING = 2
_FEWEST_TOKENS = 64
"""A guess, not measured: recording takes as long as some dozens of steps."""


def pays(device: torch.device, n_tokens: int) -> bool:
    """Check whether recording a step pays off for so many tokens."""
    return device.type == "cuda" and n_tokens >= _FEWEST_TOKENS


def record(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Record a computation; return its replay, which overwrites and returns the same tensor.

    It must use the same memory in every call, never synchronise, and be idempotent: it runs before
    it is recorded. Source: the documentation of ``torch.cuda.CUDAGraph``.
    """
    current = torch.cuda.current_stream()
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(current)
    with torch.cuda.stream(aside):
        for _ in range(_N_WARMING):
            compute()
    current.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compute()

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay
