import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from sublayer.data.masked.sentence_pairs import pairs_of_sentences
from sublayer.errors import ConfigError, DataError

P_LOW = 1e-6


def paired(lengths, **settings):
    starts = np.cumsum([0, *lengths[:-1]])
    settings = {"max_len": 384, "seed": 0, "epoch": 0} | settings
    return pairs_of_sentences(starts, sum(lengths), **settings)


def test_every_sentence_but_the_last_is_first_once_and_every_one_but_the_first_is_second_once():
    lengths = np.random.default_rng(0).integers(1, 40, 501).tolist()
    pairs = paired(lengths)
    starts = np.cumsum([0, *lengths])
    assert pairs.a_start.tolist() == starts[:500].tolist()
    assert pairs.a_stop.tolist() == starts[1:501].tolist()
    assert sorted(pairs.b_start.tolist()) == starts[1:501].tolist()
    assert np.array_equal(pairs.b_stop, starts[np.searchsorted(starts, pairs.b_start) + 1])


def test_the_label_is_zero_exactly_where_b_follows_a():
    for n_sentences in (2, 3, 4, 11):
        for seed in range(50):
            pairs = paired([3] * n_sentences, seed=seed)
            assert np.array_equal(pairs.label == 0, pairs.b_start == pairs.a_stop)
            assert set(pairs.label.tolist()) <= {0, 1}


def test_half_of_the_sentences_keep_their_successor():
    pairs = paired([3] * 2001)
    # Of the 1,000 that are permuted, one keeps its successor by chance, on average.
    assert 1000 <= np.count_nonzero(pairs.label == 0) <= 1007


def test_the_moved_half_and_its_order_are_uniform():
    # Five sentences, four pairs: two of them trade successors, or not: 6 halves, each in two
    # orders.
    counts = {}
    for seed in range(3000):
        second = tuple((paired([1] * 5, seed=seed).b_start - 1).tolist())
        counts[second] = counts.get(second, 0) + 1
    trades = [counts[second] for second in counts if second != (0, 1, 2, 3)]
    assert len(trades) == 6
    assert (
        chisquare([counts[0, 1, 2, 3], *trades], np.array([6, 1, 1, 1, 1, 1, 1]) * 250).pvalue
        > P_LOW
    )


def test_a_new_epoch_moves_other_sentences():
    lengths = [3] * 200
    first, again, epoch, seed = (
        paired(lengths),
        paired(lengths),
        paired(lengths, epoch=1),
        paired(lengths, seed=1),
    )
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first.b_start, epoch.b_start)
    assert not np.array_equal(first.b_start, seed.b_start)


def kept(pairs):
    return (pairs.a_stop - pairs.a_start).tolist(), (pairs.b_stop - pairs.b_start).tolist()


def test_the_longer_sentence_is_cut_first():
    # A budget of 17: 20 and 5 fit as 12 and 5, whichever is first; 5 and 12 fit as they are.
    assert kept(paired([20, 5], max_len=20)) == ([12], [5])
    assert kept(paired([5, 20], max_len=20)) == ([5], [12])
    assert kept(paired([5, 12], max_len=20)) == ([5], [12])


def test_what_exceeds_two_equal_sentences_is_split_by_a_coin():
    # 30 and 22 for 37: both are cut to 22, then 7 tokens between them.
    seen = [kept(paired([30, 22], max_len=40, seed=seed)) for seed in range(2000)]
    assert all(a[0] + b[0] == 37 for a, b in seen)
    counts = np.bincount([22 - a[0] for a, _ in seen], minlength=8)
    assert chisquare(counts, binom.pmf(np.arange(8), 7, 0.5) * 2000).pvalue > P_LOW


def test_a_cut_is_split_between_head_and_tail_by_a_coin():
    # 11 tokens for a budget of 7 beside 1: five are cut.
    starts = [paired([11, 1], max_len=10, seed=seed).a_start[0] for seed in range(2000)]
    counts = np.bincount(starts, minlength=6)
    assert chisquare(counts, binom.pmf(np.arange(6), 5, 0.5) * 2000).pvalue > P_LOW


@given(
    lengths=st.lists(st.integers(1, 30) | st.integers(500, 600), min_size=2, max_size=12),
    max_len=st.integers(5, 40),
    seed=st.integers(0, 100),
)
def test_pairs_fit_and_no_sentence_is_cut_to_nothing(lengths, max_len, seed):
    pairs = paired(lengths, max_len=max_len, seed=seed)
    a_length, b_length = (np.array(column) for column in kept(pairs))
    starts = np.cumsum([0, *lengths])
    first = np.arange(len(lengths) - 1)
    second = np.searchsorted(starts, pairs.b_start, side="right") - 1
    assert (starts[first] <= pairs.a_start).all()
    assert (pairs.a_stop <= starts[first + 1]).all()
    assert (pairs.b_stop <= starts[second + 1]).all()
    assert (a_length >= 1).all()
    assert (b_length >= 1).all()
    whole = np.diff(starts)[first] + np.diff(starts)[second]
    assert np.array_equal(a_length + b_length, np.minimum(whole, max_len - 3))


def test_texts_without_two_sentences_and_lengths_without_room_are_refused():
    with pytest.raises(DataError, match="no sentences to make pairs of"):
        pairs_of_sentences(np.zeros(0, dtype=np.int64), 0, seed=0, epoch=0)
    with pytest.raises(DataError, match="next-sentence pairs need two sentences"):
        paired([7])
    with pytest.raises(ConfigError, match="max_len = 4 must be at least 5"):
        paired([7, 7], max_len=4)
