from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from sublayer.data.counter_rng import seeds
from sublayer.data.masked.segments import PairRule, Pairs, trim, trimmed_lengths
from sublayer.errors import ConfigError

lengths = st.integers(0, 60)


def pairs_of(a_length, b_length, count=1):
    a, b = np.full(count, 100), np.full(count, 1000)
    return Pairs(a, a + a_length, b, b + b_length, np.zeros(count, dtype=np.int8))


@given(a=lengths, b=lengths, budget=st.integers(2, 70))
def test_what_is_kept_is_what_dropping_from_the_longer_leaves(a, b, budget):
    a_left, b_left = a, b
    while a_left + b_left > budget:
        if a_left > b_left:
            a_left -= 1
        else:
            b_left -= 1
    a_length, b_length = trimmed_lengths(pairs_of(a, b), budget)
    assert (a_length.tolist(), b_length.tolist()) == ([a_left], [b_left])


def test_each_token_dropped_is_the_first_or_the_last_by_a_coin():
    pairs = trim(pairs_of(12, 7, 4000), np.full(4000, 4), np.full(4000, 7), seeds(0, 0, 0, 4000))
    assert (pairs.a_stop - pairs.a_start == 4).all()
    assert set(pairs.b_start.tolist()) == {1000}
    counts = np.bincount(pairs.a_start - 100, minlength=9)
    assert chisquare(counts, binom.pmf(np.arange(9), 8, 0.5) * 4000).pvalue > 1e-6


def test_cuts_of_a_and_b_are_independent():
    pairs = trim(pairs_of(9, 9, 4000), np.full(4000, 8), np.full(4000, 8), seeds(0, 0, 0, 4000))
    counts = Counter(zip(pairs.a_start.tolist(), pairs.b_start.tolist(), strict=True))
    assert len(counts) == 4
    assert chisquare(list(counts.values())).pvalue > 1e-6


def test_segments_that_fit_are_not_cut():
    pairs = pairs_of(5, 4)
    assert [column.tolist() for column in trimmed_lengths(pairs, 9)] == [[5], [4]]
    assert trim(pairs, *trimmed_lengths(pairs, 9), seeds(0, 0, 0, 1)) == pairs


@pytest.mark.parametrize(
    "rule, message",
    [
        ({"task": "sop", "max_len": 4}, "max_len = 4 must be at least 5"),
        ({"task": "sop", "p_short": 1.1}, "p_short = 1.1 must be from 0 to 1"),
        ({"task": "none", "alone": "negative"}, "alone = negative contradicts task = none"),
    ],
)
def test_rules_without_a_meaning_are_refused(rule, message):
    with pytest.raises(ConfigError, match=message):
        PairRule(**rule)
