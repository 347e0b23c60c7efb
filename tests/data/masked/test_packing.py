"""Examples are packed whole, each once, and slices of the rows are batches of the same examples."""

from collections.abc import Sequence

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.masked.packing import Example, pack
from sublayer.data.packed_batch import PackedBatch

PAD_ID = 0

Row = tuple[tuple[int, ...], ...]


def example_of(length: int, *, first_id: int, label: int = 0) -> Example:
    """An example whose tokens, places and targets no other has."""
    ids = first_id + np.arange(length)
    segments = (np.arange(length) >= (length + 1) // 2).astype(np.int64)
    positions = np.arange(length % 3, length, 3)
    return Example(ids, segments, positions, 10_000 + ids[positions], label)


def examples_of(lengths: Sequence[int]) -> list[Example]:
    firsts = 1 + np.cumsum([0, *lengths])
    return [
        example_of(length, first_id=int(first), label=number % 3 - 1)
        for number, (length, first) in enumerate(zip(lengths, firsts[:-1], strict=True))
    ]


def plain(example: Example) -> Row:
    parts = (example.ids, example.segments, example.positions, example.targets)
    return (*(tuple(part.tolist()) for part in parts), (example.label,))


def places_of(batch: PackedBatch) -> torch.Tensor:
    """Row and column of what is predicted: [P, 2]."""
    assert batch.predicted is not None
    width = batch.read.tokens.shape[1]
    return torch.stack([batch.predicted // width, batch.predicted % width], dim=1)


def unpacked(batch: PackedBatch) -> list[Row]:
    """Read the examples of a batch back, in its order."""
    found = []
    ids, places = batch.read.sequence_ids, places_of(batch)
    for (row, first), label in zip(batch.readouts.tolist(), batch.labels.tolist(), strict=True):
        is_own = ids[row] == ids[row, first]
        where = torch.nonzero(is_own)[:, 0]
        assert where.tolist() == list(range(first, first + len(where))), (
            "the tokens of an example stand together"
        )
        is_asked = (places[:, 0] == row) & is_own[places[:, 1]]
        found.append(
            (
                tuple(batch.read.tokens[row, where].tolist()),
                tuple(batch.segments[row, where].tolist()),
                tuple((places[is_asked, 1] - first).tolist()),
                tuple(batch.predicted_ids[is_asked].tolist()),
                (int(label),),
            )
        )
    return found


@given(lengths=st.lists(st.integers(2, 31), min_size=1, max_size=40))
def test_every_example_is_in_one_row_whole(lengths: list[int]) -> None:
    examples = examples_of(lengths)
    batch = pack(examples, width=31, pad_id=PAD_ID)
    assert sorted(unpacked(batch)) == sorted(map(plain, examples))
    side = batch.read
    shape = (len(batch), max(side.lengths))
    assert side.tokens.shape == batch.segments.shape == side.sequence_ids.shape == shape
    n_in_row = batch.readouts[:, 0].bincount().tolist()
    order = [(n > 1, -length) for n, length in zip(n_in_row, batch.read.lengths, strict=True)]
    assert order == sorted(order), "rows of one come first, of either the longest"
    assert max(batch.read.lengths) <= 31
    assert batch.n_tokens == sum(lengths) == int((batch.read.sequence_ids >= 0).sum())
    is_padding = torch.arange(shape[1]) >= torch.tensor(side.lengths)[:, None]
    assert torch.equal(is_padding, batch.read.sequence_ids == -1)
    assert (batch.read.tokens[is_padding] == PAD_ID).all()
    assert (batch.segments[is_padding] == 0).all()
    rows, columns = places_of(batch).unbind(1)
    assert (side.sequence_ids[rows, columns] >= 0).all()


@given(lengths=st.lists(st.integers(2, 31), min_size=1, max_size=40), size=st.integers(1, 7))
def test_slices_of_rows_are_batches_with_places_of_their_own(lengths: list[int], size: int) -> None:
    batch = pack(examples_of(lengths), width=31, pad_id=PAD_ID)
    slices = [batch[start : start + size] for start in range(0, len(batch), size)]
    assert [row for each in slices for row in unpacked(each)] == unpacked(batch)
    assert [length for each in slices for length in each.read.lengths] == list(batch.read.lengths)
    for each in slices:
        assert len(each) <= size
        assert each.read.tokens.shape[1] == max(each.read.lengths)
        assert each.predicted is not None
        assert each.predicted.tolist() == sorted(each.predicted.tolist())
    assert unpacked(batch[:]) == unpacked(batch)


def test_by_hand_two_examples_share_a_row_and_the_third_is_padded() -> None:
    def example(ids: str, segments: str, positions: str, targets: str, label: int) -> Example:
        parts = [[*map(int, part)] for part in (ids, segments, positions, targets)]
        return Example(*(np.array(part, dtype=np.int64) for part in parts), label)

    examples = [
        example("283", "000", "1", "9", -1),
        example("24373", "00011", "13", "56", 1),
        example("283333", "000111", "0", "2", 0),
    ]
    batch = pack(examples, width=8, pad_id=PAD_ID)
    assert batch.read.tokens.tolist() == [[2, 8, 3, 3, 3, 3, 0, 0], [2, 4, 3, 7, 3, 2, 8, 3]]
    assert batch.segments.tolist() == [[0, 0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 0, 0, 0]]
    assert batch.read.sequence_ids.tolist() == [[0] * 6 + [-1] * 2, [0] * 5 + [1] * 3]
    assert places_of(batch).tolist() == [[0, 0], [1, 1], [1, 3], [1, 6]]
    assert batch.predicted_ids.tolist() == [2, 5, 6, 9]
    assert batch.readouts.tolist() == [[0, 0], [1, 0], [1, 5]]
    assert batch.labels.tolist() == [0, 1, -1]
    assert batch.read.lengths == (6, 8)
    first, second = batch[:1], batch[1:]
    assert first.read.tokens.tolist() == [[2, 8, 3, 3, 3, 3]]
    assert places_of(second).tolist() == [[0, 1], [0, 3], [0, 6]]
    assert second.readouts.tolist() == [[0, 0], [0, 5]]
    assert (second.predicted_ids.tolist(), second.labels.tolist()) == ([5, 6, 9], [1, -1])
    nothing = pack([example("213", "000", "", "", -1)], width=8, pad_id=PAD_ID)
    assert places_of(nothing).shape == places_of(nothing[:1]).shape == (0, 2)
    assert nothing.predicted_ids.shape == (0,)


def test_moving_to_a_device_moves_every_tensor() -> None:
    moved = pack(examples_of([5, 4, 8]), width=9, pad_id=PAD_ID).to(torch.device("meta"))
    fields = [*vars(moved).values(), *vars(moved.read).values()]
    tensors = [value for value in fields if isinstance(value, torch.Tensor)]
    assert len(tensors) == 11
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert moved.read.lengths == (8, 9)
