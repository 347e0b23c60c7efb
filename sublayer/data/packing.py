"""Examples packed into rows: each as if it were alone, and little computed on padding."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sublayer.data.arrays import Ints
from sublayer.data.batches import IGNORED, copy_to


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
        width = self.read.tokens.shape[1]
        return max(1, n_sequences * context // int(most_rows * width))

    def to(self, device: torch.device) -> "PackedBatch":
        """Copy to a device, without waiting for the copies."""
        if device.type == "cpu":
            return self
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
        )


class PackedSequence(NamedTuple):
    """A sequence to be packed."""

    ids: Ints
    segments: Ints
    readout: int
    """The place of the token that stands for it."""
    span: tuple[int, int] = (0, 0)
    written: Ints | None = None
    """What a decoder writes, its end included; None where there is none."""
    targets: Ints | None = None
    """What each token of ``ids`` predicts, -1 nothing; None where there is nothing to predict."""


class Unpacked(NamedTuple):
    """An example to be packed."""

    sequences: Sequence[PackedSequence]
    label: float
    weight: float
    number: int


def pack_examples(
    examples: Sequence[Unpacked], *, width: int, written_width: int, pad_id: int, first_id: int = 0
) -> PackedBatch:
    """Pack examples into rows of at most ``width`` tokens by best fit, the longest first.

    An example whose sequences do not stand in one row has a row for each of them. What a decoder
    beside an encoder writes is packed into rows of at most ``written_width``, beside what it
    belongs to; it reads ``first_id`` first. No sequence is longer than either.
    """
    sizes = []
    for example in examples:
        n_read = sum(len(each.ids) for each in example.sequences)
        n_written = 0
        for each in example.sequences:
            n_written += 0 if each.written is None else len(each.written)
        sizes.append((n_read, n_written))
    units = best_fit(sizes, (width, written_width))
    rows: list[list[PackedSequence]] = []
    unit_rows, unit_sequences, unit_examples = [0], [0], [0]
    ordered: list[Unpacked] = []
    owners: list[int] = []
    for unit in units:
        members = [examples[index] for index in unit]
        n_read, n_written = sizes[unit[0]]
        if len(members) == 1 and (n_read > width or n_written > written_width):
            rows += [[each] for each in members[0].sequences]
        else:
            rows.append([each for member in members for each in member.sequences])
        for member in members:
            owners += [len(ordered)] * len(member.sequences)
            ordered.append(member)
        unit_rows.append(len(rows))
        unit_sequences.append(len(owners))
        unit_examples.append(len(ordered))
    read, segments = _read_side(rows, pad_id)
    readouts, spans = [], []
    for number, row in enumerate(rows):
        start = 0
        for each in row:
            readouts.append((number, start + each.readout))
            spans.append((start + each.span[0], start + each.span[1]))
            start += len(each.ids)
    written, targets = _written_side(rows, pad_id, first_id)
    if written is None:
        targets = _own_targets(rows, read.tokens.shape[1])
    return PackedBatch(
        read=read,
        segments=segments,
        unit_rows=tuple(unit_rows),
        unit_sequences=tuple(unit_sequences),
        unit_examples=tuple(unit_examples),
        readouts=torch.tensor(readouts),
        owners=torch.tensor(owners),
        labels=torch.tensor([each.label for each in ordered], dtype=torch.float64),
        weights=torch.tensor([each.weight for each in ordered], dtype=torch.float64),
        numbers=tuple(each.number for each in ordered),
        spans=torch.tensor(spans),
        written=written,
        targets=targets,
    )


def _read_side(
    rows: Sequence[Sequence[PackedSequence]], pad_id: int
) -> tuple[PackedSide, Int[Tensor, "R T"]]:
    side = _side([[each.ids for each in row] for row in rows], pad_id)
    segments = np.zeros(side.tokens.shape, dtype=np.int64)
    for number, row in enumerate(rows):
        joined = np.concatenate([each.segments for each in row])
        segments[number, : len(joined)] = joined
    return side, torch.from_numpy(segments)


def _written_side(
    rows: Sequence[Sequence[PackedSequence]], pad_id: int, first_id: int
) -> tuple[PackedSide | None, Tensor | None]:
    if rows[0][0].written is None:
        return None, None
    written = [[each.written for each in row if each.written is not None] for row in rows]
    # A decoder reads the first id and then what it wrote, each one position later.
    shifted = [[np.concatenate([[first_id], ids[:-1]]) for ids in row] for row in written]
    side = _side(shifted, pad_id)
    targets = np.full(side.tokens.shape, IGNORED, dtype=np.int64)
    for number, row in enumerate(written):
        joined = np.concatenate(row)
        targets[number, : len(joined)] = joined
    return side, torch.from_numpy(targets)


def _own_targets(rows: Sequence[Sequence[PackedSequence]], width: int) -> Tensor | None:
    if rows[0][0].targets is None:
        return None
    targets = np.full((len(rows), width), IGNORED, dtype=np.int64)
    for number, row in enumerate(rows):
        joined = np.concatenate([each.targets for each in row if each.targets is not None])
        targets[number, : len(joined)] = joined
    return torch.from_numpy(targets)


def _side(rows: Sequence[Sequence[Ints]], pad_id: int) -> PackedSide:
    lengths = [sum(map(len, row)) for row in rows]
    shape = len(rows), max(lengths)
    tokens = np.full(shape, pad_id, dtype=np.int64)
    sequence_ids = np.full(shape, -1, dtype=np.int64)
    n_sequences = 0
    for number, row in enumerate(rows):
        tokens[number, : lengths[number]] = np.concatenate(row)
        sequence_ids[number, : lengths[number]] = np.repeat(
            np.arange(len(row)), [len(ids) for ids in row]
        )
        n_sequences += len(row)
    return PackedSide(
        torch.from_numpy(tokens), torch.from_numpy(sequence_ids), tuple(lengths), n_sequences
    )


def best_fit(sizes: Sequence[tuple[int, int]], room: tuple[int, int]) -> list[list[int]]:
    """Put each item, the longest first, into the row where it leaves the least room on either side.

    ``sizes`` are tokens of both sides. An item that is larger than a row has one to itself. Rows of
    one item, which need no mask inside, stand before the others; of either kind the fullest first.
    """
    rows: list[list[int]] = []
    # The room left in a row on the first side, its number, and the room on the second; ascending.
    rooms: list[tuple[int, int, int]] = []
    longest_first = sorted(range(len(sizes)), key=lambda index: (-sizes[index][0], index))
    for index in longest_first:
        read, written = sizes[index]
        place = bisect_left(rooms, (read, -1, -1))
        while place < len(rooms) and rooms[place][2] < written:
            place += 1
        if place < len(rooms):
            left, row, left_written = rooms.pop(place)
        else:
            left, left_written = room
            row = len(rows)
            rows.append([])
        rows[row].append(index)
        if left > read:
            insort(rooms, (left - read, row, left_written - written))

    def order(row: list[int]) -> tuple[bool, int]:
        return len(row) > 1, -sum(sizes[index][0] for index in row)

    return sorted(rows, key=order)
