"""Masked examples packed into rows, so that little is computed on padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from sublayer.data.arrays import Ints
from sublayer.data.batches import IGNORED
from sublayer.data.best_fit import best_fit
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.packing import PackedSequence, Unpacked, pack_examples


@dataclass(frozen=True)
class Example:
    """A masked pair of texts: token ids, the segment of each token, and what is predicted."""

    ids: Ints
    """As the model sees them, the special ones included: [T]."""
    segments: Ints
    """0 for tokens of the first text, 1 for those of the second: [T]."""
    positions: Ints
    """Those that are predicted, ascending: [P]."""
    targets: Ints
    """The ids that belong there: [P]."""
    label: int
    """1 where the second text does not follow the first, 0 where it does, -1: not predicted."""


def pack(examples: Sequence[Example], *, width: int, pad_id: int) -> PackedBatch:
    """Pack examples into rows of at most ``width`` tokens by best fit, the longest first.

    There is one at least, and none is longer than ``width``. Rows are padded with ``pad_id`` to the
    longest of them; those of a single example come first. What stands for an example is its first
    token.
    """
    unpacked = [_unpacked(example, number) for number, example in enumerate(examples)]
    return pack_examples(unpacked, width=width, written_width=0, pad_id=pad_id)


def packed_order(examples: Sequence[Example], *, width: int) -> list[int]:
    """List the indices of examples in the order in which ``pack`` puts them into its rows."""
    sizes = [(len(example.ids), 0) for example in examples]
    return list(chain.from_iterable(best_fit(sizes, (width, 0))))


def _unpacked(example: Example, number: int) -> Unpacked:
    targets = np.full(len(example.ids), IGNORED, dtype=np.int64)
    targets[example.positions] = example.targets
    sequence = PackedSequence(example.ids, example.segments, readout=0, targets=targets)
    return Unpacked([sequence], example.label, 1.0, number)
