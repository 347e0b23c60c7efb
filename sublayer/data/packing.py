"""Examples packed into rows: each as if it were alone, and little computed on padding."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from sublayer.data.arrays import Ints
from sublayer.data.batches import IGNORED
from sublayer.data.best_fit import best_fit
from sublayer.data.packed_batch import PackedBatch, PackedSide


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

    An example whose sequences do not stand in one row has a row for each of them. What a decoder
    beside an encoder writes is packed into rows of at most ``written_width``, beside what it
    belongs to; it reads ``first_id`` first. No sequence is longer than either. ``filling`` is what
    each example takes of a row where that is counted for both sides at once. ``by_written``: rows
    that write about as much stand together, so that parts of the batch have little padding.
    """
    sizes = []
    for example in examples:
        n_read = sum(len(each.ids) for each in example.sequences)
        n_written = 0
        for each in example.sequences:
            n_written += 0 if each.written is None else len(each.written)
        sizes.append((n_read, n_written))
    counted = sizes if filling is None else [(size, 0) for size in filling]
    units = best_fit(counted, (width, written_width))
    if by_written:
        units.sort(key=lambda unit: (len(unit) > 1, -sum(sizes[index][1] for index in unit)))
    # Only what is alone can have more than rows hold.
    fits = [n_read <= width and n_written <= written_width for n_read, n_written in sizes]
    return _laid_out(examples, units, fits, pad_id=pad_id, first_id=first_id)


def pairs_in_rows(
    sources: Sequence[Ints], targets: Sequence[Ints], *, pad_id: int, first_id: int
) -> PackedBatch:
    """Give each pair, of at least one, a row of its own, in their order.

    A source is read and a target written, both with their ends; a decoder reads ``first_id`` first.
    """
    examples = []
    for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
        sequence = PackedSequence(source, np.zeros_like(source), 0, written=target)
        examples.append(Unpacked([sequence], 0.0, 1.0, number))
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
    """Lay units of examples, by their indices, out in rows: one that does not fit in several."""
    rows: list[list[PackedSequence]] = []
    unit_rows, unit_sequences, unit_examples = [0], [0], [0]
    ordered: list[Unpacked] = []
    owners: list[int] = []
    for unit in units:
        members = [examples[index] for index in unit]
        if all(fits[index] for index in unit):
            rows.append([each for member in members for each in member.sequences])
        else:
            rows += [[each] for member in members for each in member.sequences]
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
