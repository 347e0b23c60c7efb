"""Sequences of packed rows, each in a row of its own."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from sublayer.data.packed_batch import PackedBatch


class Sequences(NamedTuple):
    """Where each sequence of packed rows stands in them, position by position."""

    places: Int[Tensor, "S L"]
    """In the rows one behind another; behind its end that of its first token."""
    is_there: Bool[Tensor, "S L"]
    """False behind its end."""

    @property
    def lengths(self) -> Int[Tensor, " S"]:
        """Count the tokens of each."""
        return self.is_there.sum(1)

    def of(self, rows: Shaped[Tensor, "R T *D"]) -> Shaped[Tensor, "S L *D"]:
        """Give each sequence a row of what packed rows have; behind its end it means nothing."""
        flat = rows.flatten(0, 1)
        return flat[self.places]


def find_sequences(batch: PackedBatch) -> Sequences:
    """Find the sequences of a batch, whose first token stands for each."""
    ids = batch.read.sequence_ids
    rows, firsts = batch.readouts.unbind(1)
    assert batch.n_most is not None and batch.longest is not None, "answers are spans"
    counts = torch.zeros(len(ids), batch.n_most, dtype=torch.int64, device=ids.device)
    counts.scatter_add_(1, ids.clamp_min(0), (ids >= 0).long())
    lengths = counts[rows, ids[rows, firsts]]
    columns = torch.arange(batch.longest, device=ids.device)
    is_there = columns < lengths[:, None]
    places = (rows * ids.shape[1] + firsts)[:, None] + columns * is_there
    return Sequences(places, is_there)
