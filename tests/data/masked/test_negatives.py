"""Where the second segment of a negative pair is from, and what a single sentence gives."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from sublayer.errors import DataError
from tests.data.masked.pair_rows import P_LOW, made, rows


def test_a_single_sentence_stands_alone_unlabelled():
    # 30 tokens for a budget of 20: A is cut at both ends.
    for task in ("none", "sop", "nsp"):
        a, a_stop, b, b_stop, label = rows(made([[30], [2, 2]], task=task))[0]
        assert (a_stop - a, b_stop - b, label) == (20, 0, -1)
        assert 0 <= a <= 10


def test_a_single_sentence_may_be_dropped():
    documents = [[3], [2, 2], [30, 4, 4], [5, 30]]
    assert made(documents, alone="drop", task="none").a_start.tolist() == [3, 37, 45]
    assert made([[3], [4]], alone="drop").n_pairs == 0


@pytest.mark.parametrize("task", ["sop", "nsp"])
def test_a_single_sentence_may_have_a_b_from_another_document(task):
    for seed in range(30):
        pairs = made([[3], [2], [6, 9]], alone="negative", task=task, seed=seed)
        assert pairs.label[:2].tolist() == [1, 1]
        assert (pairs.a_start[:2].tolist(), pairs.a_stop[:2].tolist()) == ([0, 3], [3, 5])
        assert pairs.b_start[0] in (3, 5, 11)
        assert pairs.b_start[1] in (0, 5, 11)


def test_a_random_b_is_drawn_from_every_other_document_alike_and_from_each_of_its_sentences():
    documents = [[10, 10], [5] * 3, [7], [2, 2]]
    first = [made(documents, task="nsp", seed=seed) for seed in range(1500)]
    starts = Counter(int(pairs.b_start[0]) for pairs in first if pairs.label[0] == 1)
    n_negative = starts.total()
    assert abs(n_negative - 750) < 5 * np.sqrt(375)
    expected = {20: 1 / 9, 25: 1 / 9, 30: 1 / 9, 35: 1 / 3, 42: 1 / 6, 44: 1 / 6}
    assert starts.keys() == expected.keys()
    assert (
        chisquare(
            [starts[b] for b in expected], [expected[b] * n_negative for b in expected]
        ).pvalue
        > P_LOW
    )


def test_a_random_b_has_the_sentences_that_a_leaves_room_for():
    # A budget of 20; A has 12: two sentences of 4 are enough of the other document, unless it ends
    # before.
    documents = [[12, 8], [4] * 10]
    seen = set()
    for seed in range(200):
        a, a_stop, b, b_stop, label = rows(made(documents, task="nsp", seed=seed))[0]
        assert (a, a_stop) == (0, 12)
        if label == 1:
            seen.add(((b - 20) // 4, b_stop - b))
    assert seen == {(n, 8) for n in range(9)} | {(9, 4)}


def test_a_replaced_b_is_put_back():
    # Two sentences: where B is replaced, it begins the next example, alone.
    for seed in range(30):
        pairs = rows(made([[3, 4], [5, 5]], task="nsp", seed=seed))
        ours = [row for row in pairs if row[0] < 7]
        if ours[0][4] == 0:
            assert ours == [(0, 3, 3, 7, 0)]
        else:
            assert ours[0][:2] == (0, 3)
            assert ours[0][2] in (7, 12)
            assert ours[1] == (3, 7, 7, 7, -1)


def test_a_corpus_of_one_document_has_no_negatives_unless_they_may_be_from_anywhere():
    with pytest.raises(DataError, match="next-sentence pairs need two documents"):
        made([[3, 4, 5]], task="nsp")
    with pytest.raises(DataError, match="pairs for single sentences need two documents"):
        made([[3, 4, 5]], alone="negative")
    assert made([[3, 4, 5]], task="nsp", negatives="anywhere").n_pairs >= 1


def test_negatives_from_the_same_document_are_far_from_a():
    lengths = np.random.default_rng(0).integers(1, 12, 400).tolist()
    pairs = made([lengths], task="nsp", negatives="anywhere")
    is_negative = pairs.label == 1
    a_start, a_stop, b_start, b_stop, _ = (column[is_negative] for column in pairs)
    distance = np.where(b_start > a_start, b_start - a_stop, a_start - b_stop)
    assert is_negative.sum() > 50
    assert distance.min() >= 23
    assert (b_stop > b_start).all()
    assert (b_start < a_start).any() and (b_start > a_start).any()
    # Without room for the distance, B is a sentence that is not beside A.
    for seed in range(30):
        for a, a_stop, b, b_stop, label in rows(
            made([[5] * 5], task="nsp", negatives="anywhere", seed=seed)
        ):
            if label == 1:
                assert b >= a_stop + 5 or b_stop <= a - 5


def test_without_a_sentence_for_it_a_negative_is_left_unlabelled():
    seen = set()
    for seed in range(30):
        seen |= set(rows(made([[3, 4]], task="nsp", negatives="anywhere", seed=seed)))
    assert {row[4] for row in seen} == {-1, 0}
    assert {row[:2] for row in seen if row[4] == -1} == {(0, 3), (3, 7)}
