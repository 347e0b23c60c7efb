import numpy as np
import pytest
from scipy.stats import binom, chisquare, kstest

from sublayer.data.counter_rng import below, binomial, fork, seeds, uniform

P_LOW = 1e-6


def test_forks_are_the_published_generator():
    # The first outputs of SplitMix64 from state 0 and from state 1234567, as listed for the
    # reference implementation.
    zero, other = np.zeros(1, dtype=np.uint64), np.array([1234567], dtype=np.uint64)
    assert [hex(fork(zero, n)[0]) for n in range(3)] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]
    assert fork(other, np.arange(3)).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_seeds_differ_by_seed_purpose_epoch_and_thing():
    seen = [seeds(*key, 100) for key in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 0, 0))]
    assert len(np.unique(seen)) == 500
    assert np.array_equal(seeds(0, 0, 0, 100), seen[0])


def test_the_root_of_a_thing_does_not_depend_on_how_many_there_are():
    assert np.array_equal(seeds(5, 3, 2, 1000)[:7], seeds(5, 3, 2, 7))


@pytest.mark.parametrize("number", [0, 7, 12345])
def test_forks_are_uniform(number):
    drawn = uniform(fork(seeds(1, 2, 3, 20_000), number))
    assert 0 <= drawn.min() <= drawn.max() < 1
    assert kstest(drawn, "uniform").pvalue > P_LOW


def test_forks_of_neighbours_are_not_correlated():
    bits = seeds(1, 2, 3, 20_000)
    for pair in (
        (fork(bits, 0), fork(bits, 1)),
        (fork(fork(bits, 0), 1), fork(fork(bits, 1), 0)),
    ):
        assert abs(np.corrcoef(uniform(pair[0]), uniform(pair[1]))[0, 1]) < 5 / np.sqrt(20_000)


def test_integers_are_uniform_below_their_limits():
    bits = seeds(4, 2, 3, 30_000)
    assert chisquare(np.bincount(below(bits, 7), minlength=7)).pvalue > P_LOW
    limits = np.tile([0, 1, 5], 10_000)
    drawn = below(bits, limits)
    assert (drawn[limits < 2] == 0).all()
    assert chisquare(np.bincount(drawn[limits == 5], minlength=5)).pvalue > P_LOW
    assert below(np.array([2**64 - 1], dtype=np.uint64), 3 * 10**9).tolist() == [3 * 10**9 - 1]


@pytest.mark.parametrize("n_flips", [1, 2, 10, 63, 64, 65, 127, 128, 300])
def test_counts_of_flips_are_binomial(n_flips):
    counts = np.bincount(
        binomial(seeds(n_flips, 2, 3, 4000), np.full(4000, n_flips)), minlength=n_flips + 1
    )
    assert len(counts) == n_flips + 1
    expected = binom.pmf(np.arange(n_flips + 1), n_flips, 0.5) * 4000
    # Counts that are rarely reached are taken together.
    rare = expected < 10
    expected = np.append(expected[~rare], expected[rare].sum())
    seen = np.append(counts[~rare], counts[rare].sum())
    is_possible = expected > 0
    assert seen[~is_possible].sum() == 0
    assert chisquare(seen[is_possible], expected[is_possible]).pvalue > P_LOW


def test_binomials_of_different_numbers_of_flips_are_each_ones_own():
    bits, n_flips = seeds(0, 2, 3, 6), np.array([0, 200, 0, 1, 64, 0])
    together = binomial(bits, n_flips)
    alone = [binomial(bits[i : i + 1], n_flips[i : i + 1])[0] for i in range(6)]
    assert together.tolist() == alone
    assert together[[0, 2, 5]].tolist() == [0, 0, 0]
    assert binomial(bits[:0], n_flips[:0]).tolist() == []
