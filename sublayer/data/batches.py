"""Batches: windows of a text, and examples packed into rows, isolated, with little padding.

The global batch of windows is a pure function of (seed, step).
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sublayer.data.counter_rng import Epochs, Purpose, random_order, seeds, uniform
from sublayer.data.store import Split
from sublayer.errors import ConfigError
from sublayer.files.arrays import Ints

_FEWEST = 2
"""Slots of a row with one sequence: the sequence, and padding."""


def sequence_starts(
    *sides: Int[Tensor, "R _"],
) -> tuple[Int[Tensor, " N"], ...]:
    """Find the first token of each sequence in the concatenated rows of a side.

    A side holds sequence numbers, non-decreasing along a row, and -1 at right padding, which counts
    as a sequence. Sides have the same sequences in a row. All rows and sides have the same number
    of slots, the last one for padding; surplus slots are empty. The number of slots is a power of
    two, so that few batches differ in it. The last start is the number of tokens. int32, as kernels
    require.
    """
    numbered = []
    for ids in map(torch.Tensor.numpy, sides):
        begins = np.zeros(ids.shape, dtype=np.int64)
        begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
        # From 0 in each row, [R, T]; padding stays -1.
        numbered.append(np.where(ids >= 0, begins.cumsum(1), -1))
    most = max(int(numbers.max()) + 2 for numbers in numbered)
    n_places = max(_FEWEST, 1 << (most - 1).bit_length())
    starts = []
    for numbers in numbered:
        n_rows = len(numbers)
        places = np.arange(n_rows)[:, None] * n_places + numbers % n_places
        lengths = np.bincount(places.ravel(), minlength=n_rows * n_places)
        starts.append(np.concatenate([[0], lengths.cumsum()]).astype(np.int32))
    return tuple(map(torch.from_numpy, starts))


IGNORED = -1
"""Target of a position that does not count."""

Mode = Literal["random", "shuffled"]
Boundaries = Literal["ignore", "respect"]


Copied = TypeVar("Copied")


@runtime_checkable
class AnyBatch(Protocol):
    """Batch of training: rows, slices of which are micro-batches."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice) -> "AnyBatch": ...

    @property
    def n_sequences(self) -> int:
        """Count the sequences, which do not attend to each other; 0 where no example counts."""

    def micro_rows(self, n_sequences: int, context: int) -> int:
        """Count the rows of a micro-batch that holds ``n_sequences`` of ``context`` tokens.

        Where rows have other lengths than the context, as many tokens are meant.
        """

    def to(self, device: torch.device) -> "AnyBatch":
        """Copy to a device, asynchronously; on the CPU, return the batch itself."""


@runtime_checkable
class Batches(Protocol):
    """Batches of a training run: the global batch is a pure function of (seed, step)."""

    @property
    def lengths_vary(self) -> bool:
        """Return whether batches vary in shape other than by an incomplete last one of an epoch."""

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Any:
        """Return a process's share of the global batch of optimizer step ``step`` (0-based).

        ``rank`` is 0-based. The shares of all ``world`` ranks together are the same batch for any
        number of processes.
        """

    def n_tokens(self, step: int) -> int:
        """Count the tokens of a step's global batch, for the throughput."""

    def notes(self) -> list[str]:
        """Return notes on omitted parts of the split, a line each."""


@dataclass(frozen=True)
class Batch:
    """Windows and their targets."""

    tokens: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]
    """Next token of each position; -1 where a position does not count."""
    document_ids: Int[Tensor, "B T"] | None = None
    """Document numbers, whose borders attention and positions must not cross; None: they may."""
    further: Int[Tensor, "A B T"] | None = None
    """Targets two ahead, three ahead and so on, like ``targets``; None: one ahead only."""
    starts: Int[Tensor, " N"] | None = None
    """Starts of documents, as ``sequence_starts`` returns them; None where no kernel needs them."""

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def __getitem__(self, rows: slice) -> "Batch":
        document_ids, further = self.document_ids, self.further
        return Batch(
            self.tokens[rows],
            self.targets[rows],
            None if document_ids is None else document_ids[rows],
            None if further is None else further[:, rows],
        )

    def micro_rows(self, n_sequences: int, context: int) -> int:
        """Return ``n_sequences``: windows are all of one length."""
        return n_sequences

    @property
    def n_sequences(self) -> int:
        """Count the documents, or the windows where documents are not separated."""
        if self.document_ids is None:
            return len(self)
        return len(self) + int((self.document_ids[:, 1:] != self.document_ids[:, :-1]).sum())

    def with_starts(self) -> "Batch":
        """Find where documents begin, for attention without masks."""
        if self.document_ids is None:
            return self
        (starts,) = sequence_starts(self.document_ids)
        return replace(self, starts=starts)

    def to(self, device: torch.device) -> "Batch":
        """Copy to a device, asynchronously, with the starts of documents."""
        return self if device.type == "cpu" else copy_tensors(self.with_starts(), device)


class Windows:
    """Batches of windows of ``context`` tokens, ``batch_sequences`` per optimizer step.

    ``mode``:

    - ``random``: each window starts at a uniform position of the split; in a weighted mixture, a
      source is drawn by its weight, then a position within it.
    - ``shuffled``: consecutive windows that share no target, each once per epoch, in a new random
      order each epoch; a remainder of the split that is shorter than a window is never used.

    ``boundaries``: with ``respect`` no target lies in another document than its token, and batches
    have ``document_ids`` (where there is more than one document). ``n_ahead`` is the number of next
    tokens that each position predicts.

    Raises DataError if the split, or a weighted source of it, has no window; ConfigError for a
    weighted mixture in shuffled order.
    """

    lengths_vary: ClassVar[bool] = False

    def __init__(
        self,
        split: Split,
        *,
        context: int,
        batch_sequences: int,
        seed: int,
        mode: Mode = "random",
        boundaries: Boundaries = "ignore",
        n_ahead: int = 1,
    ) -> None:
        if mode == "shuffled" and split.weights is not None:
            raise ConfigError(
                "data.windows = shuffled contradicts the weights in data.path or data.corpus; "
                "use random"
            )
        self.split = split
        self.context = context
        self.batch_sequences = batch_sequences
        self._n_ahead = n_ahead
        self._seed = seed
        self._mode = mode
        self._respects = boundaries == "respect" and len(split.document_starts) > 1
        split.check_windows(context, n_ahead)
        # Of each drawn source [S]: first position, number of windows, cumulative share.
        bounds, weights = split.drawn
        self._firsts = bounds[:-1]
        self._n_starts = np.diff(bounds) - (context + n_ahead - 1)
        self._shares = np.cumsum(weights / weights.sum())
        self._orders = Epochs(
            lambda epoch: random_order(seed, Purpose.WINDOW_ORDER, epoch, self.n_windows)
        )

    @property
    def n_windows(self) -> int:
        """Number of windows per epoch: consecutive ones with all their targets."""
        return (len(self.split.ids) - self._n_ahead) // self.context

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """Return rows ``rank``, ``rank + world``, ... of the global batch of a step (0-based)."""
        starts = self.starts(step)[rank::world]  # [B]
        positions = starts[:, None] + np.arange(self.context + self._n_ahead)  # [B, T+A]
        window = np.asarray(self.split.ids[positions]).astype(np.int64)
        targets = self._ahead(window)  # [A, B, T]
        document_ids = None
        if self._respects:
            numbers = self.split.documents_at(positions)  # [B, T+A]
            documents = numbers[:, : self.context].astype(np.int64)  # [B, T]
            targets[self._ahead(numbers) != documents] = IGNORED
            document_ids = torch.from_numpy(documents)
        return Batch(
            tokens=torch.from_numpy(window[:, : self.context].copy()),
            targets=torch.from_numpy(targets[0]),
            document_ids=document_ids,
            further=torch.from_numpy(targets[1:]) if self._n_ahead > 1 else None,
        )

    def n_tokens(self, step: int) -> int:
        """Count the tokens of the global batch, all windows being full."""
        return self.batch_sequences * self.context

    def notes(self) -> list[str]:
        """Return no notes: only the end of an epoch is omitted."""
        return []

    def starts(self, step: int) -> Ints:
        """Return the first position of each window of the global batch, ``[B]``, row by row."""
        if self._mode == "random":
            bits = seeds(self._seed, Purpose.WINDOWS, step, 2 * self.batch_sequences)
            source_bits, position_bits = bits.reshape(-1, 2).T  # [B] each
            sources = np.searchsorted(self._shares, uniform(source_bits), side="right")
            # The shares may add up to a little less than 1.
            sources = np.minimum(sources, len(self._shares) - 1)
            offsets = position_bits % self._n_starts[sources].astype(np.uint64)
            return self._firsts[sources] + offsets.astype(np.int64)
        rows = step * self.batch_sequences + np.arange(self.batch_sequences)
        return self._orders.take(rows, self.n_windows) * self.context

    def _ahead(self, window: Ints) -> Ints:
        """Stack the tokens 1, 2, ... positions ahead of the context's: [A, B, T]."""
        offsets = range(1, self._n_ahead + 1)
        return np.stack([window[:, offset : offset + self.context] for offset in offsets])


def copy_tensors(batch: Copied, device: torch.device) -> Copied:
    """Copy the tensors of a dataclass to a device, asynchronously."""
    copies = {}
    instance: Any = batch
    for field in fields(instance):
        tensor = getattr(instance, field.name)
        if isinstance(tensor, Tensor):
            # Only copies of contiguous pinned memory overlap with computation on a GPU.
            if device.type == "cuda":
                tensor = tensor.contiguous().pin_memory()
            copies[field.name] = tensor.to(device, non_blocking=True)
    copied: Copied = replace(instance, **copies)
    return copied


def n_that_fit(sizes: Ints, n_pieces: Ints, n_rows: int, width: int) -> int:
    """Count the leading items that best fit packs into ``n_rows`` rows of ``width``.

    The count is at least 1. An item larger than a row takes as many rows as it has pieces.
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
    """Pack items into rows, longest first, by best fit on both sides.

    ``sizes`` are the tokens of an item on both sides, ``room`` those of a row. An item larger than
    a row gets a separate row. Rows of one item, which need no mask, precede the others; the fullest
    come first.
    """
    rows: list[list[int]] = []
    # Of each row its remaining room on the first side, its number, its room on the second; sorted.
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
    """Rows of concatenated sequences: the input of one stack."""

    tokens: Int[Tensor, "R T"]
    sequence_ids: Int[Tensor, "R T"]
    """Number of each token's sequence in its row, from 0; -1 at padding."""
    lengths: tuple[int, ...]
    """Number of tokens of each row, without padding."""
    n_sequences: int
    """Number of sequences of all rows."""
    starts: Int[Tensor, " N"] | None = None
    """Starts of sequences, as ``sequence_starts`` returns them; None where no kernel needs them."""

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
        """Sequence numbers, whose borders attention must not cross; None where each row is one."""
        return None if self.n_sequences == len(self) else self.sequence_ids

    def rows(self, start: int, stop: int, n_sequences: int) -> "PackedSide":
        """Return rows ``start`` to ``stop``, of ``n_sequences`` in all, trimmed to the longest."""
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
    """Batch of units: a unit is a row of several examples, or the rows of one example.

    A slice of units is a batch. Sequences and examples are numbered in the order of rows.
    """

    read: PackedSide
    """Input of the model; for an encoder-decoder, of its encoder."""
    segments: Int[Tensor, "R T"]
    unit_rows: tuple[int, ...]
    """First row of each unit, and the number of rows."""
    unit_sequences: tuple[int, ...]
    """First sequence of each unit, and the number of sequences."""
    unit_examples: tuple[int, ...]
    """First example of each unit, and the number of examples."""
    readouts: Int[Tensor, "S 2"]
    """Row and column of the token that represents each sequence."""
    owners: Int[Tensor, " S"]
    """Example of each sequence."""
    labels: Float[Tensor, " N"]
    """Label of each example: the index of its class or choice, or a real number."""
    weights: Float[Tensor, " N"]
    """Weight of each example: 1, or 0 for one that only fills up the batch."""
    numbers: tuple[int, ...]
    """Index of each example in the collection that was packed."""
    spans: Int[Tensor, "S 2"] | None = None
    """Columns of the first and the last token of each sequence's answer."""
    written: PackedSide | None = None
    """Input of the decoder of an encoder-decoder."""
    targets: Int[Tensor, "R U"] | None = None
    """Target of each position of ``written``, or of ``read`` where that is None; -1: none."""
    predicted: Int[Tensor, " P"] | None = None
    """Positions of ``targets`` with a token, in the concatenated rows. Computed if None, as are the
    three below: on the CPU, since a GPU would have to be synchronized."""
    n_most: int | None = None
    """Largest number of sequences in a row."""
    n_most_owned: int | None = None
    """Largest number of sequences of an example."""
    longest: int | None = None
    """Length of the longest sequence in tokens, where answers are spans."""

    def __post_init__(self) -> None:
        if self.n_most is None:
            object.__setattr__(self, "n_most", int(self.order.max()) + 1)
        if self.n_most_owned is None:
            object.__setattr__(self, "n_most_owned", int(torch.bincount(self.owners).max()))
        if self.spans is not None and self.longest is None:
            # Number of tokens of each sequence, by its row and its number.
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
        """Positions of the sequences' representative tokens in the concatenated rows."""
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
        """Width of the wider side in tokens, padding included."""
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
        """Count the sequences of each side; 0 where no example counts."""
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
    """Position of the token that represents the sequence."""
    span: tuple[int, int] = (0, 0)
    written: Ints | None = None
    """Target of a decoder, its end included; None without one."""
    targets: Ints | None = None
    """Target of each token of ``ids``, -1 for none; None where nothing is predicted."""


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

    If the sequences of an example do not fit one row, each gets its own. An encoder-decoder's
    targets are packed into rows of at most ``written_width``, aligned with the rows of inputs; the
    decoder reads ``first_id`` first. No sequence is longer than its width. ``filling`` is the room
    that each example takes in a row, counted for both sides together. ``by_written`` groups rows of
    similar target lengths, so that micro-batches have little padding.
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
    # Only an example that is alone in its row can exceed the width.
    fits = [n_read <= width and n_written <= written_width for n_read, n_written in sizes]
    return _laid_out(examples, units, fits, pad_id=pad_id, first_id=first_id)


def pairs_in_rows(
    sources: Sequence[Ints], targets: Sequence[Ints], *, pad_id: int, first_id: int
) -> PackedBatch:
    """Build a batch with a row for each pair, in order; there is at least one.

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
    """Lay out units of examples, by index, in rows: several for an example that does not fit."""
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
        # The decoder reads the first id, then its target shifted by one.
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
    """Concatenate the parts of each row, and pad the rows to ``width``."""
    filled = np.full((len(rows), width), filling, dtype=np.int64)
    for number, row in enumerate(rows):
        joined = np.concatenate(row)
        filled[number, : len(joined)] = joined
    return torch.from_numpy(filled)
