"""Pairs of texts as the model reads them: packed into rows, so that little is computed on padding."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from sublayer.data.batches import copy_to


@dataclass(frozen=True)
class Example:
    """One pair of texts: what the model sees, which segment each token is of, and what it is to find out.

    ``places`` are the positions that are predicted, ``targets`` the tokens that belong there. ``label`` is 1 where the
    second text does not follow the first, 0 where it does, -1 where that is not asked.
    """

    ids: NDArray[np.int64]
    segments: NDArray[np.int64]
    places: NDArray[np.int64]
    targets: NDArray[np.int64]
    label: int


@dataclass(frozen=True)
class PairBatch:
    """Rows of whole examples, one after another; those of a single example come first, the longest before the others.

    ``numbers`` tells the examples of a row apart (from 0; -1 is padding), ``lengths`` counts its tokens. ``masked``
    are the predicted places, row and column each, ``targets`` what belongs there; ``firsts`` is where examples begin,
    ``labels`` are theirs. Both are in order of rows. A slice of rows is a batch; it is as wide as its longest row.
    """

    tokens: Int[Tensor, "R T"]
    segments: Int[Tensor, "R T"]
    numbers: Int[Tensor, "R T"]
    lengths: tuple[int, ...]
    masked: Int[Tensor, "P 2"]
    targets: Int[Tensor, " P"]
    firsts: Int[Tensor, "N 2"]
    labels: Int[Tensor, " N"]

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def __getitem__(self, rows: slice) -> "PairBatch":
        start, stop, _ = rows.indices(len(self))
        lengths = self.lengths[rows]
        width = max(lengths)
        masked, firsts = _between(self.masked, start, stop), _between(self.firsts, start, stop)
        offset = torch.tensor([start, 0])
        return PairBatch(
            self.tokens[rows, :width],
            self.segments[rows, :width],
            self.numbers[rows, :width],
            lengths,
            self.masked[masked] - offset,
            self.targets[masked],
            self.firsts[firsts] - offset,
            self.labels[firsts],
        )

    @property
    def mask(self) -> Bool[Tensor, "R T"] | None:
        """Which tokens are real; None where all are."""
        return None if min(self.lengths) == self.tokens.shape[1] else self.numbers >= 0

    @property
    def document_ids(self) -> Int[Tensor, "R T"] | None:
        """What must be kept apart; None where each row is one example."""
        return None if self.labels.shape[0] == len(self) else self.numbers

    @property
    def n_tokens(self) -> int:
        """Count the real tokens."""
        return sum(self.lengths)

    def to(self, device: torch.device) -> "PairBatch":
        """Copy to a device, without waiting for the copies."""
        if device.type == "cpu":
            return self
        tensors = (self.masked, self.targets, self.firsts, self.labels)
        masked, targets, firsts, labels = (copy_to(each, device) for each in tensors)
        tokens, segments, numbers = (copy_to(each, device) for each in (self.tokens, self.segments, self.numbers))
        return PairBatch(tokens, segments, numbers, self.lengths, masked, targets, firsts, labels)


def pack(examples: Sequence[Example], *, width: int, pad_id: int) -> PairBatch:
    """Put examples into as few rows of at most ``width`` tokens as fitting the longest first gives."""
    rows = _fill([len(example.ids) for example in examples], width)
    lengths = [sum(len(examples[index].ids) for index in row) for row in rows]
    shape = len(rows), max(lengths)
    tokens = np.full(shape, pad_id, dtype=np.int64)
    segments, numbers = np.zeros(shape, dtype=np.int64), np.full(shape, -1, dtype=np.int64)
    masked, firsts, chosen = [], [], []
    for place, row in enumerate(rows):
        start = 0
        for number, index in enumerate(row):
            example = examples[index]
            stop = start + len(example.ids)
            tokens[place, start:stop], segments[place, start:stop] = example.ids, example.segments
            numbers[place, start:stop] = number
            masked.append(np.stack([np.full_like(example.places, place), example.places + start], axis=1))
            firsts.append((place, start))
            chosen.append(example)
            start = stop
    return PairBatch(
        torch.from_numpy(tokens),
        torch.from_numpy(segments),
        torch.from_numpy(numbers),
        tuple(lengths),
        torch.from_numpy(np.concatenate(masked)),
        torch.from_numpy(np.concatenate([example.targets for example in chosen])),
        torch.tensor(firsts),
        torch.tensor([example.label for example in chosen]),
    )


def _between(places: Tensor, start: int, stop: int) -> slice:
    bounds = torch.searchsorted(places[:, 0].contiguous(), torch.tensor([start, stop]))
    return slice(int(bounds[0]), int(bounds[1]))


def _fill(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Put each, the longest first, into the row where it leaves the least room.

    Gives rows of one, which need no mask inside, before the others; of either the fullest first.
    """
    rows: list[list[int]] = []
    rooms: list[tuple[int, int]] = []  # what is left in a row, and its number; ascending
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        found = bisect_left(rooms, (lengths[index], -1))
        room, row = rooms.pop(found) if found < len(rooms) else (width, len(rows))
        if row == len(rows):
            rows.append([])
        rows[row].append(index)
        insort(rooms, (room - lengths[index], row))
    return sorted(rows, key=lambda row: (len(row) > 1, -sum(lengths[index] for index in row)))
