"""Verdicts: known values worked by hand, scipy as oracle, and the error rates that they promise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, ttest_ind

from sublayer.errors import ConfigError
from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.objective.metric import Metric
from sublayer.study.judgement.contrast import Contrast
from sublayer.study.judgement.difference import Difference
from sublayer.study.judgement.failed_runs import rank_p
from sublayer.study.judgement.judge import Evidence, judge
from sublayer.study.judgement.looks import ERROR
from sublayer.study.judgement.power import detectable_effect, seeds_for, spread_interval
from sublayer.study.judgement.seed_spread import SeedSpread
from sublayer.study.judgement.simultaneous import Family
from tests.breadth import rows

ACCURACY = Metric("accuracy", "accuracy", is_lower_better=False, from_items=None)


def seeded(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def judged(values: dict[str, dict[int, float]], metric: Metric = BITS_PER_BYTE, **options):
    n_seeds = options.pop("planned_seeds", max(map(len, values.values())))
    baseline = next(iter(values))
    return judge(baseline, values, metric, planned_seeds=n_seeds, **options).differences


@given(
    st.lists(st.floats(-9, 9), min_size=3, max_size=9),
    st.lists(st.floats(-9, 9), min_size=3, max_size=9),
)
def test_two_arms_whose_seeds_do_not_vary_together_have_welchs_test(own, others):
    values = {"a": seeded(*own), "b": seeded(*others)}
    spread = SeedSpread(values, 0.0)
    if np.std(own) < 1e-3 or np.std(others) < 1e-3 or spread.pairing.is_paired:
        return
    (difference,) = judged(values, level=ERROR)
    expected = ttest_ind(others, own, equal_var=False)
    assert difference.p_raw == pytest.approx(expected.pvalue, rel=1e-4, abs=1e-9)
    interval = expected.confidence_interval(1 - ERROR)
    assert (difference.low, difference.high) == pytest.approx(
        (interval.low, interval.high), rel=1e-4, abs=1e-6
    )


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
    values = {
        "calm": seeded(0.0, 0.1, 0.2),
        "x": seeded(0.0, 1.0, 2.0),
        "y": seeded(2.0, 0.0, 1.0),
        "z": seeded(1.0, 2.0, 0.0),
    }
    spread = SeedSpread(values, 0.0)
    variances = spread._own.variances
    assert 0.01 < variances["calm"] < variances["x"] < 1.0
    assert variances["x"] == variances["y"] == variances["z"]


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


def test_the_margin_decides_that_a_difference_does_not_matter():
    values = {"a": seeded(1.0, 1.01, 0.99), "b": seeded(1.0, 0.99, 1.01)}
    (without,) = judged(values)
    (inside,) = judged(values, evidence=Evidence(margin=0.5))
    (narrow,) = judged(values, evidence=Evidence(margin=0.001))
    assert without.verdict == narrow.verdict == "cannot tell"
    assert inside.verdict == "no difference that matters"
    # What is surely not 0 may still not matter.
    values["b"] = seeded(1.05, 1.06, 1.04)
    (small,) = judged(values, evidence=Evidence(margin=0.5))
    assert small.low > 0 and small.verdict == "no difference that matters"


def test_the_same_difference_on_every_seed_is_no_proof_below_the_metrics_resolution():
    values = {"a": seeded(0.5, 0.5, 0.5), "b": seeded(0.525, 0.525, 0.525)}  # one of 40 items
    (difference,) = judged(values, ACCURACY, evidence=Evidence(resolution=0.025))
    assert difference.verdict == "cannot tell"
    (large,) = judged(
        {"a": values["a"], "b": seeded(0.9, 0.9, 0.9)},
        ACCURACY,
        evidence=Evidence(resolution=0.025),
    )
    assert large.verdict == "better"


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


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
)
def test_the_rank_test_is_the_exact_permutation_test(own, others):
    p, surplus = rank_p(own, others, 0, 0, is_lower_better=False)
    if len({*own, *others}) == len(own) + len(others):
        assert p == pytest.approx(mannwhitneyu(own, others, method="exact").pvalue)
    worse, opposite = rank_p(own, others, 0, 0, is_lower_better=True)
    assert (p, surplus) == pytest.approx((worse, -opposite))


def test_failures_of_both_are_tied_as_the_worst():
    # Ranks: own 4, 1.5 (failed), others 3, 1.5 (failed): sums 5.5, 4.5 among 2.5 to 7 and the like.
    p, surplus = rank_p([2.0], [1.0], 1, 1, is_lower_better=False)
    assert surplus == pytest.approx(0.5)
    assert p == 1.0


def test_arms_of_which_no_run_has_ended_correct_the_others():
    values = {"base": seeded(1.0, 1.1, 1.2), "arm": seeded(0.8, 0.95, 0.9)}
    (alone,) = judged(values)
    (found,) = judged(values, n_awaited=2)
    assert found.low < alone.low and found.p > alone.p


def test_an_arm_that_failed_everywhere_still_corrects_the_others():
    alone = {"a": seeded(1.0, 1.2, 1.1), "b": seeded(2.0, 2.3, 2.2)}
    (without,) = judged(alone)
    failed, beside = judged({"a": alone["a"], "c": {}, "b": alone["b"]})
    assert (failed.verdict, failed.mean, failed.low, failed.p) == ("cannot tell", None, None, None)
    assert beside.high > without.high


@pytest.mark.parametrize("n_seeds", [1, 2])
def test_fewer_than_three_seeds_give_the_difference_and_no_verdict(n_seeds: int):
    values = {"a": seeded(*[1.0, 1.5][:n_seeds]), "b": seeded(*[2.0, 2.6][:n_seeds]), "c": {}}
    b, c = judged(values)
    assert b.mean == pytest.approx(1.0 if n_seeds == 1 else 1.05)
    assert c.mean is None
    for difference in (b, c):
        assert difference.verdict == "no verdict"
        assert difference.sd is difference.low is difference.p is difference.detectable is None


def test_no_seed_is_too_few():
    with pytest.raises(ConfigError, match="at least 1"):
        judge("a", {"a": {}, "b": {}}, BITS_PER_BYTE, planned_seeds=0)


def test_an_arm_may_be_compared_with_another_than_the_baseline():
    values = {"a": seeded(1, 2, 3), "b": seeded(5, 6, 7.5), "c": seeded(7, 9, 11)}
    b, c = judged(values, against={"c": "b"})
    assert (b.arm, b.baseline, c.arm, c.baseline) == ("b", "a", "c", "b")
    assert c.mean == pytest.approx((2 + 3 + 3.5) / 3)
    (only,) = judged(values, against={"c": "b", "b": "b"})
    assert (only.arm, only.baseline) == ("c", "b")


def test_a_contrast_of_four_arms_is_their_weighted_sum():
    rng = np.random.default_rng(1)
    values = {name: seeded(*rng.normal(0, 1, 5)) for name in "abcd"}
    weights = {"a": 1.0, "b": -1.0, "c": -1.0, "d": 1.0}
    *_, interaction = judged(values, further=[Contrast("all", "", weights)])
    means = {name: np.mean(list(own.values())) for name, own in values.items()}
    expected = means["a"] - means["b"] - means["c"] + means["d"]
    assert interaction.mean == pytest.approx(expected)
    assert interaction.low < expected < interaction.high


@pytest.mark.parametrize(("freedom", "level"), [(2, 0.05), (18, 0.045)])
def test_the_detectable_difference_is_found_four_times_in_five(freedom: int, level: float):
    from scipy.special import stdtrit

    shift = detectable_effect(float(freedom), level)
    rng = np.random.default_rng(3)
    t = (rng.normal(size=40_000) + shift) / np.sqrt(rng.chisquare(freedom, 40_000) / freedom)
    found = np.mean(t > -stdtrit(freedom, level / 2))
    assert found == pytest.approx(0.8, abs=0.008)


def test_more_seeds_are_those_that_would_find_the_difference_four_times_in_five():
    assert seeds_for(lambda n: 10 / n, 2.0) == 5
    assert seeds_for(lambda n: 1.0, 0.5) is None
    rng = np.random.default_rng(2)
    values = {"a": seeded(*rng.normal(0, 1, 5)), "b": seeded(*rng.normal(1, 1, 5))}
    (difference,) = judged(values)
    assert difference.fewest_more_seeds < difference.more_seeds
    assert difference.most_more_seeds is None or difference.most_more_seeds > difference.more_seeds


def test_the_interval_of_a_spread_is_that_of_the_chi_squared_distribution():
    # 2 / 7.378 and 2 / 0.05064 are (0.5207, 6.285) squared.
    assert spread_interval(1.0, 2) == pytest.approx((0.5207, 6.285), rel=1e-3)


def test_a_single_comparison_is_corrected_for_nothing():
    family = Family(np.eye(1), [4.0])
    assert (family.adjusted(0.03), family.single(0.045)) == (0.03, 0.045)


def test_independent_comparisons_are_corrected_as_sidak_has_it():
    family = Family(np.eye(4), [1e6] * 4)
    assert family.adjusted(0.02) == pytest.approx(1 - 0.98**4, abs=0.002)
    assert family.single(0.05) == pytest.approx(1 - 0.95**0.25, rel=0.03)


def test_comparisons_with_one_baseline_have_dunnetts_critical_value():
    # Dunnett's table, two-sided 5 %, 3 treatments, 20 degrees of freedom: 2.54
    from scipy.special import stdtrit

    correlation = np.full((3, 3), 0.5) + 0.5 * np.eye(3)
    single = Family(correlation, [20.0] * 3).single(0.05)
    assert -stdtrit(20, single / 2) == pytest.approx(2.54, abs=0.015)


SIZES = [(2, 3), (4, 3), (4, 5), (3, 8)]


def _false_verdicts(draw, n_studies: int) -> float:
    wrong = 0
    for _ in range(n_studies):
        found: tuple[Difference, ...] = judged(draw(), level=ERROR)
        wrong += any(difference.verdict != "cannot tell" for difference in found)
    return wrong / n_studies


@pytest.mark.parametrize(
    ("n_arms", "n_seeds", "correlation"),
    rows([(*sizes, share) for sizes in SIZES for share in (0.0, 0.95, 0.5)], 4),
)
def test_a_family_of_comparisons_errs_in_at_most_one_study_of_twenty(
    n_arms: int, n_seeds: int, correlation: float
):
    rng = np.random.default_rng(5)

    def draw() -> dict[str, dict[int, float]]:
        common = rng.normal(0, math.sqrt(correlation), n_seeds)
        own = rng.normal(0, math.sqrt(1 - correlation), (n_arms, n_seeds))
        return {str(arm): seeded(*(common + own[arm])) for arm in range(n_arms)}

    n_studies = 250
    share = _false_verdicts(draw, n_studies)
    assert share < 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / n_studies)
