"""Examples held out: neither their sources nor their texts are trained on, and classes keep
their shares."""

import random

import numpy as np
import pytest

from sublayer.tasks.division import held_out
from sublayer.tasks.example import Example


def _examples(n, *, n_labels=2, n_sources=None):
    return [
        Example(
            id=str(row),
            fields={"sentence": f"sentence {row}"},
            label=int(row % 10 >= 7) if n_labels == 2 else row % n_labels,
            source="" if n_sources is None else f"article {row % n_sources}",
        )
        for row in range(n)
    ]


def test_classes_keep_their_shares():
    taken = held_out(_examples(1000), 0.1, 10_000)
    counts = np.bincount([int(row % 10 >= 7) for row in np.flatnonzero(taken)])
    assert counts.tolist() == [70, 30]


def test_neither_the_order_of_rows_nor_their_ids_decide():
    examples = _examples(200, n_sources=40)
    taken = held_out(examples, 0.2, 200)
    order = list(range(200))
    random.Random(3).shuffle(order)
    shuffled = [
        Example(f"x{row}", examples[row].fields, examples[row].label, source=examples[row].source)
        for row in order
    ]
    assert np.array_equal(held_out(shuffled, 0.2, 200), taken[order])


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_a_marked_source_and_repeated_texts_stand_on_one_side(share):
    # The same text in two articles binds both; a pair in either order is one text.
    examples = [
        *_examples(300, n_sources=30),
        Example("a", {"sentence": "twice"}, 0, source="article 1"),
        Example("b", {"sentence": "twice"}, 1, source="article 2"),
        Example("c", {"sentence1": "left", "sentence2": "right"}, 0),
        Example("d", {"sentence1": "right", "sentence2": "left"}, 1),
        Example("e", {"sentence": "unlike c"}, 1, group="one"),
        Example("f", {"sentence": "unlike d"}, 1, group="one"),
    ]
    taken = held_out(examples, share, 1000)
    sides = {(each.source, bool(out)) for each, out in zip(examples, taken, strict=True)}
    assert len({side for side in sides if side[0]}) == 30
    assert taken[300::2].tolist() == taken[301::2].tolist()
    assert abs(taken.sum() - share * 306) <= 10


def test_rare_labels_and_numbers_are_held_out_too():
    assert held_out(_examples(200, n_labels=100), 0.1, 1000).sum() == 20
    numbers = [Example(str(row), {"text": str(row)}, row / 7) for row in range(100)]
    assert held_out(numbers, 0.1, 1000).sum() == 10


@pytest.mark.parametrize(
    "n, n_sources, at_most, expected",
    [(0, 1, 99, 0), (40, 1, 99, 0), (40, 2, 99, 20), (400, 400, 5, 5), (400, 40, 19, 10)],
)
def test_one_source_is_not_divided_and_there_are_never_more_than_allowed(
    n, n_sources, at_most, expected
):
    assert held_out(_examples(n, n_sources=n_sources), 0.1, at_most).sum() == expected
