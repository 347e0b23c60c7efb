"""The sequences of a packed batch, taken out of its rows again."""

from collections import namedtuple

Unpacked = namedtuple("Unpacked", "ids segments written targets")
"""A sequence of a row; ``written`` is what the decoder reads, or the ids themselves."""


def unpack(batch):
    found, read, side = [], batch.read, batch.written or batch.read
    for row in range(len(read)):
        for number in range(int(read.sequence_ids[row].max()) + 1):
            own = read.sequence_ids[row] == number
            on_side = side.sequence_ids[row] == number
            targets = None if batch.targets is None else batch.targets[row, on_side]
            parts = (read.tokens[row, own], batch.segments[row, own], side.tokens[row, on_side])
            found.append(Unpacked(*parts, targets))
    return found


def masked_rows(batch):
    """Give of every masked example its ids, segments, predicted positions, targets, and label."""
    found = []
    for sequence, label in zip(unpack(batch), batch.labels.tolist(), strict=True):
        assert sequence.targets is not None
        positions = (sequence.targets >= 0).nonzero()[:, 0]
        parts = (sequence.ids, sequence.segments, positions, sequence.targets[positions])
        found.append((*(tuple(part.tolist()) for part in parts), (int(label),)))
    return found
