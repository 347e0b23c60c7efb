"""What two texts share, by hand."""

import numpy as np
import pytest

from sublayer.tasks.baselines import overlap as module
from sublayer.tasks.baselines.overlap import FEATURES, Overlap

RARE, COMMON = np.log(3 / 2) + 1, np.log(3 / 3) + 1
"""A word of one of two texts, and of both."""


def _of(first, second):
    overlap = Overlap([["the", "cat", "sat"], ["the", "dog"]])
    row = overlap.features([first.split()], [second.split()])[0]
    return dict(zip(FEATURES, row.tolist(), strict=True))


def test_shared_words_are_counted_once_each():
    row = _of("the cat sat the", "the cat ran")
    assert row["shared words, of the second's"] == pytest.approx(2 / 3)
    assert row["shared words, of the first's"] == pytest.approx(2 / 3)
    assert row["shared words, of both's"] == pytest.approx(2 / 4)
    assert row["shared word pairs, of the second's"] == pytest.approx(1 / 2)
    assert row["log of the first's length"] == pytest.approx(np.log(5))
    assert row["log of the second's length"] == pytest.approx(np.log(4))


def test_rare_words_weigh_more_and_unknown_ones_most():
    row = _of("the cat", "the unicorn")
    unknown = np.log(3) + 1
    assert row["shared words by rarity, of the second's"] == pytest.approx(
        COMMON / (COMMON + unknown)
    )
    assert row["log of the rarity that the second has alone"] == pytest.approx(np.log1p(unknown))
    assert row["log of the rarity that the first has alone"] == pytest.approx(np.log1p(RARE))


def test_the_cosine_is_that_of_counts_by_rarity():
    row = _of("cat cat the", "cat the")
    first, second = np.array([2 * RARE, COMMON]), np.array([RARE, COMMON])
    expected = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    assert row["cosine of TF-IDF"] == pytest.approx(expected)
    assert _of("unicorn", "unicorn")["cosine of TF-IDF"] == pytest.approx(1)


def test_negation_is_found_on_either_side():
    row = _of("the cat never sat", "the cat sat")
    names = ("negation in the first", "negation in the second", "negation in one alone")
    assert [row[name] for name in names] == [1, 0, 1]
    row = _of("don ' t", "not")
    assert [row[name] for name in names] == [1, 1, 0]


def test_empty_texts_share_nothing():
    row = _of("", "")
    assert set(row.values()) == {0.0}


def test_pairs_in_parts_are_as_together(monkeypatch):
    firsts = [["the", "cat"], [], ["a", "dog", "a"], ["x"]]
    seconds = [["cat"], ["the"], ["a", "dog"], ["y", "x"]]
    overlap = Overlap([*firsts, *seconds])
    together = overlap.features(firsts, seconds)
    monkeypatch.setattr(module, "_MOST_ROWS", 3)
    np.testing.assert_allclose(overlap.features(firsts, seconds), together)
