"""Examples packed into rows, isolated from each other, with little padding."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sublayer.data.arrays import Ints
from sublayer.data.batches import IGNORED, copy_tensors, sequence_starts


def n_that_fit(sizes: Ints, n_pieces: Ints, n_rows: int, width: int) -> int:
    """Count the leading items that best fit packs into ``n_rows`` rows of ``width``.

    At least one. An item larger than a row has as many rows as pieces.
    """
    is_larger = sizes > width
    taken = np.cumsum(np.where(is_larger, n_pieces * width, sizes))
    n_items = max(1, int(np.searchsorted(taken, n_rows * width, side="right")))
    while n_items > 1:
        larger = is_larger[:n_items]
        needed = int(n_pieces[:n_items][larger].sum())
        rest = [(size, 0) for size in sizes[:n_items][~larger].tolist()]
        needed += len(best_fit(rest, (width, 0)))
        if needed <= n_rows:
            break
        n_items = max(1, min(n_items - 1, n_items * n_rows // needed))
    return n_items


def best_fit(sizes: Sequence[tuple[int, int]], room: tuple[int, int]) -> list[list[int]]:
    """Pack items, longest first, by best fit on both sides.

    ``sizes`` are tokens of both sides. An item larger than a row has a separate row. Rows of one
    item, which need no mask, precede the others; the fullest come first.
    """
    rows: list[list[int]] = []
    # Remaining room of a row on the first side, its number, room on the second; ascending.
    rooms: list[tuple[int, int, int]] = []
    longest_first = sorted(range(len(sizes)), key=lambda index: (-sizes[index][0], index))
    for index in longest_first:
        read, written = sizes[index]
        position = bisect_left(rooms, (read, -1, -1))
        while position < len(rooms) and rooms[position][2] < written:
            position += 1
        if position < len(rooms):
            left, row, left_written = rooms.pop(position)
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


@dataclass(frozen=True)
class PackedSide:
    """Rows of concatenated sequences, input of one stack."""

    tokens: Int[Tensor, "R T"]
    sequence_ids: Int[Tensor, "R T"]
    """Numbers that tell the sequences of a row apart, from 0; -1 is padding."""
    lengths: tuple[int, ...]
    """Tokens of each row, padding not."""
    n_sequences: int
    """Of all rows."""
    starts: Int[Tensor, " N"] | None = None
    """Starts of sequences, as ``sequence_starts`` has them; None where no kernel asks."""

    def __len__(self) -> int:
        return self.tokens.shape[0]

    @property
    def mask(self) -> Bool[Tensor, "R T"] | None:
        """True at real tokens; None without padding."""
        if min(self.lengths) == self.tokens.shape[1]:
            return None
        return self.sequence_ids >= 0

    @property
    def document_ids(self) -> Int[Tensor, "R T"] | None:
        """Numbers of the sequences that attention must not cross; None where each row is one."""
        return None if self.n_sequences == len(self) else self.sequence_ids

    def rows(self, start: int, stop: int, n_sequences: int) -> "PackedSide":
        """Return rows of ``n_sequences`` sequences, trimmed to the longest."""
        lengths = self.lengths[start:stop]
        width = max(lengths)
        rows = slice(start, stop)
        return PackedSide(
            self.tokens[rows, :width], self.sequence_ids[rows, :width], lengths, n_sequences
        )

    def to(self, device: torch.device) -> "PackedSide":
        """Copy to a device, asynchronously."""
        return copy_tensors(self, device)


@dataclass(frozen=True)
class PackedBatch:
    """Batch of units: a row of several examples, or the rows of one.

    A slice of units is a batch. Sequences are numbered in the order of rows, as examples are.
    """

    read: PackedSide
    """Input of the model; of an encoder-decoder, its encoder."""
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
    """Weight of each example: 1, or 0 where it stands for none."""
    numbers: tuple[int, ...]
    """The places of the examples in the collection that they were packed from."""
    spans: Int[Tensor, "S 2"] | None = None
    """Columns of the first and the last token of each sequence's answer."""
    written: PackedSide | None = None
    """Input of a decoder beside an encoder."""
    targets: Int[Tensor, "R U"] | None = None
    """Target of each position of ``written``, or of ``read`` where that is None; -1: none."""
    predicted: Int[Tensor, " P"] | None = None
    """Positions at which ``targets`` has a token, in rows one behind another. They are computed
    where not given, which a device other than the processor would have to be waited for."""
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
            # Tokens of each sequence, counted by its row and its number.
            ids = self.read.sequence_ids
            numbers = ids + torch.arange(len(ids))[:, None] * (int(ids.max()) + 1)
            object.__setattr__(self, "longest", int(torch.bincount(numbers[ids >= 0]).max()))
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
        written = self.written and self.written.rows(rows.start, rows.stop, n_sequences)
        width = (written or read).tokens.shape[1]

        def rebased(bounds: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(bound - bounds[first] for bound in bounds[first : stop + 1])

        return PackedBatch(
            read=read,
            segments=self.segments[rows, : read.tokens.shape[1]],
            unit_rows=rebased(self.unit_rows),
            unit_sequences=rebased(self.unit_sequences),
            unit_examples=rebased(self.unit_examples),
            readouts=self.readouts[sequences] - torch.tensor([rows.start, 0]),
            owners=self.owners[sequences] - examples.start,
            labels=self.labels[examples],
            weights=self.weights[examples],
            numbers=self.numbers[examples],
            spans=None if self.spans is None else self.spans[sequences],
            written=written,
            targets=None if self.targets is None else self.targets[rows, :width],
        )

    @property
    def places(self) -> Int[Tensor, " S"]:
        """Positions of the sequences' representative tokens in concatenated rows."""
        return self.readouts[:, 0] * self.read.tokens.shape[1] + self.readouts[:, 1]

    @property
    def order(self) -> Int[Tensor, " S"]:
        """Number of each sequence within its row, from 0."""
        return self.read.sequence_ids[self.readouts[:, 0], self.readouts[:, 1]]

    @property
    def n_predicted(self) -> int:
        """Count the predicted tokens."""
        return 0 if self.predicted is None else len(self.predicted)

    @property
    def width(self) -> int:
        """Tokens of the wider side, padding included."""
        n_written = 0 if self.written is None else self.written.tokens.shape[1]
        return max(self.read.tokens.shape[1], n_written)

    @property
    def predicted_ids(self) -> Int[Tensor, " P"]:
        """Predicted tokens, in the order of ``predicted``."""
        assert self.targets is not None and self.predicted is not None, "tokens are predicted"
        return self.targets.flatten().index_select(0, self.predicted)

    @property
    def n_examples(self) -> int:
        """Count the examples."""
        return len(self.numbers)

    @property
    def n_sequences(self) -> int:
        """Count the sequences of each side; none where no example counts."""
        return self.read.n_sequences if self.weights.any() else 0

    @property
    def n_tokens(self) -> int:
        """Count the real input and target tokens."""
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
        """Copy to a device, asynchronously, with the starts of sequences."""
        if device.type == "cpu":
            return self
        batch = copy_tensors(self.with_starts(), device)
        written = None if batch.written is None else batch.written.to(device)
        return replace(batch, read=batch.read.to(device), written=written)


class PackedSequence(NamedTuple):
    """A sequence to be packed."""

    ids: Ints
    segments: Ints
    readout: int
    """The place of the token that stands for it."""
    span: tuple[int, int] = (0, 0)
    written: Ints | None = None
    """Target of a decoder, its end included; None where there is none."""
    targets: Ints | None = None
    """Target of each token of ``ids``, -1 for none; None where there is nothing to predict."""


class Unpacked(NamedTuple):
    """An example to be packed."""

    sequences: Sequence[PackedSequence]
    label: float
    weight: float
    number: int


def pack_examples(
    examples: Sequence[Unpacked],
    *,
    width: int,
    written_width: int,
    pad_id: int,
    first_id: int = 0,
    filling: Sequence[int] | None = None,
    by_written: bool = False,
) -> PackedBatch:
    """Pack examples into rows of at most ``width`` tokens by best fit, the longest first.

    An example whose sequences do not fit one row has a row for each. An encoder-decoder's target is
    packed into rows of at most ``written_width``, aligned with its input's; the decoder reads
    ``first_id`` first. No sequence is longer than either. ``filling``: room of each example in a
    row, counted for both sides at once. ``by_written`` groups rows of similar target lengths, so
    that micro-batches have little padding.
    """
    sizes = [
        (
            sum(len(part.ids) for part in example.sequences),
            sum(len(part.written) for part in example.sequences if part.written is not None),
        )
        for example in examples
    ]
    counted = sizes if filling is None else [(size, 0) for size in filling]
    units = best_fit(counted, (width, written_width))
    if by_written:
        units.sort(key=lambda unit: (len(unit) > 1, -sum(sizes[index][1] for index in unit)))
    # Only a single example of a row can exceed its width.
    fits = [n_read <= width and n_written <= written_width for n_read, n_written in sizes]
    return _laid_out(examples, units, fits, pad_id=pad_id, first_id=first_id)


def pairs_in_rows(
    sources: Sequence[Ints], targets: Sequence[Ints], *, pad_id: int, first_id: int
) -> PackedBatch:
    """Build a row for each pair, of at least one, in order.

    Sources and targets include their ends; a decoder reads ``first_id`` first.
    """
    examples = [
        Unpacked([PackedSequence(source, np.zeros_like(source), 0, written=target)], 0.0, 1.0, n)
        for n, (source, target) in enumerate(zip(sources, targets, strict=True))
    ]
    units = [[number] for number in range(len(examples))]
    return _laid_out(examples, units, [True] * len(units), pad_id=pad_id, first_id=first_id)


def _laid_out(
    examples: Sequence[Unpacked],
    units: Sequence[Sequence[int]],
    fits: Sequence[bool],
    *,
    pad_id: int,
    first_id: int,
) -> PackedBatch:
    """Lay out units of examples, by index, in rows: several for one that does not fit."""
    rows: list[list[PackedSequence]] = []
    unit_rows, unit_sequences, unit_examples = [0], [0], [0]
    ordered: list[Unpacked] = []
    owners: list[int] = []
    for unit in units:
        members = [examples[index] for index in unit]
        if all(fits[index] for index in unit):
            rows.append([sequence for member in members for sequence in member.sequences])
        else:
            rows += [[sequence] for member in members for sequence in member.sequences]
        for member in members:
            owners += [len(ordered)] * len(member.sequences)
            ordered.append(member)
        unit_rows.append(len(rows))
        unit_sequences.append(len(owners))
        unit_examples.append(len(ordered))
    read = _side([[sequence.ids for sequence in row] for row in rows], pad_id)
    width = read.tokens.shape[1]
    segments = _filled([[sequence.segments for sequence in row] for row in rows], width, 0)
    readouts, spans = [], []
    for number, row in enumerate(rows):
        start = 0
        for sequence in row:
            readouts.append((number, start + sequence.readout))
            spans.append((start + sequence.span[0], start + sequence.span[1]))
            start += len(sequence.ids)
    written = targets = None
    if rows[0][0].written is not None:
        texts = [[part.written for part in row if part.written is not None] for row in rows]
        # A decoder reads the first id, then its target, shifted by one.
        shifted = [[np.concatenate([[first_id], ids[:-1]]) for ids in row] for row in texts]
        written = _side(shifted, pad_id)
        targets = _filled(texts, written.tokens.shape[1], IGNORED)
    elif rows[0][0].targets is not None:
        predicted = [[part.targets for part in row if part.targets is not None] for row in rows]
        targets = _filled(predicted, width, IGNORED)
    return PackedBatch(
        read=read,
        segments=segments,
        unit_rows=tuple(unit_rows),
        unit_sequences=tuple(unit_sequences),
        unit_examples=tuple(unit_examples),
        readouts=torch.tensor(readouts),
        owners=torch.tensor(owners),
        labels=torch.tensor([example.label for example in ordered], dtype=torch.float64),
        weights=torch.tensor([example.weight for example in ordered], dtype=torch.float64),
        numbers=tuple(example.number for example in ordered),
        spans=torch.tensor(spans),
        written=written,
        targets=targets,
    )


def _side(rows: Sequence[Sequence[Ints]], pad_id: int) -> PackedSide:
    lengths = tuple(sum(map(len, row)) for row in rows)
    numbers = [[np.full(len(ids), number) for number, ids in enumerate(row)] for row in rows]
    tokens, sequence_ids = _filled(rows, max(lengths), pad_id), _filled(numbers, max(lengths), -1)
    return PackedSide(tokens, sequence_ids, lengths, sum(map(len, rows)))


def _filled(rows: Sequence[Sequence[Ints]], width: int, filling: int) -> Int[Tensor, "R T"]:
    """Concatenate parts of rows, and pad the rows."""
    filled = np.full((len(rows), width), filling, dtype=np.int64)
    for number, row in enumerate(rows):
        joined = np.concatenate(row)
        filled[number, : len(joined)] = joined
    return torch.from_numpy(filled)
