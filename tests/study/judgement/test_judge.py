"""Verdicts: known values worked by hand, scipy as oracle, and the error rates that they promise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit
from scipy.stats import mannwhitneyu, ttest_ind

from sublayer.errors import ConfigError
from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.objective.metric import Metric
from sublayer.study.judgement.contrast import Contrast, arm_less
from sublayer.study.judgement.failed_runs import rank_p
from sublayer.study.judgement.judge import Evidence, judge
from sublayer.study.judgement.looks import ERROR
from sublayer.study.judgement.power import detectable_effect, seeds_for, spread_interval
from sublayer.study.judgement.seed_spread import Estimate, SeedSpread
from sublayer.study.judgement.simultaneous import Family
from tests.breadth import rows

ACCURACY = Metric("accuracy", "accuracy", is_lower_better=False, from_items=None)


def seeded(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def judged(values: dict[str, dict[int, float]], metric: Metric = BITS_PER_BYTE, **options):
    n_seeds = options.pop("planned_seeds", max(map(len, values.values())))
    baseline = next(iter(values))
    return judge(baseline, values, metric, planned_seeds=n_seeds, **options).differences


SEEDS = st.lists(st.floats(-9, 9), min_size=3, max_size=9)


@given(SEEDS, SEEDS)
def test_two_arms_whose_seeds_do_not_vary_together_have_welchs_test(own, others):
    values = {"a": seeded(*own), "b": seeded(*others)}
    spread = SeedSpread(values, 0.0)
    if np.std(own) < 1e-3 or np.std(others) < 1e-3 or spread.pairing.is_paired:
        return
    (found,) = judged(values, level=ERROR)
    expected = ttest_ind(others, own, equal_var=False)
    assert found.p_raw == pytest.approx(expected.pvalue, rel=1e-4, abs=1e-9)
    interval = expected.confidence_interval(1 - ERROR)
    ends = (interval.low, interval.high)
    assert (found.low, found.high) == pytest.approx(ends, rel=1e-4, abs=1e-6)


def test_arms_that_vary_together_are_compared_seed_by_seed():
    # differences 1, 2, 3, 2: mean 2, sd sqrt(2/3), t(1 - 0.04 / 2, 3) = 3.4819
    values = {"a": seeded(100, 200, 300, 250), "b": seeded(101, 202, 303, 252)}
    (difference,) = judged(values, level=ERROR)
    half = 3.4819 * math.sqrt(2 / 3) / 2
    assert difference.mean == 2.0
    assert difference.high - difference.mean == pytest.approx(half, rel=1e-3)
    judgement = judge("a", values, BITS_PER_BYTE, planned_seeds=4)
    assert judgement.pairing.is_paired
    assert judgement.pairing.correlation == pytest.approx(1.0, abs=0.001)


def test_unequal_spreads_move_towards_their_mean_and_no_further():
    # Variances 0.01 and 1, 1, 1: the first moves up, the others down, and their order stays.
    values = {"calm": seeded(0.0, 0.1, 0.2), "x": seeded(0.0, 1.0, 2.0)}
    values |= {"y": seeded(2.0, 0.0, 1.0), "z": seeded(1.0, 2.0, 0.0)}
    variances = SeedSpread(values, 0.0)._own.variances
    assert 0.01 < variances["calm"] < variances["x"] < 1.0
    assert variances["x"] == variances["y"] == variances["z"]


def test_differences_from_one_arm_lend_each_other_degrees_of_freedom():
    # Four degrees each, and of three alike half of another four: less than 12 / (1 + (3 - 1) / 4).
    alone = [100.0, 200.0, 300.0, 250.0, 150.0]
    rises = {"b": (1, 2, 3, 2, 2), "c": (2, 3, 2, 1, 2), "d": (2, 2, 1, 2, 3)}
    values = {"a": seeded(*alone)}
    values |= {arm: seeded(*map(sum, zip(alone, own, strict=True))) for arm, own in rises.items()}
    estimates = SeedSpread(values, 0.0).estimates([arm_less(arm, "a") for arm in rises])
    expected = Estimate(mean=2.0, variance=0.1, freedom=6.0, single=0.5)
    assert list(estimates.values()) == [expected] * 3


@pytest.mark.parametrize(("metric", "verdict"), [(BITS_PER_BYTE, "better"), (ACCURACY, "worse")])
def test_lower_is_better_or_worse_as_the_metric_says(metric: Metric, verdict: str):
    values = {"a": seeded(2.0, 2.1, 2.2), "b": seeded(1.0, 1.11, 1.2)}
    (difference,) = judged(values, metric)
    assert difference.mean == pytest.approx(-0.99667, abs=1e-5)
    assert difference.verdict == verdict


@given(st.integers(2, 5), st.integers(3, 6), st.floats(0, 4), st.integers(0, 10**6))
def test_interval_and_p_never_disagree(n_arms: int, n_seeds: int, effect: float, draw: int):
    rng = np.random.default_rng(draw)
    values = {str(arm): seeded(*rng.normal(effect * arm, 1, n_seeds)) for arm in range(n_arms)}
    for difference in judged(values):
        excludes_zero = difference.low > 0 or difference.high < 0
        assert excludes_zero == (difference.p <= 0.05)
        assert excludes_zero == (difference.verdict in ("better", "worse"))


def test_the_margin_and_the_resolution_of_the_metric_decide_what_matters():
    values = {"a": seeded(1.0, 1.01, 0.99), "b": seeded(1.0, 0.99, 1.01)}
    found = [judged(values, evidence=Evidence(margin=each)) for each in (None, 0.001, 0.5)]
    verdicts = ["cannot tell", "cannot tell", "no difference that matters"]
    assert [each.verdict for (each,) in found] == verdicts
    # What is surely not 0 may still not matter.
    values["b"] = seeded(1.05, 1.06, 1.04)
    (small,) = judged(values, evidence=Evidence(margin=0.5))
    assert small.low > 0 and small.verdict == "no difference that matters"
    # The same difference on every seed is no proof where it is one of 40 items.
    for score, verdict in ((0.525, "cannot tell"), (0.9, "better")):
        same = {"a": seeded(0.5, 0.5, 0.5), "b": seeded(score, score, score)}
        (difference,) = judged(same, ACCURACY, evidence=Evidence(resolution=0.025))
        assert difference.verdict == verdict


def test_a_run_that_failed_counts_as_the_worst():
    fine = {seed: 2.0 + seed / 100 for seed in range(5)}
    values = {"a": fine, "b": {0: 1.0}}  # one that survived is far better
    evidence = Evidence(failed={"b": (1, 2, 3, 4)})
    (difference,) = judged(values, planned_seeds=5, evidence=evidence)
    assert difference.by_ranks
    assert difference.n_failed == (4, 0)
    assert difference.verdict == "cannot tell"
    (all_failed,) = judged(
        {"a": fine, "b": {}}, planned_seeds=5, evidence=Evidence(failed={"b": (0, 1, 2, 3, 4)})
    )
    assert all_failed.verdict == "worse"
    assert all_failed.p_raw == pytest.approx(2 / math.comb(10, 5))


def test_failures_against_an_arm_that_no_run_has_ended_of_tell_nothing():
    values = {"a": seeded(2.0, 2.1, 2.2), "b": {0: 2.0}}
    evidence = Evidence(failed={"b": (1, 2)})
    (difference,) = judged(values, against={"b": "c", "a": "a"}, evidence=evidence)
    assert (difference.baseline, difference.verdict) == ("c", "cannot tell")
    assert (difference.by_ranks, difference.n_failed) == (True, (2, 0))


RANKED = st.lists(st.integers(0, 4), min_size=1, max_size=6)


@given(RANKED, RANKED)
def test_the_rank_test_is_the_exact_permutation_test(own, others):
    p, surplus = rank_p(own, others, 0, 0, is_lower_better=False)
    if len({*own, *others}) == len(own) + len(others):
        assert p == pytest.approx(mannwhitneyu(own, others, method="exact").pvalue)
    worse, opposite = rank_p(own, others, 0, 0, is_lower_better=True)
    assert (p, surplus) == pytest.approx((worse, -opposite))
    # Failures of both are tied as the worst: ranks 4, 1.5 and 3, 1.5.
    assert rank_p([2.0], [1.0], 1, 1, is_lower_better=False) == (1.0, pytest.approx(0.5))


def test_an_arm_that_failed_everywhere_still_corrects_the_others():
    alone = {"a": seeded(1.0, 1.2, 1.1), "b": seeded(2.0, 2.3, 2.2)}
    (without,) = judged(alone)
    failed, beside = judged({"a": alone["a"], "c": {}, "b": alone["b"]})
    assert (failed.verdict, failed.mean, failed.low, failed.p) == ("cannot tell", None, None, None)
    assert beside.high > without.high
    (awaited,) = judged(alone, n_awaited=2)
    assert awaited.high > without.high and awaited.p > without.p


@pytest.mark.parametrize("n_seeds", [1, 2])
def test_fewer_than_three_seeds_give_the_difference_and_no_verdict(n_seeds: int):
    values = {"a": seeded(*[1.0, 1.5][:n_seeds]), "b": seeded(*[2.0, 2.6][:n_seeds]), "c": {}}
    b, c = judged(values)
    assert (b.mean, c.mean) == (pytest.approx(1.0 if n_seeds == 1 else 1.05), None)
    for difference in (b, c):
        assert difference.verdict == "no verdict"
        assert difference.sd is difference.low is difference.p is difference.detectable is None
    with pytest.raises(ConfigError, match="at least 1"):
        judge("a", {"a": {}, "b": {}}, BITS_PER_BYTE, planned_seeds=0)


def test_a_contrast_of_four_arms_is_their_weighted_sum():
    rng = np.random.default_rng(1)
    values = {name: seeded(*rng.normal(0, 1, 5)) for name in "abcd"}
    weights = {"a": 1.0, "b": -1.0, "c": -1.0, "d": 1.0}
    *_, interaction = judged(values, further=[Contrast("all", "", weights)])
    expected = sum(weights[name] * np.mean(list(own.values())) for name, own in values.items())
    assert interaction.mean == pytest.approx(expected)
    assert interaction.low < expected < interaction.high


def test_the_detectable_difference_is_found_four_times_in_five():
    freedom, level = 18, 0.045
    shift = detectable_effect(float(freedom), level)
    rng = np.random.default_rng(3)
    t = (rng.normal(size=40_000) + shift) / np.sqrt(rng.chisquare(freedom, 40_000) / freedom)
    assert np.mean(t > -stdtrit(freedom, level / 2)) == pytest.approx(0.8, abs=0.008)
    assert seeds_for(lambda n: 10 / n, 2.0) == 5
    assert seeds_for(lambda n: 1.0, 0.5) is None
    # The interval of a spread: 2 / 7.378 and 2 / 0.05064 are (0.5207, 6.285) squared.
    assert spread_interval(1.0, 2) == pytest.approx((0.5207, 6.285), rel=1e-3)


def test_families_of_comparisons_have_the_critical_values_of_sidak_and_dunnett():
    alone, independent = Family(np.eye(1), [4.0]), Family(np.eye(4), [1e6] * 4)
    assert (alone.adjusted(0.03), alone.single(0.045)) == (0.03, 0.045)
    assert independent.adjusted(0.02) == pytest.approx(1 - 0.98**4, abs=0.002)
    assert independent.single(0.05) == pytest.approx(1 - 0.95**0.25, rel=0.03)
    # Dunnett's table, two-sided 5 %, 3 treatments, 20 degrees of freedom: 2.54
    correlation = np.full((3, 3), 0.5) + 0.5 * np.eye(3)
    single = Family(correlation, [20.0] * 3).single(0.05)
    assert -stdtrit(20, single / 2) == pytest.approx(2.54, abs=0.015)


SIZES = [(2, 3), (4, 3), (4, 5), (3, 8)]


@pytest.mark.parametrize(
    ("n_arms", "n_seeds", "correlation"),
    rows([(*sizes, share) for sizes in SIZES for share in (0.0, 0.95, 0.5)], 3),
)
def test_a_family_of_comparisons_errs_in_at_most_one_study_of_twenty(
    n_arms: int, n_seeds: int, correlation: float
):
    rng = np.random.default_rng(5)
    n_studies, wrong = 250, 0
    for _ in range(n_studies):
        common = rng.normal(0, math.sqrt(correlation), n_seeds)
        own = rng.normal(0, math.sqrt(1 - correlation), (n_arms, n_seeds))
        values = {str(arm): seeded(*(common + own[arm])) for arm in range(n_arms)}
        wrong += any(each.verdict != "cannot tell" for each in judged(values, level=ERROR))
    assert wrong / n_studies < 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / n_studies)
