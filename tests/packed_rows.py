"""The sequences of a packed batch, taken out of its rows again."""

from typing import NamedTuple

from torch import Tensor

from sublayer.data.packed_batch import PackedBatch


class Unpacked(NamedTuple):
    """A sequence as it stands in its row."""

    ids: Tensor
    segments: Tensor
    written: Tensor
    """What the decoder reads; the ids themselves where there is none beside."""
    targets: Tensor | None


def unpack(batch: PackedBatch) -> list[Unpacked]:
    """Take out every sequence of a batch, in order."""
    found = []
    read, side = batch.read, batch.written or batch.read
    for row in range(len(read)):
        for number in range(int(read.sequence_ids[row].max()) + 1):
            own = read.sequence_ids[row] == number
            on_side = side.sequence_ids[row] == number
            found.append(
                Unpacked(
                    read.tokens[row, own],
                    batch.segments[row, own],
                    side.tokens[row, on_side],
                    None if batch.targets is None else batch.targets[row, on_side],
                )
            )
    return found


MaskedRow = tuple[tuple[int, ...], ...]


def masked_rows(batch: PackedBatch) -> list[MaskedRow]:
    """Give of every masked example its ids, segments, predicted positions, targets, and label."""
    found = []
    for sequence, label in zip(unpack(batch), batch.labels.tolist(), strict=True):
        assert sequence.targets is not None
        positions = (sequence.targets >= 0).nonzero()[:, 0]
        parts = (sequence.ids, sequence.segments, positions, sequence.targets[positions])
        found.append((*(tuple(part.tolist()) for part in parts), (int(label),)))
    return found
