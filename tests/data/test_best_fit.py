"""Items put into rows: each once, no row too full, and no more rows than there must be."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from sublayer.data.best_fit import best_fit

ROOM = (12, 6)
SIZES = st.lists(st.tuples(st.integers(1, 15), st.integers(0, 6)), min_size=1, max_size=30)


@given(SIZES)
@example([(12, 0), (12, 0), (5, 6), (5, 6), (2, 0)])
def test_every_item_stands_in_one_row_which_it_fills_alone_or_shares_within_its_room(sizes):
    rows = best_fit(sizes, ROOM)
    assert sorted(index for row in rows for index in row) == list(range(len(sizes)))
    for row in rows:
        if len(row) > 1:
            for side, room in enumerate(ROOM):
                assert sum(sizes[index][side] for index in row) <= room


@given(SIZES)
def test_rows_of_one_item_stand_first_and_of_either_kind_the_fullest(sizes):
    rows = best_fit(sizes, ROOM)
    keys = [(len(row) > 1, -sum(sizes[index][0] for index in row)) for row in rows]
    assert keys == sorted(keys)


@given(SIZES)
def test_no_two_rows_would_fit_into_one(sizes):
    # Whatever was begun later did not fit into a row that was there.
    for one, other in pairwise(best_fit([(read, 0) for read, _ in sizes], ROOM)):
        assert sum(sizes[index][0] for index in one + other) > ROOM[0]


def test_an_item_goes_where_it_leaves_the_least_room():
    # 7 and 6 begin rows, which leave 5 and 6; 5 fits the first exactly, 4 then the second.
    assert best_fit([(4, 0), (6, 0), (5, 0), (7, 0)], ROOM) == [[3, 2], [1, 0]]
    # Where what is written would not fit, the next row is taken.
    assert best_fit([(7, 5), (6, 1), (5, 4)], ROOM) == [[0], [1, 2]]
