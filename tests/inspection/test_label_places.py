"""Labels that would cover each other are moved apart, and no others."""

from itertools import combinations

import hypothesis.strategies as st
from hypothesis import given

from sublayer.inspection.label_places import Box, raise_labels


def test_what_is_free_stays_and_what_is_covered_stands_above() -> None:
    low, same, right, high = Box(0, 0, 4, 2), Box(1, 1, 5, 3), Box(6, 0, 9, 2), Box(0, 9, 4, 11)
    assert raise_labels([high, same, right, low], gap=0.5) == [0.0, 1.5, 0.0, 0.0]


def test_a_label_is_raised_over_all_that_are_in_its_way() -> None:
    boxes = [Box(0, 0, 2, 2), Box(0, 0, 2, 2), Box(0, 0, 2, 2)]
    assert sorted(raise_labels(boxes, gap=1.0)) == [0.0, 3.0, 6.0]


sizes = st.integers(1, 9)
places = st.tuples(st.integers(0, 30), st.integers(0, 30), sizes, sizes)


@given(st.lists(places, max_size=12))
def test_no_label_covers_another_or_sinks(drawn: list[tuple[int, int, int, int]]) -> None:
    boxes = [Box(x, y, x + width, y + height) for x, y, width, height in drawn]
    heights = raise_labels(boxes, gap=1.0)
    assert all(height >= 0.0 for height in heights)
    raised = [box.raised(height) for box, height in zip(boxes, heights, strict=True)]
    assert not any(one.covers(other) for one, other in combinations(raised, 2))
