"""What hypotheses that grow together keep: each write stays where it is, and every hypothesis knows whose it reads."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

FIRST_LENGTH = 32
_NOBODY = -1


@dataclass
class Kept:
    """The keys and values of one executed attention to itself, ``[N, H, L, beam, K]`` each."""

    keys: Tensor
    values: Tensor


@dataclass
class Read:
    """The keys and values ``[N, H, S, K]`` that one executed cross entry made of the memory."""

    keys: Tensor
    values: Tensor


class BeamCache:
    """N slots, each of ``beam`` hypotheses of a sentence, that grow by a token at a time.

    Slot n has filled ``lengths[n]`` places. At each place all its hypotheses have written; when one of them goes on as
    two, nothing is copied: ``ancestors[n, j, l]`` is whose keys, values and token of place l hypothesis j reads. A
    sentence that is done leaves its slot to the next.
    """

    def __init__(self, beam: int, device: torch.device) -> None:
        self.beam, self.device = beam, device
        self.lengths = torch.zeros(0, dtype=torch.long, device=device)
        self.ancestors = torch.zeros(0, beam, FIRST_LENGTH, dtype=torch.long, device=device)
        self.inputs = torch.zeros(0, FIRST_LENGTH, beam, dtype=torch.long, device=device)
        """The token that each hypothesis read at each place."""
        self.hidden: Bool[Tensor, "N S"] = torch.zeros(0, 0, dtype=torch.bool, device=device)
        """Which places of the memory are padding."""
        self.kept: dict[tuple[int, int], Kept] = {}
        self.read: dict[tuple[int, int], Read] = {}
        self.window = 0
        """Places that any hypothesis of this step sees."""

    @property
    def n_slots(self) -> int:
        """Slots, in use or not."""
        return len(self.lengths)

    def positions(self) -> Int[Tensor, " R"]:
        """The position of each row's next token in its own hypothesis."""
        return self.lengths.repeat_interleave(self.beam)

    def begin(self, tokens: Int[Tensor, " R"]) -> Bool[Tensor, "N beam L beam"]:
        """Take the next tokens, and tell what each hypothesis may not see of what all hypotheses of its slot wrote."""
        self.window = int(self.lengths.max()) + 1
        if self.window > self.inputs.shape[1]:
            self._lengthen(2 * self.window)
        slots, beams = torch.arange(self.n_slots, device=self.device), torch.arange(self.beam, device=self.device)
        self.ancestors[slots, :, self.lengths] = beams
        self.inputs[slots, self.lengths] = tokens.view(-1, self.beam)
        return self.ancestors[:, :, : self.window, None] != beams

    def append(
        self, place: tuple[int, int], k: Float[Tensor, "N H beam K"], v: Float[Tensor, "N H beam K"]
    ) -> tuple[Float[Tensor, "N H LB K"], Float[Tensor, "N H LB K"]]:
        """Write the new keys and values of an attention, and give those of every place and hypothesis."""
        if place not in self.kept:
            shape = (k.shape[0], k.shape[1], self.inputs.shape[1], *k.shape[2:])
            self.kept[place] = Kept(k.new_zeros(shape), v.new_zeros(shape))
        kept = self.kept[place]
        slots = torch.arange(self.n_slots, device=self.device)
        kept.keys[slots, :, self.lengths], kept.values[slots, :, self.lengths] = k, v
        return kept.keys[:, :, : self.window].flatten(2, 3), kept.values[:, :, : self.window].flatten(2, 3)

    def written(self, slot: int, hypothesis: int) -> Int[Tensor, " L"]:
        """Give the tokens that a hypothesis has read, but for the first, with which all begin."""
        places = torch.arange(1, int(self.lengths[slot]) + 1, device=self.device)
        return self.inputs[slot, places, self.ancestors[slot, hypothesis, places]]

    def advance(self, origins: Int[Tensor, "N beam"], is_live: Bool[Tensor, " N"]) -> None:
        """Count the token that every attention has written; hypothesis j goes on with what ``origins[:, j]`` began.

        Slots that are not in use stay where they are.
        """
        seen = self.ancestors[:, :, : self.window]
        self.ancestors[:, :, : self.window] = seen.gather(1, origins[:, :, None].expand_as(seen))
        self.lengths = self.lengths + is_live

    def free(self, slots: Sequence[int]) -> None:
        """Let slots wait for another sentence."""
        chosen = torch.tensor(slots, device=self.device)
        self.lengths[chosen], self.ancestors[chosen] = 0, _NOBODY

    def admit(self, slots: Sequence[int], made: dict[tuple[int, int], Read], hidden: Bool[Tensor, "n S"]) -> None:
        """Let sentences begin in free slots, or in the first ones, with what cross entries made of their memories."""
        n, chosen = len(slots), torch.tensor(slots, device=self.device)
        if not self.n_slots:
            self.lengths = self.lengths.new_zeros(n)
            self.ancestors = self.ancestors.new_full((n, self.beam, FIRST_LENGTH), _NOBODY)
            self.inputs = self.inputs.new_zeros(n, FIRST_LENGTH, self.beam)
            self.hidden, self.read = hidden, made
            return
        width = hidden.shape[1]
        if width > self.hidden.shape[1]:
            self.hidden = _widened(self.hidden, width, dim=1, value=True)
            for read in self.read.values():
                read.keys, read.values = (_widened(each, width, dim=2) for each in (read.keys, read.values))
        self.hidden[chosen] = True
        self.hidden[chosen, :width] = hidden
        for place, read in self.read.items():
            read.keys[chosen, :, :width], read.values[chosen, :, :width] = made[place].keys, made[place].values

    def memory_width(self) -> int:
        """Count the places of the longest memory."""
        return int((~self.hidden).sum(1).max())

    def keep(self, slots: Sequence[int]) -> None:
        """Go on with some slots alone."""
        chosen = torch.tensor(slots, dtype=torch.long, device=self.device)
        self.lengths, self.hidden = self.lengths[chosen], self.hidden[chosen]
        self.ancestors, self.inputs = self.ancestors[chosen], self.inputs[chosen]
        held: list[Kept | Read] = [*self.kept.values(), *self.read.values()]
        for each in held:
            each.keys, each.values = each.keys[chosen], each.values[chosen]

    def _lengthen(self, length: int) -> None:
        self.inputs = _widened(self.inputs, length, dim=1)
        self.ancestors = _widened(self.ancestors, length, dim=2, value=_NOBODY)
        for kept in self.kept.values():
            kept.keys, kept.values = (_widened(each, length, dim=2) for each in (kept.keys, kept.values))


def _widened(tensor: Tensor, width: int, *, dim: int, value: bool | float = 0) -> Tensor:
    shape = list(tensor.shape)
    shape[dim] = width - shape[dim]
    return torch.cat([tensor, tensor.new_full(shape, value)], dim)
