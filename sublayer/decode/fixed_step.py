"""A decoding step all of whose tensors stay in their places, so that a CUDA graph can replay it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.decode.step import Stepper
from sublayer.model.build import Decoder
from sublayer.model.cache import Cache, KeyValues

Compute = Callable[[], Tensor]
"""Computes from tensors that stay in their places, and writes to such."""
Record = Callable[[Compute], Compute]
"""Makes of a computation one that does the same again, and returns the same tensor each time."""

_FIRST_ROOM = 64


@dataclass(frozen=True)
class _Placed:
    """Keys and values of one attention, the first ``room``, written where a tensor says."""

    key_values: KeyValues
    position: Int[Tensor, " 1"]
    room: int

    @property
    def dtype(self) -> torch.dtype:
        return self.key_values.dtype

    def append_folded(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.key_values.append_at(k, v, self.position, self.room)


class FixedStepper:
    """Do what ``Stepper`` does, for one cache, by a computation that is recorded.

    It reads a room of the cache, what stands behind the token hidden. Where the room is full, the
    step is recorded anew with one of twice as many tokens.
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
        """Take the step in the cache that it is for; the logits last until the next one.

        Raises ConfigError where the cache is full.
        """
        assert cache is self._cache, "what is recorded reads one cache"
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
        # What the last key of the room adds to scores holds what every other one does.
        table = self._stepper.bias_of(room, self._cache.dtype, keys.device)  # [B H, 1, S]

        def key_values(layer: int, index: int) -> _Placed | None:
            found = self._cache.key_values(layer, index)
            return _Placed(found, self._position, room) if isinstance(found, KeyValues) else None

        def compute() -> Tensor:
            bias = torch.zeros(1, 1, room, dtype=self._cache.dtype, device=keys.device)
            if table is not None:
                places = (keys + (room - 1) - self._position).clamp_max(room - 1)
                bias = table.index_select(2, places)
            hidden = bias.masked_fill(keys > self._position, -torch.inf)
            return self._stepper.compute(self._tokens, self._position, hidden, key_values)

        return self._record(compute)
