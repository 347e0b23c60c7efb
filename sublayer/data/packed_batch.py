"""Batches of packed examples: what stands in which row, and what counts."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sublayer.data.batches import IGNORED, copy_to
from sublayer.data.starts import sequence_starts


@dataclass(frozen=True)
class PackedSide:
    """Rows of whole sequences, one after another, that one stack of a model reads."""

    tokens: Int[Tensor, "R T"]
    sequence_ids: Int[Tensor, "R T"]
    """Numbers that tell the sequences of a row apart, from 0; -1 is padding."""
    lengths: tuple[int, ...]
    """Tokens of each row, padding not."""
    n_sequences: int
    """Of all rows."""
    starts: Int[Tensor, " N"] | None = None
    """Where sequences begin, as ``sequence_starts`` has them; None where no kernel asks."""

    def __len__(self) -> int:
        return self.tokens.shape[0]

    @property
    def mask(self) -> Bool[Tensor, "R T"] | None:
        """True at real tokens; None where all are."""
        if min(self.lengths) == self.tokens.shape[1]:
            return None
        return self.sequence_ids >= 0

    @property
    def document_ids(self) -> Int[Tensor, "R T"] | None:
        """Numbers of the sequences that attention must not cross; None where each row is one."""
        return None if self.n_sequences == len(self) else self.sequence_ids

    def rows(self, start: int, stop: int, n_sequences: int) -> "PackedSide":
        """Return some rows, which hold so many sequences; they are as wide as the longest."""
        lengths = self.lengths[start:stop]
        width = max(lengths)
        rows = slice(start, stop)
        return PackedSide(
            self.tokens[rows, :width], self.sequence_ids[rows, :width], lengths, n_sequences
        )

    def to(self, device: torch.device) -> "PackedSide":
        """Copy to a device, without waiting for the copies."""
        return replace(
            self,
            tokens=copy_to(self.tokens, device),
            sequence_ids=copy_to(self.sequence_ids, device),
            starts=None if self.starts is None else copy_to(self.starts, device),
        )


@dataclass(frozen=True)
class PackedBatch:
    """Examples in units: a row that holds several, or the rows of one that fills more.

    A slice of units is a batch. Sequences are numbered in the order of rows, as examples are.
    """

    read: PackedSide
    """What the model reads; of an encoder-decoder, its encoder."""
    segments: Int[Tensor, "R T"]
    unit_rows: tuple[int, ...]
    """The first row of each unit, and the number of rows."""
    unit_sequences: tuple[int, ...]
    """The first sequence of each unit, and the number of sequences."""
    unit_examples: tuple[int, ...]
    """The first example of each unit, and the number of examples."""
    readouts: Int[Tensor, "S 2"]
    """Row and column of the token that stands for each sequence."""
    owners: Int[Tensor, " S"]
    """The example that each sequence is of."""
    labels: Float[Tensor, " N"]
    """Of each example the index of its class or choice, or its number."""
    weights: Float[Tensor, " N"]
    """How often each example counts: 1, or 0 where it stands for none."""
    numbers: tuple[int, ...]
    """The places of the examples in what they were packed from."""
    spans: Int[Tensor, "S 2"] | None = None
    """Columns of the first and the last token of each sequence's answer."""
    written: PackedSide | None = None
    """What a decoder beside an encoder reads."""
    targets: Int[Tensor, "R U"] | None = None
    """What each position of ``written`` predicts, or of ``read`` where that is None; -1: nothing.
    """
    predicted: Int[Tensor, " P"] | None = None
    """Where ``targets`` predicts a token, in rows one behind another. It is found where it is not
    given, which a device other than the processor would have to be waited for."""
    n_most: int | None = None
    """Sequences of the row that has most, found in the same way."""
    n_most_owned: int | None = None
    """Sequences of the example that has most, found in the same way."""
    longest: int | None = None
    """Tokens of the longest sequence, where answers are spans, found in the same way."""

    def __post_init__(self) -> None:
        if self.n_most is None:
            object.__setattr__(self, "n_most", int(self.order.max()) + 1)
        if self.n_most_owned is None:
            object.__setattr__(self, "n_most_owned", int(torch.bincount(self.owners).max()))
        if self.spans is not None and self.longest is None:
            object.__setattr__(self, "longest", _longest(self.read.sequence_ids))
        if self.targets is not None and self.predicted is None:
            places = (self.targets.flatten() != IGNORED).nonzero()[:, 0]
            object.__setattr__(self, "predicted", places)

    def __len__(self) -> int:
        return len(self.unit_rows) - 1

    def __getitem__(self, units: slice) -> "PackedBatch":
        first, stop, _ = units.indices(len(self))
        rows = slice(self.unit_rows[first], self.unit_rows[stop])
        sequences = slice(self.unit_sequences[first], self.unit_sequences[stop])
        examples = slice(self.unit_examples[first], self.unit_examples[stop])
        n_sequences = sequences.stop - sequences.start
        read = self.read.rows(rows.start, rows.stop, n_sequences)
        written = self.written
        if written is not None:
            written = written.rows(rows.start, rows.stop, n_sequences)
        targets = self.targets
        if targets is not None:
            side = written or read
            targets = targets[rows, : side.tokens.shape[1]]

        def rebased(bounds: tuple[int, ...], base: int) -> tuple[int, ...]:
            return tuple(bound - base for bound in bounds[first : stop + 1])

        return PackedBatch(
            read=read,
            segments=self.segments[rows, : read.tokens.shape[1]],
            unit_rows=rebased(self.unit_rows, rows.start),
            unit_sequences=rebased(self.unit_sequences, sequences.start),
            unit_examples=rebased(self.unit_examples, examples.start),
            readouts=self.readouts[sequences] - torch.tensor([rows.start, 0]),
            owners=self.owners[sequences] - examples.start,
            labels=self.labels[examples],
            weights=self.weights[examples],
            numbers=self.numbers[examples],
            spans=None if self.spans is None else self.spans[sequences],
            written=written,
            targets=targets,
        )

    @property
    def places(self) -> Int[Tensor, " S"]:
        """Where the token that stands for each sequence is, in rows one behind another."""
        return self.readouts[:, 0] * self.read.tokens.shape[1] + self.readouts[:, 1]

    @property
    def order(self) -> Int[Tensor, " S"]:
        """The number of each sequence among those of its row, from 0."""
        return self.read.sequence_ids[self.readouts[:, 0], self.readouts[:, 1]]

    @property
    def n_predicted(self) -> int:
        """Count the tokens that are predicted."""
        return 0 if self.predicted is None else len(self.predicted)

    @property
    def width(self) -> int:
        """Tokens of the wider side, padding included."""
        n_written = 0 if self.written is None else self.written.tokens.shape[1]
        return max(self.read.tokens.shape[1], n_written)

    @property
    def predicted_ids(self) -> Int[Tensor, " P"]:
        """The tokens that are predicted, in the order of ``predicted``."""
        assert self.targets is not None and self.predicted is not None, "tokens are predicted"
        return self.targets.flatten().index_select(0, self.predicted)

    @property
    def n_examples(self) -> int:
        """Count the examples."""
        return len(self.numbers)

    @property
    def n_tokens(self) -> int:
        """Count the real tokens that are read and written."""
        n_written = 0 if self.written is None else sum(self.written.lengths)
        return sum(self.read.lengths) + n_written

    def micro_rows(self, n_sequences: int, context: int) -> int:
        """Count the units of a micro-batch with the tokens of ``n_sequences`` full rows."""
        most_rows = max(np.diff(self.unit_rows))
        return max(1, n_sequences * context // int(most_rows * self.width))

    def with_starts(self) -> "PackedBatch":
        """Find where sequences begin, for attention without padding."""
        if self.written is None:
            (read,) = sequence_starts(self.read.sequence_ids)
            return replace(self, read=replace(self.read, starts=read))
        read, written = sequence_starts(self.read.sequence_ids, self.written.sequence_ids)
        return replace(
            self,
            read=replace(self.read, starts=read),
            written=replace(self.written, starts=written),
        )

    def to(self, device: torch.device) -> "PackedBatch":
        """Copy to a device, without waiting for the copies, and with where sequences begin."""
        return self if device.type == "cpu" else self.with_starts()._copied(device)

    def _copied(self, device: torch.device) -> "PackedBatch":
        return replace(
            self,
            read=self.read.to(device),
            segments=copy_to(self.segments, device),
            readouts=copy_to(self.readouts, device),
            owners=copy_to(self.owners, device),
            labels=copy_to(self.labels, device),
            weights=copy_to(self.weights, device),
            spans=None if self.spans is None else copy_to(self.spans, device),
            written=None if self.written is None else self.written.to(device),
            targets=None if self.targets is None else copy_to(self.targets, device),
            predicted=None if self.predicted is None else copy_to(self.predicted, device),
        )


def _longest(sequence_ids: Int[Tensor, "R T"]) -> int:
    """Count the tokens of the longest sequence of all rows."""
    row_numbers = torch.arange(len(sequence_ids))[:, None] * (int(sequence_ids.max()) + 1)
    of_real = (sequence_ids + row_numbers)[sequence_ids >= 0]
    return int(torch.bincount(of_real).max())
