"""What hypotheses that grow together keep: rows that are reordered, dropped and added, never computed again."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_FIRST_LENGTH = 64


@dataclass
class Kept:
    """The keys and values of one executed attention to itself, ``[L, R, H K]`` each, and their doubles.

    Time comes first: what the rows have in common so far is one piece, of which reordering copies whole rows.
    """

    keys: Tensor
    values: Tensor


@dataclass
class Read:
    """The keys ``[N, H, K, S]`` and values ``[N, H, S, K]`` that one executed cross entry made of the memory."""

    keys: Tensor
    values: Tensor


class BeamCache:
    """Rows of hypotheses: ``beam`` of each of N sentences, one after another, that all grow by a token at a time.

    A sentence that joined later begins at a later place, ``starts`` [N], and sees nothing before it.
    """

    def __init__(self, beam: int) -> None:
        self.beam = beam
        self.length = 0
        """Places filled: the next token goes here."""
        self.starts = torch.zeros(0, dtype=torch.long)
        self.kept: dict[tuple[int, int], Kept] = {}
        self.read: dict[tuple[int, int], Read] = {}
        self.hidden: Bool[Tensor, "N S"] | None = None
        """Which places of the memory are padding."""

    @property
    def n_sentences(self) -> int:
        """Sentences that are being translated."""
        return len(self.starts)

    @property
    def first(self) -> int:
        """The first place that any row still sees."""
        return int(self.starts.min()) if len(self.starts) else self.length

    def positions(self) -> Int[Tensor, " R"]:
        """The position of each row's next token in its own hypothesis."""
        return (self.length - self.starts).repeat_interleave(self.beam)

    def unseen(self) -> Bool[Tensor, "R L"] | None:
        """Which places are before a row's start; None where all rows began together."""
        first = self.first
        if bool((self.starts == first).all()):
            return None
        places = torch.arange(first, self.length + 1, device=self.starts.device)
        return places < self.starts.repeat_interleave(self.beam)[:, None]

    def append(
        self, place: tuple[int, int], k: Float[Tensor, "R HK"], v: Float[Tensor, "R HK"]
    ) -> tuple[Float[Tensor, "L R HK"], Float[Tensor, "L R HK"]]:
        """Write the new keys and values of an attention and give all that may be seen."""
        kept = self.kept.get(place)
        if kept is None:
            kept = self.kept[place] = Kept(*(new.new_zeros(self._room(0), *new.shape) for new in (k, v)))
        if kept.keys.shape[0] <= self.length or kept.keys.shape[1] != k.shape[0]:
            kept.keys, kept.values = (self._moved(each, k.shape[0]) for each in (kept.keys, kept.values))
        kept.keys[self.length], kept.values[self.length] = k, v
        seen = slice(self.first, self.length + 1)
        return kept.keys[seen], kept.values[seen]

    def advance(self) -> None:
        """Count the token that every attention has written."""
        self.length += 1

    def reorder(self, rows: Int[Tensor, " R"]) -> None:
        """Let row i continue what row ``rows[i]`` began; all rows stay with their sentences."""
        seen = slice(self.first, self.length)
        for kept in self.kept.values():
            for each in (kept.keys, kept.values):
                each[seen] = each[seen].index_select(1, rows)

    def keep(self, sentences: Int[Tensor, " n"]) -> None:
        """Go on with some sentences alone."""
        beams = torch.arange(self.beam, device=sentences.device)
        rows = (sentences[:, None] * self.beam + beams).flatten()
        self.starts = self.starts.index_select(0, sentences)
        for kept in self.kept.values():
            kept.keys, kept.values = (each.index_select(1, rows) for each in (kept.keys, kept.values))
        if self.hidden is None:
            return
        hidden = self.hidden.index_select(0, sentences)
        n_seen = int((~hidden).sum(1).max()) if len(sentences) else 0
        self.hidden = hidden[:, :n_seen]
        for read in self.read.values():
            read.keys = read.keys.index_select(0, sentences)[..., :n_seen]
            read.values = read.values.index_select(0, sentences)[:, :, :n_seen]

    def admit(self, made: dict[tuple[int, int], Read], hidden: Bool[Tensor, "n S"]) -> None:
        """Let new sentences begin at the next place, with what cross entries made of their memories."""
        if self.hidden is None or not self.n_sentences:
            self.length, self.kept = 0, {}
            self.starts = torch.zeros(len(hidden), dtype=torch.long, device=hidden.device)
            self.hidden, self.read = hidden, made
            return
        self.starts = torch.cat([self.starts, self.starts.new_full((len(hidden),), self.length)])
        width = max(self.hidden.shape[1], hidden.shape[1])
        self.hidden = torch.cat([_widened(each, width, dim=1, value=True) for each in (self.hidden, hidden)])
        for place, read in self.read.items():
            new = made[place]
            read.keys = torch.cat([_widened(each, width, dim=3) for each in (read.keys, new.keys)])
            read.values = torch.cat([_widened(each, width, dim=2) for each in (read.values, new.values)])

    def compact(self) -> None:
        """Drop places that no row sees any more."""
        first = self.first
        if first == 0:
            return
        for kept in self.kept.values():
            for each in (kept.keys, kept.values):
                each[: self.length - first] = each[first : self.length].clone()
        self.starts = self.starts - first
        self.length -= first

    def _room(self, length: int) -> int:
        return max(_FIRST_LENGTH, 2 * length, self.length + 1)

    def _moved(self, old: Tensor, n_rows: int) -> Tensor:
        """Copy to a longer buffer, or to one with rows for new sentences behind."""
        length = old.shape[0] if old.shape[0] > self.length else self._room(old.shape[0])
        new = old.new_zeros(length, n_rows, old.shape[2])
        n_kept = min(n_rows, old.shape[1])
        new[: self.length, :n_kept] = old[: self.length, :n_kept]
        return new


def _widened(tensor: Tensor, width: int, *, dim: int, value: bool | float = 0) -> Tensor:
    missing = width - tensor.shape[dim]
    if not missing:
        return tensor
    shape = list(tensor.shape)
    shape[dim] = missing
    return torch.cat([tensor, tensor.new_full(shape, value)], dim)
