"""Corrupted pieces as an encoder and a decoder read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sublayer.config.span import NoiseSettings
from sublayer.data.arrays import Ints
from sublayer.data.counter_rng import Bits
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.packing import pairs_in_rows
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


def corrupted_batch(split: Split, parts: Sequence[Pieces], rule: CorruptionRule) -> PackedBatch:
    """Corrupt pieces, at least one, into a batch whose rows are in their order.

    A target that is too long loses what is beyond, and ends there.
    """
    examples: list[_Example] = []
    for pieces in parts:
        examples += _corrupt_all(split, pieces, rule)
    most = rule.target_length - 1
    sources = [np.append(each.input, rule.end_id) for each in examples]
    targets = [np.append(each.target[:most], rule.end_id) for each in examples]
    return pairs_in_rows(sources, targets, pad_id=rule.pad_id, first_id=rule.first_id)


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
