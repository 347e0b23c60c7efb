"""Corrupted pieces as an encoder and a decoder read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from sublayer.config.objectives.noise import NoiseSettings
from sublayer.data.arrays import Ints
from sublayer.data.batches import IGNORED
from sublayer.data.counter_rng import Bits
from sublayer.data.parallel.batches import Seq2SeqBatch
from sublayer.data.span.corruption import Rows, corrupt
from sublayer.data.span.masks import Draw
from sublayer.data.span.pieces import Cuts, Joined, read_pieces
from sublayer.data.split import Split


@dataclass(frozen=True)
class CorruptionRule:
    """How pieces become inputs and targets."""

    draw: Draw
    settings: NoiseSettings
    context: int
    """Tokens that an input has at most, its end included."""
    raw_length: int
    """Tokens of a piece."""
    target_length: int
    """Tokens that a target has at most, its end included."""
    sentinels: tuple[int, ...]
    """Their ids, in the order in which they are used; none where the noise takes none."""
    end_id: int
    pad_id: int
    first_id: int
    """What the decoder reads first."""


class Pieces(NamedTuple):
    """Pieces of joined documents, some of which may be shorter than the others."""

    joined: Joined
    cuts: Cuts
    bits: Bits
    """The seed of each one's corruption, ``[N]``."""

    def select(self, numbers: Ints) -> "Pieces":
        """Return some of the pieces, by their numbers."""
        begins, lengths = self.cuts
        return Pieces(self.joined, Cuts(begins[numbers], lengths[numbers]), self.bits[numbers])


class _Example(NamedTuple):
    """The ids of an input and of its target, without their ends."""

    input: Ints
    target: Ints


def corrupted_batch(split: Split, parts: Sequence[Pieces], rule: CorruptionRule) -> Seq2SeqBatch:
    """Corrupt pieces, at least one, into a batch whose rows are in their order.

    A target that is too long loses what is beyond, and ends there.
    """
    examples: list[_Example] = []
    for pieces in parts:
        examples += _corrupt_all(split, pieces, rule)
    most = rule.target_length - 1
    source, source_lengths = _pad([each.input for each in examples], rule.end_id, rule.pad_id)
    targets = [each.target[:most] for each in examples]
    labels, target_lengths = _pad(targets, rule.end_id, IGNORED)
    target = np.full_like(labels, rule.first_id)
    # The decoder reads what it wrote a position before.
    before = labels[:, :-1]
    target[:, 1:] = np.where(before == IGNORED, rule.pad_id, before)
    mask = np.arange(source.shape[1]) < source_lengths[:, None]
    return Seq2SeqBatch(
        source=torch.from_numpy(source),
        source_mask=None if mask.all() else torch.from_numpy(mask),
        target=torch.from_numpy(target),
        labels=torch.from_numpy(labels),
        n_targets=int(target_lengths.sum()),
    )


def _corrupt_all(split: Split, pieces: Pieces, rule: CorruptionRule) -> list[_Example]:
    begins, lengths = pieces.cuts
    found: dict[int, _Example] = {}
    # Pieces of one length at a time: nearly all are equally long.
    for length in np.unique(lengths).tolist():
        numbers = np.flatnonzero(lengths == length)
        ids = read_pieces(split, pieces.joined, begins[numbers], length)
        mask = rule.draw(pieces.bits[numbers], length, rule.settings)
        corrupted = corrupt(ids, mask, rule.sentinels)
        inputs = _divide(corrupted.inputs)
        targets = _divide(corrupted.targets)
        for number, source, target in zip(numbers.tolist(), inputs, targets, strict=True):
            found[number] = _Example(source, target)
    return [found[number] for number in range(len(begins))]


def _divide(rows: Rows) -> list[Ints]:
    bounds = np.cumsum(rows.lengths)[:-1]
    return np.split(rows.ids, bounds)


def _pad(rows: Sequence[Ints], end_id: int, filler: int) -> tuple[Ints, Ints]:
    """Put rows and their ends below each other, ``[B, T]``; return their lengths too, ``[B]``."""
    lengths = np.array([len(row) + 1 for row in rows])
    padded = np.full((len(rows), lengths.max()), filler, dtype=np.int64)
    is_text = np.arange(padded.shape[1]) < lengths[:, None] - 1
    padded[is_text] = np.concatenate(rows)
    padded[np.arange(len(rows)), lengths - 1] = end_id
    return padded, lengths
