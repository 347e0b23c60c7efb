"""Beam-search cache that never copies: hypotheses hold the indices of their ancestors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

FIRST_LENGTH = 32
"""Positions for which there is room at first."""
_NOBODY = -1
"""The ancestor at positions that a hypothesis has not reached."""

_Place = tuple[Tensor | slice, slice, Tensor | int]
SublayerIndex = tuple[int, int]
"""A sub-layer by its block and its index there."""


@dataclass
class SelfKeyValues:
    """The keys and values of one executed attention to itself, ``[N, H, L, beam, K]`` each."""

    keys: Tensor
    values: Tensor


@dataclass
class CrossKeyValues:
    """The keys and values ``[N, H, S, K]`` that one executed cross entry made of the memory."""

    keys: Tensor
    values: Tensor


class BeamCache:
    """N slots, each of ``beam`` hypotheses of a sentence, that grow by a token at a time.

    Slot n has filled ``lengths[n]`` positions. At each all its hypotheses have written; when one of
    them continues as two, nothing is copied: ``ancestors[n, j, l]`` is whose keys, values and token
    of position l hypothesis j reads. A sentence that is done leaves its slot to the next.

    While all sentences are equally long, as those that began together are, a step writes to one
    position of all slots, and with one hypothesis nothing is hidden from it.
    """

    def __init__(self, beam: int, device: torch.device) -> None:
        self.beam = beam
        self.device = device
        self.lengths: list[int] = []
        """Positions that each slot has filled; 0 where it is not in use."""
        self._is_live: list[bool] = []
        """Which slots are in use."""
        self.ancestors = torch.zeros(0, beam, FIRST_LENGTH, dtype=torch.long, device=device)
        self.inputs = torch.zeros(0, FIRST_LENGTH, beam, dtype=torch.long, device=device)
        """The token that each hypothesis read at each position."""
        self.hidden: Bool[Tensor, "N S"] = torch.zeros(0, 0, dtype=torch.bool, device=device)
        """Which tokens of the memory are padding."""
        self.own: dict[SublayerIndex, SelfKeyValues] = {}
        self.cross: dict[SublayerIndex, CrossKeyValues] = {}
        self.window = 0
        """Positions that any hypothesis of this step sees."""
        self.common: int | None = None
        """The length of all slots in use at this step; None where they differ."""
        self._place: _Place = slice(None), slice(None), 0
        """Where this step writes."""
        self._memory: tuple[int, Bool[Tensor, "N S"] | None] | None = None
        """What ``memory`` returns, until slots change."""

    @property
    def n_slots(self) -> int:
        """Slots, in use or not."""
        return len(self.lengths)

    def positions(self) -> Int[Tensor, " R"]:
        """Return the position of each row's next token in its own hypothesis.

        Rows are ``n_slots * beam``, slot by slot.
        """
        lengths = torch.tensor(self.lengths, device=self.device)
        return lengths.repeat_interleave(self.beam)

    def key_positions(self) -> Int[Tensor, " LB"]:
        """Return the position of each key of this step's window: one of every hypothesis.

        In the order of ``append``'s keys. The same for all slots, whatever their lengths.
        """
        positions = torch.arange(self.window, device=self.device)
        return positions.repeat_interleave(self.beam)

    def begin(self, tokens: Int[Tensor, " R"]) -> Bool[Tensor, "N beam L beam"] | None:
        """Take the next tokens; return which keys of its slot are hidden from each hypothesis.

        Hidden is what others than its ancestors wrote, and what lies behind a slot's own length;
        None hides nothing. The axes are slot, hypothesis that reads, position, hypothesis that
        wrote; ``L`` is the window of this step, which is set here: the step's ``append`` and
        ``key_positions`` go by it.
        """
        self.window = max(self.lengths) + 1
        room = self.inputs.shape[1]
        if self.window > room:
            # Twice, so that what is copied in all stays within a few times the final size.
            self._lengthen(2 * self.window)
        of_live = zip(self.lengths, self._is_live, strict=True)
        in_use = {length for length, is_live in of_live if is_live}
        self.common = in_use.pop() if len(in_use) == 1 else None
        self._place = self._newest()
        beams = torch.arange(self.beam, device=self.device)
        self.inputs.transpose(1, 2)[self._place] = tokens.view(-1, self.beam)
        self.ancestors[self._place] = beams
        if self.beam == 1 and self.common is not None:
            return None
        return self.ancestors[:, :, : self.window, None] != beams

    def _newest(self) -> _Place:
        """Return the index of this step's position in ``[slots, any, positions, ...]``."""
        every = slice(None)
        if self.common is not None:
            return every, every, self.common
        slots = torch.arange(self.n_slots, device=self.device)
        return slots, every, torch.tensor(self.lengths, device=self.device)

    def append(
        self,
        index: SublayerIndex,
        k: Float[Tensor, "N H beam K"],
        v: Float[Tensor, "N H beam K"],
    ) -> tuple[Float[Tensor, "N H LB K"], Float[Tensor, "N H LB K"]]:
        """Write an attention's new keys and values; return those of every hypothesis so far.

        Those returned are ordered by position, and within each by hypothesis, as ``begin`` says
        which of them are hidden. Room in the type and on the device of ``k`` is made at the first
        call for an index.
        """
        if index not in self.own:
            n_slots, n_heads, beam, d_head = k.shape
            n_positions = self.inputs.shape[1]
            shape = (n_slots, n_heads, n_positions, beam, d_head)
            keys = k.new_zeros(shape)
            values = v.new_zeros(shape)
            self.own[index] = SelfKeyValues(keys, values)
        own = self.own[index]
        own.keys[self._place] = k
        own.values[self._place] = v
        keys = own.keys[:, :, : self.window].flatten(2, 3)  # [N, H, L beam, K]
        values = own.values[:, :, : self.window].flatten(2, 3)
        return keys, values

    def written(self, slot: int, hypothesis: int) -> Int[Tensor, " L"]:
        """Return the tokens that a hypothesis has read, but for the first, with which all begin.

        Called after ``begin`` and before ``advance``: the token at ``lengths[slot]``, which this
        step has read, is the last of them.
        """
        positions = torch.arange(1, self.lengths[slot] + 1, device=self.device)
        ancestors = self.ancestors[slot, hypothesis, positions]
        return self.inputs[slot, positions, ancestors]

    def advance(self, origins: Int[Tensor, "N beam"]) -> None:
        """Count the token that was written; hypothesis j continues from ``origins[:, j]``.

        Origins are hypotheses of the same slot, 0 to ``beam - 1``. Slots that are not in use stay
        at their length.
        """
        if self.beam > 1:
            seen = self.ancestors[:, :, : self.window]
            index = origins[:, :, None].expand_as(seen)
            self.ancestors[:, :, : self.window] = seen.gather(1, index)
        for slot, is_live in enumerate(self._is_live):
            self.lengths[slot] += is_live

    def free(self, slots: Sequence[int]) -> None:
        """Empty slots for other sentences.

        Their keys and values stay in memory, hidden, until others are written over them.
        """
        for slot in slots:
            self.lengths[slot] = 0
            self._is_live[slot] = False

    def admit(
        self,
        slots: Sequence[int],
        cross: dict[SublayerIndex, CrossKeyValues],
        hidden: Bool[Tensor, "n S"],
    ) -> None:
        """Start sentences in free slots, or in the first ones, with their cross keys and values.

        ``cross`` has an entry of n rows for each cross entry of the model; ``hidden`` is True at
        the padding of a memory. Where there are no slots yet, as many are made as are named, and
        ``cross`` and ``hidden`` are kept, not copied; later a wider memory widens that of all.
        """
        self._memory = None
        if not self.n_slots:
            self._start(len(slots), cross, hidden)
            return
        for slot in slots:
            self._is_live[slot] = True
        width = hidden.shape[1]
        if width > self.hidden.shape[1]:
            self._widen_memory(width)
        chosen = torch.tensor(slots, device=self.device)
        self.ancestors[chosen] = _NOBODY
        # What is behind a memory that is shorter than others is hidden.
        self.hidden[chosen] = True
        self.hidden[chosen, :width] = hidden
        for index, held in self.cross.items():
            held.keys[chosen, :, :width] = cross[index].keys
            held.values[chosen, :, :width] = cross[index].values

    def _start(
        self, n: int, cross: dict[SublayerIndex, CrossKeyValues], hidden: Bool[Tensor, "n S"]
    ) -> None:
        self.lengths = [0] * n
        self._is_live = [True] * n
        self.ancestors = self.ancestors.new_full((n, self.beam, FIRST_LENGTH), _NOBODY)
        self.inputs = self.inputs.new_zeros(n, FIRST_LENGTH, self.beam)
        self.hidden = hidden
        self.cross = cross

    def _widen_memory(self, width: int) -> None:
        self.hidden = _widened(self.hidden, width, dim=1, value=True)
        for cross in self.cross.values():
            cross.keys = _widened(cross.keys, width, dim=2)
            cross.values = _widened(cross.values, width, dim=2)

    def memory(self) -> tuple[int, Bool[Tensor, "N S"] | None]:
        """Return the tokens of the longest memory, S, and which of each slot's are padding.

        What is wider is padding of every slot. None: there is no padding.
        """
        if self._memory is None:
            n_real = (~self.hidden).sum(1)
            width = int(n_real.max())
            hidden = self.hidden[:, :width]
            self._memory = width, hidden if bool(hidden.any()) else None
        return self._memory

    def keep(self, slots: Sequence[int]) -> None:
        """Keep some slots alone, in the order given; slot ``slots[i]`` becomes slot i."""
        chosen = torch.tensor(slots, dtype=torch.long, device=self.device)
        self._memory = None
        self.lengths = [self.lengths[slot] for slot in slots]
        self._is_live = [self._is_live[slot] for slot in slots]
        self.hidden = self.hidden[chosen]
        self.ancestors = self.ancestors[chosen]
        self.inputs = self.inputs[chosen]
        # One attention at a time, so that what was is free before the next is copied.
        for own in self.own.values():
            own.keys = own.keys[chosen]
            own.values = own.values[chosen]
        for cross in self.cross.values():
            cross.keys = cross.keys[chosen]
            cross.values = cross.values[chosen]

    def _lengthen(self, length: int) -> None:
        self.inputs = _widened(self.inputs, length, dim=1)
        self.ancestors = _widened(self.ancestors, length, dim=2, value=_NOBODY)
        for own in self.own.values():
            own.keys = _widened(own.keys, length, dim=2)
            own.values = _widened(own.values, length, dim=2)


def _widened(tensor: Tensor, width: int, *, dim: int, value: bool | float = 0) -> Tensor:
    """Extend an axis to ``width``, with ``value``."""
    shape = list(tensor.shape)
    shape[dim] = width - shape[dim]
    filling = tensor.new_full(shape, value)
    return torch.cat([tensor, filling], dim)
