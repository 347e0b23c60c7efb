"""Examples packed into rows by best fit: each once, no row too long, and slices are batches."""

from itertools import pairwise

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sublayer.data.best_fit import best_fit
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.packing import PackedSequence, Unpacked, pack_examples
from tests.packed_rows import unpack

WIDTH, WRITTEN_WIDTH, PAD, FIRST = 12, 6, 0, 1


def with_lengths(lengths, *, writes=False, predicts=False):
    """Examples of sequences of so many tokens, whose ids tell all apart: 100, 101 and so on."""
    next_id = 100
    examples = []
    for number, own in enumerate(lengths):
        sequences = []
        for length in own:
            ids = np.arange(next_id, next_id + length)
            next_id += length
            written = -ids[:WRITTEN_WIDTH] if writes else None
            targets = np.append(ids[1:], -1) if predicts else None
            span = (0, length - 1)
            sequences.append(
                PackedSequence(ids, ids % 2, length - 1, span, written=written, targets=targets)
            )
        examples.append(Unpacked(sequences, number / 2, float(number % 2), number))
    return examples


def packed(examples):
    widths = {"width": WIDTH, "written_width": WRITTEN_WIDTH}
    return pack_examples(examples, **widths, pad_id=PAD, first_id=FIRST)


LENGTHS = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=4), min_size=1, max_size=12)


def check(batch: PackedBatch, examples):
    """Every sequence of these examples stands in the batch as it was given."""
    by_number = {each.number: each for each in examples}
    assert sorted(batch.numbers) == sorted(by_number)
    own = [by_number[number] for number in batch.numbers]
    assert [*zip(batch.labels, batch.weights, strict=True)] == [(e.label, e.weight) for e in own]
    assert batch.owners.tolist() == [n for n, each in enumerate(own) for _ in each.sequences]
    expected = [sequence for each in own for sequence in each.sequences]
    assert len(expected) == batch.read.n_sequences
    places = zip(batch.readouts.tolist(), batch.spans.tolist(), strict=True)
    for found, given_, ((row, column), span) in zip(unpack(batch), expected, places, strict=True):
        assert found.ids.tolist() == given_.ids.tolist()
        assert found.segments.tolist() == given_.segments.tolist()
        wanted = given_.targets if given_.written is None else given_.written
        if given_.written is not None:
            assert found.written.tolist() == [FIRST, *wanted.tolist()[:-1]]
        assert (found.targets is None) == (wanted is None)
        assert wanted is None or found.targets.tolist() == wanted.tolist()
        assert batch.read.tokens[row, column] == given_.ids[given_.readout]
        assert batch.read.tokens[row, span].tolist() == given_.ids[list(given_.span)].tolist()
    for side in (batch.read, batch.written):
        if side is not None:
            assert side.lengths == tuple((side.sequence_ids >= 0).sum(1).tolist())
            assert side.tokens.shape[1] == max(side.lengths)
            assert (side.mask is None) == bool((side.sequence_ids >= 0).all())
            assert (side.document_ids is None) == (int(side.sequence_ids.max()) == 0)


@settings(max_examples=60)
@given(LENGTHS, st.sampled_from(["none", "writes", "predicts"]), st.integers(1, 5))
def test_a_batch_and_its_slices_hold_every_example_as_it_was_given(lengths, kind, size):
    examples = with_lengths(lengths, **({} if kind == "none" else {kind: True}))
    batch = packed(examples)
    check(batch, examples)
    for side, room in ((batch.read, WIDTH), (batch.written, WRITTEN_WIDTH)):
        assert side is None or max(side.lengths) <= room
    by_number = {each.number: each for each in examples}
    parts = [batch[start : start + size] for start in range(0, len(batch), size)]
    for part in (*parts, parts[0][:1]):
        check(part, [by_number[number] for number in part.numbers])
    assert [len(part) for part in parts[:-1]] == [size] * (len(parts) - 1)
    assert tuple(number for part in parts for number in part.numbers) == batch.numbers
    assert sum(part.n_tokens for part in parts) == batch.n_tokens


def test_an_example_that_does_not_fit_a_row_has_one_for_each_sequence():
    batch = packed(with_lengths([[5, 7, 6], [4], [3, 2]]))
    # Three rows of the first example are a unit, the others share a row.
    assert batch.unit_rows == (0, 3, 4)
    assert batch.read.lengths == (5, 7, 6, 9)
    assert (batch.unit_examples, batch.numbers) == ((0, 1, 3), (0, 2, 1))
    # Both sequences of an example could be read in one row, but not written.
    batch = packed(with_lengths([[5, 5], [2]], writes=True))
    assert batch.unit_rows == (0, 2, 3)
    assert batch.read.lengths == (5, 5, 2)
    assert batch.written is not None and batch.written.lengths == (5, 5, 2)


ROOM = (12, 6)

SIZES = st.lists(st.tuples(st.integers(1, 15), st.integers(0, 6)), min_size=1, max_size=30)


@given(SIZES)
@example([(12, 0), (12, 0), (5, 6), (5, 6), (2, 0)])
def test_every_item_stands_in_one_row_within_its_room_the_fullest_first(sizes):
    rows = best_fit(sizes, ROOM)
    assert sorted(index for row in rows for index in row) == list(range(len(sizes)))
    for side, room in enumerate(ROOM):
        assert all(len(row) == 1 or sum(sizes[i][side] for i in row) <= room for row in rows)
    keys = [(len(row) > 1, -sum(sizes[index][0] for index in row)) for row in rows]
    assert keys == sorted(keys)
    # Whatever was begun later did not fit into a row that was there.
    for one, other in pairwise(best_fit([(read, 0) for read, _ in sizes], ROOM)):
        assert sum(sizes[index][0] for index in one + other) > ROOM[0]


def test_an_item_goes_where_it_leaves_the_least_room():
    # 7 and 6 begin rows, which leave 5 and 6; 5 fits the first exactly, 4 then the second.
    assert best_fit([(4, 0), (6, 0), (5, 0), (7, 0)], ROOM) == [[3, 2], [1, 0]]
    # Where what is written would not fit, the next row is taken.
    assert best_fit([(7, 5), (6, 1), (5, 4)], ROOM) == [[0], [1, 2]]
