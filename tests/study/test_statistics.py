"""Verdicts: known values worked by hand, scipy as oracle, and the error rates that they promise."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from sublayer.errors import ConfigError
from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.objective.metric import Metric
from sublayer.study.report.messages import more_seeds
from sublayer.study.statistics import (
    compare_arms,
    critical_t,
    detectable_difference,
    holm,
    paired_interval,
    seeds_to_decide,
    spread_interval,
)

ACCURACY = Metric("accuracy", "accuracy", is_lower_better=False, from_items=None)
RECORDS = Path(__file__).parents[2] / "records"


def seeded(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def test_the_interval_equals_one_worked_out_by_hand():
    # mean 2, sd 1, standard error 1 / sqrt(3), t(0.975, 2) = 4.302653
    low, high = paired_interval([1.0, 2.0, 3.0])
    assert low == pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-6)
    assert high == pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-6)


def test_two_comparisons_use_the_quantile_of_half_the_error():
    assert critical_t(5, 2) == pytest.approx(3.495406, abs=1e-6)  # t(0.9875, 4), tables


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=2, max_size=9))
def test_interval_and_p_equal_those_of_scipy(pairs: list[tuple[float, float]]):
    arm, baseline = (np.array(column) for column in zip(*pairs, strict=True))
    if np.std(arm - baseline) < 1e-6:
        return
    values = {"baseline": seeded(*baseline), "arm": seeded(*arm)}
    (difference,) = compare_arms("baseline", values, BITS_PER_BYTE, planned_seeds=len(pairs))
    expected = ttest_rel(arm, baseline)
    interval = expected.confidence_interval(0.95)
    assert difference.p == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    assert (difference.low, difference.high) == pytest.approx(
        (interval.low, interval.high), rel=1e-6, abs=1e-9
    )


@pytest.mark.parametrize(("metric", "verdict"), [(BITS_PER_BYTE, "better"), (ACCURACY, "worse")])
def test_lower_is_better_or_worse_as_the_metric_says(metric: Metric, verdict: str):
    values = {"a": seeded(2.0, 2.1, 2.2), "b": seeded(1.0, 1.11, 1.2)}
    (difference,) = compare_arms("a", values, metric, planned_seeds=3)
    assert difference.mean == pytest.approx(-0.99667, abs=1e-5)
    assert difference.verdict == verdict


def test_holm_equals_the_adjustment_worked_out_by_hand():
    # sorted: 0.01 * 4, 0.02 * 3, 0.03 * 2 (kept at 0.06), 0.5 * 1
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


def test_a_comparison_without_p_still_counts_in_the_family():
    assert holm([None, 0.02]) == [None, 0.04]


def test_the_verdict_follows_the_interval_and_not_the_p_value_of_holm():
    # five pairs, mean 1, sd 0.6: alone |t| = 3.73 > 2.78; Holm leaves the larger p uncorrected,
    # Bonferroni does not
    noisy = (
        np.array([-1.0, -0.5, 0.0, 0.5, 1.0]) * 0.6 / np.std([-1.0, -0.5, 0.0, 0.5, 1.0], ddof=1)
    )
    values = {
        "base": seeded(*np.zeros(5)),
        "sure": seeded(*(5 + noisy / 100)),
        "unsure": seeded(*(0.85 + noisy)),
    }
    sure, unsure = compare_arms("base", values, BITS_PER_BYTE, planned_seeds=5)
    assert sure.verdict == "worse"
    assert unsure.p is not None
    assert unsure.p < 0.05
    assert unsure.verdict == "undecided"


def test_equal_arms_cannot_be_told_apart():
    values = {"a": seeded(2.0, 2.1), "b": seeded(2.0, 2.1)}
    (difference,) = compare_arms("a", values, BITS_PER_BYTE, planned_seeds=2)
    assert (difference.verdict, difference.mean, difference.p) == ("undecided", 0.0, 1.0)
    assert difference.more_seeds is None
    assert difference.note == "equal on every seed"


def test_the_same_difference_on_every_seed_is_decided_and_said():
    values = {"a": seeded(2.0, 2.5), "b": seeded(1.0, 1.5)}
    (difference,) = compare_arms("a", values, BITS_PER_BYTE, planned_seeds=2)
    assert (difference.verdict, difference.low, difference.high) == ("better", -1.0, -1.0)
    assert difference.note == "the same difference on every seed"


def test_failed_seeds_leave_the_pairs_that_both_arms_finished():
    values = {"a": {0: 1.0, 1: 1.0, 2: 1.1, 4: 1.2}, "b": {1: 2.0, 2: 2.2, 3: 2.0}}
    (difference,) = compare_arms("a", values, BITS_PER_BYTE, planned_seeds=5)
    assert difference.seeds == (1, 2)
    assert difference.mean == pytest.approx(1.05)
    assert difference.note == "2 of 5 seeds finished in both arms"


def test_an_arm_that_failed_everywhere_gets_no_interval_and_still_corrects_the_others():
    alone = {"a": seeded(1.0, 1.2, 1.1), "b": seeded(2.0, 2.3, 2.2)}
    (without,) = compare_arms("a", alone, BITS_PER_BYTE, planned_seeds=3)
    failed, beside = compare_arms(
        "a", {"a": alone["a"], "c": {}, "b": alone["b"]}, BITS_PER_BYTE, planned_seeds=3
    )
    assert (failed.verdict, failed.mean, failed.low, failed.p) == ("undecided", None, None, None)
    assert beside.high is not None
    assert without.high is not None
    assert beside.high > without.high


def test_arms_of_which_no_run_has_ended_correct_the_others():
    values = {"base": seeded(1.0, 1.1, 1.2), "arm": seeded(0.8, 0.95, 0.9)}
    (found,) = compare_arms("base", values, BITS_PER_BYTE, planned_seeds=3, n_awaited=2)
    waiting = {"later": seeded(), "last": seeded()}
    with_them = compare_arms("base", {**values, **waiting}, BITS_PER_BYTE, planned_seeds=3)
    assert found == with_them[0]
    (alone,) = compare_arms("base", values, BITS_PER_BYTE, planned_seeds=3)
    assert found.low < alone.low and found.p > alone.p


def test_one_planned_seed_gives_the_difference_and_no_verdict():
    values = {"a": seeded(1.0), "b": seeded(2.0), "c": {}, "d": seeded(1.0)}
    b, c, d = compare_arms("a", values, BITS_PER_BYTE, planned_seeds=1)
    assert (b.seeds, b.mean, c.seeds, c.mean, d.mean) == ((0,), 1.0, (), None, 0.0)
    for difference in (b, c, d):
        assert difference.verdict == "no verdict"
        assert difference.sd is difference.low is difference.high is None
        assert difference.p is difference.p_raw is None
        assert difference.more_seeds is difference.detectable is None


def test_two_planned_seeds_of_which_one_finished_cannot_tell():
    values = {"a": seeded(1.0), "b": seeded(2.0)}
    (difference,) = compare_arms("a", values, BITS_PER_BYTE, planned_seeds=2)
    assert difference.verdict == "undecided"


def test_no_seed_is_too_few():
    with pytest.raises(ConfigError, match="at least 1"):
        compare_arms("a", {"a": {}, "b": {}}, BITS_PER_BYTE, planned_seeds=0)


@pytest.mark.parametrize(("mean", "sd", "n"), [(1.0, 1.0, 7), (-1.0, 1.0, 7), (1.0, 0.3, 3)])
def test_seeds_to_decide_is_the_first_interval_that_excludes_no_difference(
    mean: float, sd: float, n: int
):
    # t(0.975, 6) / sqrt(7) = 0.925 < 1 < t(0.975, 5) / sqrt(6) = 1.049; 0.3 t / sqrt(n) is 2.70 at
    # 2, 0.745 at 3
    assert seeds_to_decide(mean, sd, n_comparisons=1) == n


def test_differences_beyond_a_thousand_seeds_are_left_open():
    assert seeds_to_decide(0.01, 1.0, n_comparisons=1) is None
    assert seeds_to_decide(0.0, 1.0, n_comparisons=1) is None


@pytest.mark.parametrize(("n_pairs", "n_comparisons"), [(2, 1), (3, 4), (5, 4), (30, 10)])
def test_the_detectable_difference_is_decided_four_times_in_five(n_pairs: int, n_comparisons: int):
    true = detectable_difference(0.7, n_pairs=n_pairs, n_comparisons=n_comparisons)
    pairs = np.random.default_rng(3).normal(true, 0.7, size=(20_000, n_pairs))
    half = critical_t(n_pairs, n_comparisons) * pairs.std(axis=1, ddof=1) / math.sqrt(n_pairs)
    assert np.mean(pairs.mean(axis=1) > half) == pytest.approx(0.8, abs=0.01)


@pytest.mark.slow
def test_a_family_of_comparisons_errs_in_at_most_one_study_of_twenty():
    rng = np.random.default_rng(5)
    n_studies, wrong = 400, 0
    for _ in range(n_studies):
        seed_effect = rng.normal(0, 0.02, size=5)
        values = {name: seeded(*(2 + seed_effect + rng.normal(0, 0.01, size=5))) for name in "abcd"}
        verdicts = [difference.verdict for difference in _quick(values)]
        wrong += any(verdict != "undecided" for verdict in verdicts)
    assert wrong / n_studies < 0.05 + 2.33 * math.sqrt(0.05 * 0.95 / n_studies)


def test_comparing_an_arm_with_itself_errs_at_most_eleven_times_in_a_hundred():
    values = _recorded_values()
    if len(values) < 10:
        pytest.skip(f"records hold {len(values)} seeds of one arm; a simulation needs at least 10")
    rng = np.random.default_rng(7)
    called = 0
    for _ in range(100):
        drawn = rng.permutation(values)[:10]
        called += (
            _quick({"a": seeded(*drawn[:5]), "b": seeded(*drawn[5:])})[0].verdict != "undecided"
        )
    assert called <= 11


def _quick(values: dict[str, dict[int, float]]) -> list:
    return compare_arms("a", values, BITS_PER_BYTE, planned_seeds=5)


def _recorded_values() -> list[float]:
    arms = [
        arm["values"]
        for path in sorted(RECORDS.rglob("results.json"))
        for arm in json.loads(path.read_text())["arms"]
    ]
    return max(arms, key=len, default=[])


def test_an_arm_may_be_compared_with_another_than_the_baseline() -> None:
    values = {
        name: dict(enumerate(numbers))
        for name, numbers in {"a": [1, 2, 3], "b": [5, 6, 7.5], "c": [7, 9, 11]}.items()
    }
    b, c = compare_arms("a", values, BITS_PER_BYTE, planned_seeds=3, against={"c": "b"})
    assert (b.arm, b.baseline, c.arm, c.baseline) == ("b", "a", "c", "b")
    assert c.mean == pytest.approx((2 + 3 + 3.5) / 3)
    (alone,) = compare_arms(
        "b", {"b": values["b"], "c": values["c"]}, BITS_PER_BYTE, planned_seeds=3
    )
    assert c.p_raw == alone.p_raw
    assert (
        c.low is not None and alone.low is not None and c.low < alone.low
    )  # corrected for two comparisons
    (only,) = compare_arms(
        "a", values, BITS_PER_BYTE, planned_seeds=3, against={"c": "b", "b": "b"}
    )
    assert (only.arm, only.baseline, only.low) == ("c", "b", alone.low)


def test_the_interval_of_a_spread_is_that_of_the_chi_squared_distribution():
    # 2 / 7.378 and 2 / 0.05064 are (0.5207, 6.285) squared.
    assert spread_interval(1.0, 3) == pytest.approx((0.5207, 6.285), rel=1e-3)


def test_three_seeds_estimate_how_many_would_decide_with_a_range():
    values = {"a": seeded(1.0, 1.0, 1.0), "b": seeded(1.1, 1.2, 1.6)}
    (difference,) = compare_arms("a", values, BITS_PER_BYTE, planned_seeds=3)
    fewest, about, most = (
        difference.fewest_more_seeds,
        difference.more_seeds,
        difference.most_more_seeds,
    )
    assert fewest is not None and about is not None and most is not None
    assert 1 <= fewest < about < most
    low, high = spread_interval(difference.sd or 0.0, 3)
    assert seeds_to_decide(difference.mean or 0.0, high, n_comparisons=1) == most + 3
    assert seeds_to_decide(difference.mean or 0.0, low, n_comparisons=1) == fewest + 3


def test_two_seeds_give_no_estimate():
    values = {"a": seeded(1.0, 1.0), "b": seeded(1.1, 1.2)}
    (difference,) = compare_arms("a", values, BITS_PER_BYTE, planned_seeds=2)
    assert difference.verdict == "undecided"
    assert difference.more_seeds is difference.fewest_more_seeds is None
    assert more_seeds(difference) == "no estimate"
