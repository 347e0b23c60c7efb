"""Secondary analyses: against scipy, by brute force, and how often their intervals hold."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, nct, norm, t, ttest_ind, ttest_rel

from sublayer.statistics import secondary
from sublayer.statistics.secondary import course, paired_t, superiority, welch_t

A = [2.31, 2.35, 2.29, 2.4, 2.33]
B = [2.38, 2.36, 2.37, 2.47, 2.36]
SUP = {"is_lower_better": True}


def test_t_tests_are_those_of_scipy_and_hold_at_each_evaluation():
    short = B[:3]
    for found, expected in (
        (paired_t(A, B), ttest_rel(A, B)),
        (welch_t(A, short), ttest_ind(A, short, equal_var=False)),
    ):
        interval = expected.confidence_interval()
        assert found.p == pytest.approx(expected.pvalue)
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert paired_t([1.0], [2.0]) is welch_t([1.0, 2.0], [1.0]) is paired_t([1, 2], [2, 3]) is None
    table = np.array([A, B])[:, :, None] + np.array([0.5, 0.0])  # [2, S, E]
    for is_paired, test in ((True, paired_t), (False, welch_t)):
        found = course([10, 20], *table, is_paired=is_paired)
        whole = test(A, B)
        ends = [*found.means, *found.lows, *found.highs]
        expected = [each for each in (whole.mean, whole.low, whole.high) for _ in range(2)]
        assert ends == pytest.approx(expected)
    assert course([10, 20], [[1, 2]], [[0, 3]], is_paired=False).lows == ()


def test_a_course_turns_where_its_interval_lay_on_both_sides_of_0():
    sides = np.array([-1.0, 0.0, 1.0, 1.0, 0.0])
    noise = np.array([[0.1], [-0.1], [0.05]])
    for signs, turns in ((sides, (10, 40)), (-sides, (10, 40)), (np.abs(sides), None)):
        found = course(range(10, 60, 10), signs + noise, 0 * noise - noise, is_paired=False)
        assert found.turns == turns


def test_the_share_of_pairs_is_mann_and_whitneys_and_failed_runs_lose_all():
    tied = [2.31, 2.36, 2.5]
    found = superiority(A, tied, **SUP)
    u = mannwhitneyu(tied, A).statistic
    assert (found.share, found.n_pairs) == (pytest.approx(u / 15), 15)
    ranked = superiority([1.0, 2.0], [3.0, 4.0], **SUP, n_failed=(1, 0))
    assert (ranked.share, ranked.estimate) == (pytest.approx(4 / 6), None)
    both = superiority([1.0], [], **SUP, n_failed=(1, 2))
    assert both.share == 0.75, "one failed run is no better than another"
    assert superiority([1.0, 1.0], [2.0, 2.0], **SUP).estimate == 1.0
    assert superiority([], [1.0], **SUP) is None
    far = superiority(np.array([0, 1e-4]), np.array([1, 1 + 1e-4]), **SUP)
    assert far.low == pytest.approx(1.0)


@pytest.mark.parametrize("n", [(3, 3), (5, 4), (20, 20)])
@pytest.mark.parametrize("size", [0.0, 1.0])
def test_the_interval_of_superiority_holds_in_nineteen_of_twenty_studies(n, size):
    draws = np.random.default_rng(0)
    held = []
    estimates = []
    for _ in range(800):
        a, b = draws.normal(0.0, 1.0, n[0]), draws.normal(size * 5**0.5, 2.0, n[1])
        found = superiority(a, b, **SUP)
        held.append(found.low <= norm.cdf(size) <= found.high)
        estimates.append(found.estimate)
    assert np.mean(held) >= 0.93
    assert np.mean(estimates) == pytest.approx(norm.cdf(size), abs=0.04)


def test_a_ratio_is_the_geometric_mean_with_the_interval_of_its_logarithm():
    found = secondary.mean_ratio([0.5, 0.8, 0.7])
    assert found.mean == pytest.approx((0.5 * 0.8 * 0.7) ** (1 / 3))
    half = t.ppf(0.975, 2) * np.log([0.5, 0.8, 0.7]).std(ddof=1) / 3**0.5
    assert math.log(found.high / found.low) == pytest.approx(2 * half)
    assert secondary.mean_ratio([0.5, 0.8]) is secondary.mean_ratio([0.5, 0.5, 0.5]) is None


def test_power_is_that_of_the_t_test_and_ends_at_what_no_seed_takes_away():
    seeds = np.array([3, 5, 20, 300])
    common = {"freedom_per_seed": 2.0, "level": 0.05}
    found = secondary.power_over_seeds(-1.0, seeds, seed_variance=2.0, apart=0.0, **common)
    freedom = 2 * (seeds - 1)
    expected = nct.sf(t.ppf(0.975, freedom), freedom, np.sqrt(seeds / 2))
    assert found == pytest.approx(expected, abs=1e-9)
    draws = np.random.default_rng(0).standard_normal((4000, 2, 5))
    p = ttest_ind(draws[:, 0] + 1.0, draws[:, 1], axis=1).pvalue
    assert found[1] == pytest.approx((p < 0.05).mean(), abs=0.03)
    capped = secondary.power_over_seeds(1.0, [10**6], seed_variance=2.0, apart=0.25, **common)
    assert capped[0] == pytest.approx(norm.sf(norm.ppf(0.975) - 2), abs=1e-3)
    certain = secondary.power_over_seeds(1e4, seeds, seed_variance=2.0, apart=0.0, **common)
    assert certain.tolist() == [1.0] * 4


def test_degrees_of_freedom_follow_from_the_reach_of_an_interval():
    for freedom in (1.0, 4.0, 60.0):
        found = secondary.implied_freedom(t.ppf(0.99, freedom), 0.02)
        assert found == pytest.approx(freedom, rel=1e-6)
    assert secondary.implied_freedom(1.0, 0.02) == pytest.approx(1e4)


def test_the_expected_best_of_some_trials_is_the_mean_over_all_choices_of_them():
    scores = [0.4, 0.1, 0.35, 0.1, 0.9]
    for better, best in (("lower", min), ("higher", max)):
        found = secondary.expected_best(scores, better=better)
        for n in range(1, 6):
            every = [best(each) for each in combinations(scores, n)]
            assert found[n - 1] == pytest.approx(np.mean(every))
    many = secondary.expected_best(np.arange(2000.0), better="higher")
    assert many[[0, -1]] == pytest.approx([999.5, 1999.0])
