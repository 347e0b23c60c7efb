"""What is held out: neither its source nor its texts are trained on, and its classes keep their
shares."""

import random
from collections import Counter

import numpy as np
import pytest

from sublayer.tasks.division import held_out
from sublayer.tasks.example import Answer, Example


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
    examples = _examples(1000)
    taken = held_out(examples, 0.1, 10_000)
    labels = Counter(
        example.label for example, is_out in zip(examples, taken, strict=True) if is_out
    )
    assert labels == {0: 70, 1: 30}
    assert held_out(examples, 0.1, 40).sum() == 40


def test_neither_the_order_of_rows_nor_their_ids_decide():
    examples = _examples(200, n_sources=40)
    taken = held_out(examples, 0.2, 200)
    order = list(range(200))
    random.Random(3).shuffle(order)
    shuffled = [
        Example(
            f"other {row}", examples[row].fields, examples[row].label, source=examples[row].source
        )
        for row in order
    ]
    assert np.array_equal(held_out(shuffled, 0.2, 200), taken[order])


def test_a_marked_source_and_repeated_texts_stand_on_one_side():
    examples = _examples(300, n_sources=30)
    # The same text in two articles binds both; a pair in either order is one text.
    examples += [
        Example("a", {"sentence": "twice"}, 0, source="article 1"),
        Example("b", {"sentence": "twice"}, 1, source="article 2"),
        Example("c", {"sentence1": "left", "sentence2": "right"}, 0),
        Example("d", {"sentence1": "right", "sentence2": "left"}, 1),
        Example("e", {"sentence": "unlike c"}, 1, group="one"),
        Example("f", {"sentence": "unlike d"}, 1, group="one"),
    ]
    for share in (0.05, 0.2, 0.5, 0.9):
        taken = held_out(examples, share, 1000)
        sides = {}
        for example, is_out in zip(examples, taken, strict=True):
            sides.setdefault(example.source, set()).add(bool(is_out))
        assert all(len(side) == 1 for source, side in sides.items() if source)
        assert taken[300] == taken[301]
        assert taken[302] == taken[303]
        assert taken[304] == taken[305]
        assert abs(taken.sum() - share * 306) <= 10


def test_labels_of_which_each_is_rare_are_held_out_too():
    assert held_out(_examples(200, n_labels=100), 0.1, 1000).sum() == 20


def test_numbers_are_no_classes():
    examples = [Example(str(row), {"text": str(row)}, row / 7) for row in range(100)]
    assert held_out(examples, 0.1, 1000).sum() == 10


def test_questions_without_answers_keep_their_share():
    examples = [
        Example(
            str(row),
            {"context": "A passage.", "question": str(row)},
            answers=(Answer("passage", 2),) if row % 4 else (),
            source=f"article {row % 50}",
        )
        for row in range(1000)
    ]
    taken = held_out(examples, 0.2, 1000)
    answered = [bool(example.answers) for example in examples]
    assert taken.sum() == 200
    assert np.array(answered)[taken].mean() == pytest.approx(0.75, abs=0.05)


@pytest.mark.parametrize("n, n_sources, expected", [(0, 1, 0), (1, 1, 0), (40, 1, 0), (40, 2, 20)])
def test_one_source_is_not_divided_and_of_two_one_is_held_out(n, n_sources, expected):
    assert held_out(_examples(n, n_sources=n_sources), 0.1, 1000).sum() == expected


def test_there_are_never_more_than_allowed():
    for at_most in (0, 1, 5, 19, 20):
        assert held_out(_examples(400, n_sources=40), 0.1, at_most).sum() <= at_most
