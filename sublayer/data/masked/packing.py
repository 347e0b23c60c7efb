"""Masked examples packed into rows, so that little is computed on padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sublayer.data.arrays import Ints
from sublayer.data.batches import copy_to
from sublayer.data.best_fit import best_fit


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


@dataclass(frozen=True)
class MaskedBatch:
    """Rows of whole examples, one after another.

    Rows of a single example come first; of either kind the longest first. Predictions and examples
    are in order of rows. A slice of rows is a batch; it is as wide as its longest row.
    """

    tokens: Int[Tensor, "R T"]
    segments: Int[Tensor, "R T"]
    example_ids: Int[Tensor, "R T"]
    """Numbers that tell the examples of a row apart, from 0; -1 is padding."""
    lengths: tuple[int, ...]
    """Tokens of each row, padding not."""
    masked_positions: Int[Tensor, "P 2"]
    """Row and column of each prediction."""
    targets: Int[Tensor, " P"]
    """The ids that belong there."""
    cls_positions: Int[Tensor, "N 2"]
    """Row and column of each example's first token."""
    labels: Int[Tensor, " N"]
    """The examples' own: -1 where nothing is predicted."""

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def __getitem__(self, rows: slice) -> "MaskedBatch":
        start, stop, _ = rows.indices(len(self))
        lengths = self.lengths[rows]
        width = max(lengths)
        predictions = _between(self.masked_positions, start, stop)
        examples = _between(self.cls_positions, start, stop)
        offset = torch.tensor([start, 0])
        return MaskedBatch(
            tokens=self.tokens[rows, :width],
            segments=self.segments[rows, :width],
            example_ids=self.example_ids[rows, :width],
            lengths=lengths,
            masked_positions=self.masked_positions[predictions] - offset,
            targets=self.targets[predictions],
            cls_positions=self.cls_positions[examples] - offset,
            labels=self.labels[examples],
        )

    @property
    def mask(self) -> Bool[Tensor, "R T"] | None:
        """True at real tokens; None where all are."""
        n_columns = self.tokens.shape[1]
        if min(self.lengths) == n_columns:
            return None
        return self.example_ids >= 0

    @property
    def document_ids(self) -> Int[Tensor, "R T"] | None:
        """Numbers of the examples that attention must not cross; None where each row is one."""
        n_examples = self.labels.shape[0]
        if n_examples == len(self):
            return None
        return self.example_ids

    @property
    def n_tokens(self) -> int:
        """Count the real tokens."""
        return sum(self.lengths)

    def micro_rows(self, n_sequences: int, context: int) -> int:
        """Return ``n_sequences``: rows are filled up to the context."""
        return n_sequences

    def to(self, device: torch.device) -> "MaskedBatch":
        """Copy to a device, without waiting for the copies."""
        if device.type == "cpu":
            return self
        return MaskedBatch(
            tokens=copy_to(self.tokens, device),
            segments=copy_to(self.segments, device),
            example_ids=copy_to(self.example_ids, device),
            lengths=self.lengths,
            masked_positions=copy_to(self.masked_positions, device),
            targets=copy_to(self.targets, device),
            cls_positions=copy_to(self.cls_positions, device),
            labels=copy_to(self.labels, device),
        )


def pack(examples: Sequence[Example], *, width: int, pad_id: int) -> MaskedBatch:
    """Pack examples into rows of at most ``width`` tokens by best fit, the longest first.

    There is one at least, and none is longer than ``width``. Rows are padded with ``pad_id`` to the
    longest of them.
    """
    example_lengths = [len(example.ids) for example in examples]
    rows = _rows(example_lengths, width)
    lengths = []
    for row in rows:
        lengths_in_row = [example_lengths[index] for index in row]
        lengths.append(sum(lengths_in_row))
    shape = len(rows), max(lengths)
    tokens = np.full(shape, pad_id, dtype=np.int64)  # [R, T]
    segments = np.zeros(shape, dtype=np.int64)  # [R, T]
    example_ids = np.full(shape, -1, dtype=np.int64)  # [R, T]
    masked_positions = []
    targets = []
    cls_positions = []
    labels = []
    for row_number, row in enumerate(rows):
        start = 0
        for example_id, index in enumerate(row):
            example = examples[index]
            stop = start + example_lengths[index]
            tokens[row_number, start:stop] = example.ids
            segments[row_number, start:stop] = example.segments
            example_ids[row_number, start:stop] = example_id
            columns = example.positions + start
            row_numbers = np.full_like(columns, row_number)
            positions = np.stack([row_numbers, columns], axis=1)  # [predictions, 2]
            masked_positions.append(positions)
            targets.append(example.targets)
            cls_positions.append((row_number, start))
            labels.append(example.label)
            start = stop
    return MaskedBatch(
        tokens=torch.from_numpy(tokens),
        segments=torch.from_numpy(segments),
        example_ids=torch.from_numpy(example_ids),
        lengths=tuple(lengths),
        masked_positions=torch.from_numpy(np.concatenate(masked_positions)),
        targets=torch.from_numpy(np.concatenate(targets)),
        cls_positions=torch.tensor(cls_positions),
        labels=torch.tensor(labels),
    )


def packed_order(examples: Sequence[Example], *, width: int) -> list[int]:
    """List the indices of examples in the order in which ``pack`` puts them into its rows."""
    lengths = [len(example.ids) for example in examples]
    rows = _rows(lengths, width)
    return list(chain.from_iterable(rows))


def _between(positions: Tensor, start: int, stop: int) -> slice:
    """Return the slice of ``positions``, ascending by row, that lies in rows start to stop."""
    row_numbers = positions[:, 0].contiguous()
    wanted = torch.tensor([start, stop])
    bounds = torch.searchsorted(row_numbers, wanted)
    first, limit = bounds.tolist()
    return slice(first, limit)


def _rows(lengths: Sequence[int], width: int) -> list[list[int]]:
    return best_fit([(length, 0) for length in lengths], (width, 0))
