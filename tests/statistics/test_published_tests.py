"""The judge and its parts against the tests of scipy, where both test the same hypothesis."""

import numpy as np
import pytest
from scipy.stats import dunnett, ttest_ind, ttest_rel, tukey_hsd

from sublayer.statistics.covariance import known_spread
from sublayer.statistics.judge import ContrastFamily
from sublayer.statistics.scores import RunScores, against_baseline, arm_less, weights_of
from sublayer.statistics.simultaneous import Largest, Uncertainty, correlation_of

SEEDS = {"shared": (0, 0), "apart": (0, 100)}


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("sizes", [(3, 3), (5, 5), (8, 5), (20, 20)])
def test_two_arms_have_the_paired_t_test_or_that_of_welch(seeds, sizes):
    rng = np.random.default_rng([sum(sizes), len(seeds)])
    if seeds == "shared":
        sizes = (min(sizes), min(sizes))
    samples = [rng.normal(arm, 1.0 + 2.0 * arm, n) for arm, n in enumerate(sizes)]
    values = {
        name: dict(enumerate(own.tolist(), first))
        for name, own, first in zip("ab", samples, SEEDS[seeds], strict=True)
    }
    scores, contrasts = RunScores.of(values), against_baseline("ab", "a")
    (found,) = (
        ContrastFamily(scores, contrasts, is_lower_better=True, n_seeds=3).judge().differences
    )
    base, new = samples
    expected = ttest_rel(new, base) if seeds == "shared" else ttest_ind(new, base, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert (found.p, found.p_raw) == pytest.approx((expected.pvalue, expected.pvalue), rel=1e-6)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-4)


def test_many_seeds_give_each_difference_of_several_arms_the_paired_t_test():
    values = np.random.default_rng(30).normal(size=(4, 30)) * [[1.0], [2.0], [1.0], [4.0]]
    arms = tuple("abcd")
    scores = RunScores(arms, tuple(range(30)), values, np.zeros(values.shape, dtype=np.bool_))
    contrasts = against_baseline(arms, "a")
    found = ContrastFamily(scores, contrasts, is_lower_better=True, n_seeds=30).judge()
    for each, own in zip(found.differences, values[1:], strict=True):
        assert each.p_raw == pytest.approx(ttest_rel(own, values[0]).pvalue, rel=1e-6)
        assert each.p >= each.p_raw


@pytest.mark.parametrize("pairs", ["baseline", "all"])
@pytest.mark.parametrize("sizes", [(3, 3, 3), (8, 8, 8, 8), (9, 4, 4, 4, 4), (5,) * 8])
def test_families_with_a_pooled_variance_have_the_p_of_dunnett_and_of_tukey(pairs, sizes):
    rng = np.random.default_rng([len(sizes), sum(sizes)])
    samples = [rng.normal(0.5 * (arm % 3), 1.0, n) for arm, n in enumerate(sizes)]
    arms = [str(arm) for arm in range(len(sizes))]
    firsts = range(len(arms)) if pairs == "all" else range(1)
    contrasts = [
        arm_less(arms[arm], arms[first])
        for first in firsts
        for arm in range(first + 1 if pairs == "all" else 1, len(arms))
    ]
    weights = weights_of(contrasts, arms)
    freedom = float(sum(sizes) - len(sizes))
    pooled = sum(float(((own - own.mean()) ** 2).sum()) for own in samples) / freedom
    covariance = pooled * weights @ np.diag(1.0 / np.array(sizes)) @ weights.T
    largest = Largest(correlation_of(covariance), len(contrasts))
    means = weights @ [own.mean() for own in samples]
    spreads = [
        known_spread(mean, own, freedom, 2)
        for mean, own in zip(means, np.diag(covariance), strict=True)
    ]
    found = [Uncertainty(spread).p(spread.mean, largest) for spread in spreads]
    if pairs == "all":
        expected = tukey_hsd(*samples).pvalue[np.triu_indices(len(sizes), 1)]
    else:
        expected = dunnett(*samples[1:], control=samples[0], rng=np.random.default_rng(0)).pvalue
    assert found == pytest.approx(expected, rel=0.02, abs=0.003)
