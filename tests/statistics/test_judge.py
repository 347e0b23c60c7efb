"""Verdicts: values by hand, tests of scipy, and the error rates that they promise."""

import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit
from scipy.stats import dunnett, mannwhitneyu, ttest_ind, ttest_rel, tukey_hsd

from sublayer.config.load import load_recipe
from sublayer.errors import ConfigError
from sublayer.evaluation.effects import item_effects
from sublayer.evaluation.items import FromItems, ItemTable, Metric
from sublayer.objective.causal import BITS_PER_BYTE
from sublayer.statistics import contrasts as contrasting
from sublayer.statistics import covariance
from sublayer.statistics import looks as planning
from sublayer.statistics.contrasts import (
    DECIDED,
    ERROR,
    Contrast,
    Judgement,
    RunScores,
    Tuned,
    arm_less,
)
from sublayer.statistics.covariance import FEWEST_DOCUMENTS, ItemSpreads, SeedSpreads, known_spread
from sublayer.statistics.judge import ContrastFamily, is_two_valued, one_cluster_p, rank_p
from sublayer.statistics.looks import GOING_ON, Looks, fixed, judge_looks, until_decided
from sublayer.statistics.simultaneous import Largest, Uncertainty, correlation_of
from sublayer.study.arms import PRETRAINING, Arm
from sublayer.study.columns import Column, metric_columns
from sublayer.study.definition import Study
from sublayer.study.evidence import StudyJudge
from sublayer.study.jobs.run import Outcome
from sublayer.study.question import Question, Seeds
from sublayer.study.runs import Runs, StageRuns
from tests.breadth import rows
from tests.study.synthetic import judge_values

ACCURACY = Metric("accuracy", "accuracy", is_lower_better=False, from_items=None)
SEEDS = st.lists(st.floats(-9, 9), min_size=3, max_size=9)
RANKED = st.lists(st.integers(0, 4), min_size=1, max_size=6)
BASE = load_recipe("gpt")
SHARE = FromItems("t", lambda sums: float(sums["right"]) / float(sums["all"]))
METRIC = Metric("share", "share", is_lower_better=False, from_items=SHARE)


def seeded(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def judged(values: dict[str, dict[int, float]], metric: Metric = BITS_PER_BYTE, **options):
    n_seeds = options.pop("planned_seeds", max(map(len, values.values())))
    baseline = next(iter(values))
    return judge_values(baseline, values, metric, planned_seeds=n_seeds, **options).differences


@given(SEEDS, SEEDS)
def test_two_arms_have_the_paired_t_test_and_without_common_seeds_welchs(own, others):
    values = {"a": seeded(*own), "b": seeded(*others)}
    n = min(len(own), len(others))
    differences = np.array(others[:n]) - np.array(own[:n])
    apart = {"a": values["a"], "b": {100 + seed: value for seed, value in values["b"].items()}}
    if np.std(differences) < 1e-3 or np.std(own) < 1e-3 or np.std(others) < 1e-3:
        return
    for each, expected in (
        (values, ttest_rel(others[:n], own[:n])), (apart, ttest_ind(others, own, equal_var=False)),
    ):  # fmt: skip
        (found,) = judged(each)
        interval = expected.confidence_interval(0.95)
        if not found.by_ranks:
            assert (found.p, found.p_raw) == pytest.approx((expected.pvalue,) * 2, abs=1e-9)
            ends = (interval.low, interval.high)
            assert (found.low, found.high) == pytest.approx(ends, rel=1e-4, abs=1e-4)


def test_many_seeds_give_each_difference_of_several_arms_the_paired_t_test():
    table = np.random.default_rng(30).normal(size=(4, 30)) * [[1.0], [2.0], [1.0], [4.0]]
    found = judged({arm: seeded(*own) for arm, own in zip("abcd", table, strict=True)})
    for each, own in zip(found, table[1:], strict=True):
        assert each.p_raw == pytest.approx(ttest_rel(own, table[0]).pvalue, rel=1e-6)
        assert each.p >= each.p_raw


def test_each_of_many_arms_has_the_paired_t_test_whatever_another_does():
    table = np.random.default_rng(31).normal(size=(10, 5))
    table[5] += 9.0
    table[9] *= 1000.0
    arms = [str(arm) for arm in range(10)]
    trials = Tuned((0.0, 0.5), 1)
    values = {arm: seeded(*own) for arm, own in zip(arms, table, strict=True)}
    found = judged(values)
    for each, own in zip(found, table[1:], strict=True):
        plain = ttest_rel(own, table[0])
        bound = plain.confidence_interval(1.0 - 0.05 / 9)
        assert each.p == pytest.approx(min(1.0, 9 * plain.pvalue), rel=1e-4)
        assert (each.low, each.high) == pytest.approx((bound.low, bound.high), rel=1e-4)
    assert found[4].verdict == "worse"
    scores = RunScores.of(values)
    contrasts = contrasting.against_baseline(arms, "0")
    tuned = ContrastFamily(
        scores, contrasts, is_lower_better=True, n_seeds=5, tuned={"0": trials, "1": trials}
    ).judge()
    assert tuned.differences[0].parts.tuning < 1.0
    # Of eight arms, each informs the others.
    eight = judged({arm: values[arm] for arm in arms[:8]})
    assert eight[0].p != pytest.approx(7 * eight[0].p_raw, rel=1e-4)


@pytest.mark.parametrize("pairs", ["baseline", "all"])
@pytest.mark.parametrize("sizes", [(3, 3, 3), (8, 8, 8, 8), (9, 4, 4, 4, 4), (5,) * 8])
def test_families_with_a_pooled_variance_have_the_p_of_dunnett_and_of_tukey(pairs, sizes):
    rng = np.random.default_rng([len(sizes), sum(sizes)])
    samples = [rng.normal(0.5 * (arm % 3), 1.0, n) for arm, n in enumerate(sizes)]
    arms = [str(arm) for arm in range(len(sizes))]
    every = [arm_less(arm, first) for first, arm in combinations(arms, 2)]
    contrasts = every if pairs == "all" else every[: len(arms) - 1]
    weights = contrasting.weights_of(contrasts, arms)
    freedom = float(sum(sizes) - len(sizes))
    pooled = sum(float(((own - own.mean()) ** 2).sum()) for own in samples) / freedom
    products = pooled * weights @ np.diag(1.0 / np.array(sizes)) @ weights.T
    largest = Largest(correlation_of(products), len(contrasts))
    found = []
    for mean, own in zip(weights @ [own.mean() for own in samples], np.diag(products), strict=True):
        found.append(Uncertainty(known_spread(mean, own, freedom, 2)).p(mean, largest))
    if pairs == "all":
        expected = tukey_hsd(*samples).pvalue[np.triu_indices(len(sizes), 1)]
    else:
        expected = dunnett(*samples[1:], control=samples[0], rng=np.random.default_rng(0)).pvalue
    assert found == pytest.approx(expected, rel=0.02, abs=0.003)


def test_differences_by_seed_have_the_interval_worked_out_by_hand():
    # differences 1, 2, 3, 2: mean 2, sd sqrt(2/3), t(0.975, 3) = 3.1824
    values = {"a": seeded(100, 200, 300, 250), "b": seeded(101, 202, 303, 252)}
    judgement = judge_values("a", values, BITS_PER_BYTE, planned_seeds=4)
    (difference,) = judgement.differences
    half = 3.1824 * math.sqrt(2 / 3) / 2
    assert (difference.mean, difference.high - 2.0) == (2.0, pytest.approx(half, rel=1e-3))
    assert difference.excluded == pytest.approx(2.0 + half, rel=1e-3)
    # Two one-sided tests: t(0.95, 3) = 2.3534
    assert difference.equivalent == pytest.approx(2.0 + 2.3534 * math.sqrt(2 / 3) / 2, rel=1e-3)
    assert judgement.pairing.correlation == pytest.approx(1.0, abs=0.001)


def test_arms_lend_each_other_what_they_tell_of_the_spread():
    rng = np.random.default_rng(4)
    runs = rng.normal(size=(4, 3))
    beside = judged({str(arm): seeded(*own) for arm, own in enumerate(runs)})[0]
    # Three seeds have two degrees of freedom; those of four arms have more.
    alone = -stdtrit(2, beside.single_level / 2) * beside.sd / math.sqrt(3)
    assert beside.high - beside.low < 2 * alone
    # Arms that share all of what a seed does are told apart as finely as pairs are.
    shared = 100 * rng.normal(size=3)
    values = {str(arm): seeded(*(shared + own + 8 * (arm == 1))) for arm, own in enumerate(runs)}
    assert [each.verdict for each in judged(values)] == ["worse", "cannot tell", "cannot tell"]


@pytest.mark.parametrize(("metric", "verdict"), [(BITS_PER_BYTE, "better"), (ACCURACY, "worse")])
def test_lower_is_better_or_worse_as_the_metric_says(metric, verdict):
    values = {"a": seeded(2.0, 2.1, 2.2), "b": seeded(1.0, 1.11, 1.2)}
    (difference,) = judged(values, metric)
    assert difference.mean == pytest.approx(-0.99667, abs=1e-5)
    assert difference.verdict == verdict


@given(st.integers(2, 5), st.integers(3, 6), st.floats(0, 4), st.integers(0, 10**6))
def test_interval_and_p_never_disagree(n_arms, n_seeds, effect, draw):
    rng = np.random.default_rng(draw)
    values = {str(arm): seeded(*rng.normal(effect * arm, 1, n_seeds)) for arm in range(n_arms)}
    for difference in judged(values):
        excludes_zero = difference.low > 0 or difference.high < 0
        assert excludes_zero == (difference.p <= 0.05)
        assert excludes_zero == (difference.verdict in ("better", "worse"))


def test_the_margin_and_the_resolution_of_the_metric_decide_what_matters():
    values = {"a": seeded(1.0, 1.01, 0.99), "b": seeded(1.0, 0.99, 1.01)}
    for margin, verdict in (
        (None, "cannot tell"), (0.001, "cannot tell"), (0.5, "no difference that matters"),
    ):  # fmt: skip
        (found,) = judged(values, margin=margin)
        assert found.verdict == verdict
    values["b"] = seeded(1.05, 1.06, 1.04)
    (small,) = judged(values, margin=0.5)
    assert small.low > 0 and small.verdict == "no difference that matters"
    # The same difference on every seed is no proof where it is one of 40 items.
    for score, verdict in ((0.525, "cannot tell"), (0.9, "better")):
        same = {"a": seeded(0.5, 0.5, 0.5), "b": seeded(score, score, score)}
        (difference,) = judged(same, ACCURACY, resolution=0.025)
        assert difference.verdict == verdict


def test_a_run_that_failed_counts_as_the_worst_and_its_arm_still_corrects_the_others():
    fine = {seed: 2.0 + seed / 100 for seed in range(5)}
    failed = {"b": (1, 2, 3, 4)}
    (found,) = judged({"a": fine, "b": {0: 1.0}}, planned_seeds=5, failed=failed)
    assert (found.by_ranks, found.n_failed, found.verdict) == (True, (4, 0), "cannot tell")
    (found,) = judged({"a": fine, "b": {}}, planned_seeds=5, failed={"b": range(5)})
    assert (found.verdict, found.p_raw) == ("worse", pytest.approx(2 / math.comb(10, 5)))
    # Against an arm that no run has ended of they tell nothing.
    values = {"a": seeded(2.0, 2.1, 2.2), "b": {0: 2.0}}
    (found,) = judged(values, against={"b": "c", "a": "a"}, failed={"b": (1, 2)})
    assert (found.baseline, found.verdict) == ("c", "cannot tell")
    assert (found.by_ranks, found.n_failed) == (True, (2, 0))
    alone = {"a": seeded(1.0, 1.2, 1.1), "b": seeded(2.0, 2.3, 2.2)}
    (without,) = judged(alone)
    failed, beside = judged({"a": alone["a"], "c": {}, "b": alone["b"]})
    assert (failed.verdict, failed.mean, failed.low, failed.p) == ("cannot tell", None, None, None)
    assert beside.high > without.high
    (awaited,) = judged(alone, n_awaited=2)
    assert awaited.high > without.high and awaited.p > without.p


def test_what_a_look_has_decided_stands_and_arms_go_on_that_are_not_decided():
    own = {"a": (0.0, 0.01, 0.02, 9.0, 9.0), "b": (1.0, 1.02, 1.01, 0.0, 0.0)}

    def judge_at(look: int, margin: float | None = None) -> Judgement:
        values = {name: seeded(*each[:look]) for name, each in own.items()}
        return judge_values("a", values, BITS_PER_BYTE, planned_seeds=look, margin=margin)

    (difference,) = judge_looks(judge_at, (3, 5)).differences
    assert (difference.verdict, difference.n_seeds) == ("worse", 3)
    assert judge_at(5).differences[0].verdict == "cannot tell"
    own["c"] = (0.0, 0.02, 0.01)
    assert planning.undecided_arms(judge_at(3), own, ()) == {"a", "c"}
    assert planning.undecided_arms(judge_at(3, margin=0.5), own, ()) == set()


@given(RANKED, RANKED)
def test_the_rank_test_is_the_exact_permutation_test(own, others):
    p, surplus = rank_p(own, others, 0, 0, is_lower_better=False)
    if len({*own, *others}) == len(own) + len(others):
        assert p == pytest.approx(mannwhitneyu(own, others, method="exact").pvalue)
    worse, opposite = rank_p(own, others, 0, 0, is_lower_better=True)
    assert (p, surplus) == pytest.approx((worse, -opposite))
    # Failures of both are tied as the worst: ranks 4, 1.5 and 3, 1.5.
    assert rank_p([2.0], [1.0], 1, 1, is_lower_better=False) == (1.0, pytest.approx(0.5))


def test_scores_in_two_groups_across_arms_are_judged_by_ranks():
    # Two runs of each arm collapsed or did not; groups that follow the arms are their effect.
    split = {"a": seeded(0.5, 0.9, 0.91), "b": seeded(0.51, 0.9, 0.5)}
    (found,) = judged(split, ACCURACY)
    assert (found.by_ranks, found.verdict) == (True, "cannot tell")
    (found,) = judged({"a": seeded(0.5, 0.51, 0.52), "b": seeded(0.9, 0.91, 0.91)}, ACCURACY)
    assert (found.by_ranks, found.verdict) == (False, "better")
    assert not is_two_valued(np.array([[0.5, 0.51, 0.9], [0.5, 0.52, 0.51]]))  # an outlier


@pytest.mark.parametrize(("n_seeds", "mean"), [(1, 1.0), (2, 1.05)])
def test_fewer_than_three_seeds_give_the_difference_and_no_verdict(n_seeds, mean):
    values = {"a": seeded(*[1.0, 1.5][:n_seeds]), "b": seeded(*[2.0, 2.6][:n_seeds]), "c": {}}
    b, c = judged(values)
    assert (b.mean, c.mean) == (pytest.approx(mean), None)
    for difference in (b, c):
        assert difference.verdict == "no verdict"
        assert difference.sd is difference.low is difference.p is difference.detectable is None
    with pytest.raises(ConfigError, match="at least 1"):
        judge_values("a", {"a": {}, "b": {}}, BITS_PER_BYTE, planned_seeds=0)


def test_a_contrast_of_four_arms_is_their_weighted_sum():
    rng = np.random.default_rng(1)
    values = {name: seeded(*rng.normal(0, 1, 5)) for name in "abcd"}
    weights = {"a": 1.0, "b": -1.0, "c": -1.0, "d": 1.0}
    *_, interaction = judged(values, further=[Contrast("all", "", weights)])
    expected = sum(weights[name] * np.mean(list(own.values())) for name, own in values.items())
    assert interaction.mean == pytest.approx(expected)
    assert interaction.low < expected < interaction.high


def test_critical_values_are_those_of_sidak_and_dunnett_and_power_is_four_in_five():
    def of(correlation: np.ndarray, freedom: float) -> float:
        n = len(correlation)
        spread = known_spread(0.0, 1.0, freedom, 3)
        return Uncertainty(spread).half_width(0.05, Largest(correlation, n))

    assert of(np.eye(1), 4.0) == pytest.approx(2.7764, rel=1e-4)
    assert of(np.eye(4), 1e6) == pytest.approx(2.4907, rel=2e-3)  # Šidák
    # Dunnett's table, two-sided 5 %, 3 treatments, 20 degrees of freedom: 2.54
    assert of(np.full((3, 3), 0.5) + 0.5 * np.eye(3), 20.0) == pytest.approx(2.54, abs=0.01)
    freedom, level = 18, 0.045
    shift = planning.detectable_effect(float(freedom), level)
    rng = np.random.default_rng(3)
    t = (rng.normal(size=40_000) + shift) / np.sqrt(rng.chisquare(freedom, 40_000) / freedom)
    assert np.mean(t > -stdtrit(freedom, level / 2)) == pytest.approx(0.8, abs=0.008)
    assert planning.seeds_for(lambda n: 10 / n, 2.0) == 5
    assert planning.seeds_for(lambda n: 1.0, 0.5) is None
    # Of two arms and three seeds: a t test with two degrees of freedom.
    expected = planning.detectable_effect(2.0, 0.05) * math.sqrt(2 / 3)
    assert planning.planned_detectable(2, 3, 0.05) == pytest.approx(expected)
    assert planning.planned_detectable(4, 8, 0.05, 0.3) > planning.planned_detectable(4, 8, 0.05)


def most_wrong(n_studies: int) -> float:
    """The share of studies of which five in a hundred err, at most by chance."""
    return 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / n_studies)


@pytest.mark.parametrize("n_arms, n_seeds, correlation", rows([
    (*sizes, share) for sizes in [(2, 3), (4, 3), (4, 5), (3, 8)] for share in (0.0, 0.95, 0.5)
], 3))  # fmt: skip
def test_a_family_of_comparisons_errs_in_at_most_one_study_of_twenty(n_arms, n_seeds, correlation):
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(250):
        common = rng.normal(0, math.sqrt(correlation), n_seeds)
        own = rng.normal(0, math.sqrt(1 - correlation), (n_arms, n_seeds))
        values = {str(arm): seeded(*(common + own[arm])) for arm in range(n_arms)}
        wrong += any(each.verdict != "cannot tell" for each in judged(values))
    assert wrong / 250 < most_wrong(250)


def test_looks_spend_the_error_and_five_have_pococks_level():
    assert fixed(5).levels([5, 8, 12], 3) == {5: ERROR, 8: GOING_ON, 12: GOING_ON / 2}
    assert fixed(8).next_level([5], 3) == GOING_ON / 2
    assert sum(fixed(5).levels(range(5, 200), 1).values()) <= ERROR + 2 * GOING_ON
    assert fixed(5).levels([5, 5, 8], 3) == fixed(5).levels([5, 8], 3)
    assert until_decided(6).planned == (3, 6)
    assert until_decided(30).planned == (3, 5, 8, 12, 20, 30)
    with pytest.raises(ConfigError, match="single look"):
        until_decided(3)
    # Pocock 1977, five equally spaced looks, 5 %: nominal 0.0158. Those here are further apart.
    looks = Looks((4, 8, 12, 16, 20), is_sequential=True)
    (level,), (of_four,) = (set(looks.levels((), n).values()) for n in (1, 4))
    assert level == pytest.approx(0.0158, rel=0.06)
    assert of_four < level


def test_looking_five_times_errs_in_at_most_one_study_of_twenty():
    rng = np.random.default_rng(2)
    looks = until_decided(20)
    levels = looks.levels((), 1)
    wrong = 0
    for _ in range(250):
        values = rng.normal(size=(2, 20))

        def judge_at(look: int, values: np.ndarray = values) -> Judgement:
            first = {str(arm): seeded(*own[:look]) for arm, own in enumerate(values)}
            return judge_values("0", first, BITS_PER_BYTE, planned_seeds=look, level=levels[look])

        judged = judge_looks(judge_at, looks.planned)
        wrong += any(each.verdict in DECIDED for each in judged.differences)
    assert wrong / 250 < most_wrong(250)


def runs_of(values: dict[str, dict[int, float]]) -> Runs:
    def stage(own: dict[int, float]) -> StageRuns:
        return StageRuns({n: [Outcome(Path(), {}, {"bits_per_byte": own[n]})] for n in own})

    return {(name, PRETRAINING): stage(own) for name, own in values.items()}


def study_of(*names: str) -> Study:
    return Study("a study", "", "", "none", None, tuple(Arm(name, BASE, {}) for name in names))


def noise(mean: float, n: int, order: int = 3, first: int = 0) -> dict[int, float]:
    steps = (0.0, 0.3, 0.1, 0.2, 0.15, 0.05, 0.25, 0.12)
    return {first + seed: mean + steps[(order * seed) % 8] for seed in range(n)}


def test_a_further_metric_has_a_verdict_where_the_study_asks_and_then_all_are_one_family():
    values = {"a": noise(1.0, 4), "b": noise(9.0, 4, order=5)}
    plain = study_of(*values)
    names = ("bits_per_byte", "loss", "other")
    key = "bits_per_byte"
    columns = [Column(replace(BITS_PER_BYTE, name=name), PRETRAINING, key) for name in names]
    asked = (columns, runs_of(values), 4, fixed(4))
    asking = replace(plain, question=Question(also=("loss",)))
    alone, both = (StudyJudge(each, *asked) for each in (plain, asking))
    (shown, _), (judged, unasked) = (
        [found for further in each.further() for found in further.differences]
        for each in (alone, both)
    )
    assert (shown.verdict, shown.p, unasked.verdict) == ("no verdict", None, "no verdict")
    (before,), (after,) = (each.first().differences for each in (alone, both))
    assert after.low < before.low and after.high > before.high
    assert (judged.verdict, judged.low, judged.high) == ("worse", after.low, after.high)


def test_a_choice_by_a_coin_or_by_luck_spreads_by_hand_and_widens_an_interval():
    # Scores 0 and d, chosen each with one half: another tuning gives d in every second case.
    assert Tuned((0.0, 1e-6), 1).choice_variance(1.0) == pytest.approx(0.5e-12, rel=0.05)
    lucky = (0.0, 1.0)
    # Its trial scored 0 and its seeds 2: nearly every other tuning takes the one that scored 1.
    known = Tuned(lucky, 1, {0: 1.9, 1: 2.1}).choice_variance(1e-4)
    assert known == pytest.approx(1.0, rel=1e-3)
    assert Tuned(lucky, 1).choice_variance(1e-4) == 0.0
    assert Tuned(lucky, 1, {0: 0.0}).choice_variance(0.3) == Tuned(lucky, 1).choice_variance(0.3)
    assert Tuned((1.0, 2.0, 3.0), 4).choice_variance(0.01) == 0.0
    assert Tuned((1.0,), 1).choice_variance(1.0) == 0.0
    few, many = (Tuned((1.0, 1.1), n).choice_variance(0.01) for n in (1, 16))
    assert few > 5 * many
    values = {"a": seeded(0.0, 0.1, 0.2), "b": seeded(0.3, 0.1, 0.2)}
    tuned = {arm: Tuned((0.0, 0.05), 1) for arm in values}
    (widened,) = judged(values, tuned=tuned)
    (without,) = judged(values)
    assert widened.parts.tuning > without.parts.tuning == 0.0
    assert widened.high - widened.low > without.high - without.low


@pytest.mark.parametrize("seeds, expected", [
    ((2, 3, 3), (3, 1, False)),  # before the first look
    ((3, 3, 3), (3, 4, True)),  # a and c lack two each
    ((5, 3, 5), (5, 6, True)), ((8, 3, 8), (8, 0, True)),
    ((3, 0, 3), (3, 3, False)),  # b lacks all of the first look
])  # fmt: skip
def test_a_look_is_reached_once_all_that_go_on_have_ended(seeds, expected):
    sequence = Looks((3, 5, 8), is_sequential=True)
    # b is decided at once, c never.
    drawn = zip("abc", (1.0, 3.0, 1.01), seeds, (3, 3, 5), strict=True)
    values = {name: noise(mean, n, order, first=7) for name, mean, n, order in drawn if n}
    study = study_of(*"abc")
    judge = StudyJudge(study, metric_columns(study), runs_of(values), 8, sequence)
    found = judge.look_reached([*"abc"], Seeds(first=7))
    assert found == expected


def table(right, documents=None) -> ItemTable:
    right = np.asarray(right, dtype=np.int64)
    return ItemTable("an item", "d", {"right": right, "all": np.ones_like(right)}, documents)


def test_effects_of_items_are_their_distances_and_those_of_ratios_vary_as_the_bootstrap():
    # d(r / n) = (x - r / n) / n of each item
    right = np.array([1, 0, 1, 1, 0, 0, 0, 0, 0, 0])
    units = item_effects(table(right), SHARE)
    assert units.effects == pytest.approx((right - 0.3) / 10, abs=1e-2)
    assert units.step == pytest.approx(0.1, rel=0.2)
    variance = 0.3 * 0.7 / 10 * 10 / 9
    assert (units.effects**2).sum() * 10 / 9 == pytest.approx(variance, rel=0.05)
    rng = np.random.default_rng(0)
    nats, lengths = rng.gamma(2, 10, 400), rng.integers(5, 40, 400)
    ratio = FromItems("t", lambda sums: float(sums["nats"]) / float(sums["tokens"]))
    columns = {"nats": nats, "tokens": lengths}
    effects = item_effects(ItemTable("a pair", "d", columns, None), ratio).effects
    drawn = rng.integers(0, 400, (2000, 400))
    values = nats[drawn].sum(1) / lengths[drawn].sum(1)
    assert math.sqrt((effects**2).sum()) == pytest.approx(values.std(), rel=0.06)


def test_units_are_documents_or_stretches_and_their_variance_follows_the_crossed_design():
    many = np.repeat(np.arange(FEWEST_DOCUMENTS), 3)
    for n, documents, expected in (
        (9, many, many), (1000, np.zeros(1000, dtype=int), np.arange(1000) // 100),
    ):  # fmt: skip
        labels, n_units = covariance.units_of(n, documents)
        assert n_units == expected[-1] + 1 and (labels == expected).all()
    # No stretch crosses from one document to another.
    labels, n_units = covariance.units_of(64, np.repeat([0, 1], [30, 34]))
    assert labels[29] != labels[30]
    assert covariance.units_of(12, None)[1] == 12
    assert item_effects(table([1, 0, 1]), SHARE) is None
    # Two seeds, differences of items d + or - e: d varies over items, e is of both.
    d = np.array([1.0, -1.0, 2.0, -2.0])
    e = np.array([0.5, 0.5, -0.5, -0.5])
    effects = {"a": {0: d + e, 1: d - e}, "b": {0: np.zeros(4), 1: np.zeros(4)}}
    values = {"a": seeded(0.0, 1.0), "b": seeded(0.0, 1.0)}
    spread = ItemSpreads(RunScores.of(values, effects=effects), "b").spread(arm_less("a", "b"))
    assert spread.whole.variance == pytest.approx((d**2).sum() * 4 / 3)
    assert spread.both == pytest.approx(2 * (e**2).sum() * 4 / 3 / 1 / 2)
    assert spread.alone == pytest.approx(spread.whole.variance - spread.both)
    values["b"], effects["b"] = {5: 0.0, 6: 1.0}, {5: np.zeros(4), 6: np.zeros(4)}
    unpaired = ItemSpreads(RunScores.of(values, effects=effects), "b").spread(arm_less("a", "b"))
    assert unpaired.alone == pytest.approx(spread.alone)


@pytest.mark.parametrize(("n_arms", "n_seeds"), rows([(4, 3), (8, 5)], 1))
@pytest.mark.parametrize("widest", [1.0, 4.0])
def test_arms_that_share_nearly_all_of_a_seed_are_not_called_different(n_arms, n_seeds, widest):
    rng = np.random.default_rng([n_arms, int(widest)])
    arms = tuple(map(str, range(n_arms)))
    wrong = 0
    for _ in range(150):
        own = rng.normal(size=(n_arms, n_seeds)) * np.geomspace(1.0, widest, n_arms)[:, None]
        values = 50.0 * rng.normal(size=n_seeds) + own
        scores = RunScores(arms, tuple(range(n_seeds)), values, np.zeros(values.shape, dtype=bool))
        contrasts = contrasting.against_baseline(arms, "0")
        found = ContrastFamily(scores, contrasts, is_lower_better=True, n_seeds=n_seeds).judge()
        wrong += any(each.verdict != "cannot tell" for each in found.differences)
    assert wrong <= 18  # of 150 at 5 %: exceeded once in 4,000 times


def test_caution_moves_p_to_the_level_that_residuals_are_given():
    rng = np.random.default_rng(7)
    arms = tuple("abcd")
    values = rng.normal(size=(4, 4))
    scores = RunScores(arms, tuple(range(4)), values, np.zeros(values.shape, dtype=bool))
    spread = SeedSpreads(scores, "a").spread(arm_less("b", "a"))
    assert spread.caution != 1.0
    plain, largest = Uncertainty(spread), Largest(0.5 + 0.5 * np.eye(3), 3)
    half = plain.calibrated(0.03, largest).half_width(0.03, largest)
    assert plain.p(half, largest) * spread.caution == pytest.approx(0.03, rel=1e-4)
    two = replace(scores, arms=tuple("ab"), values=values[:2], failed=scores.failed[:2])
    assert SeedSpreads(two, "a").spread(arm_less("b", "a")).caution == 1.0


def test_runs_of_one_cluster_where_others_have_two_show_no_equivalence():
    values = {"a": (1, 0, 1, 1, 0), "b": (5, 6, 6, 5, 6), "c": (9, 9, 9, 9, 9)}
    table = np.array([*values.values()], dtype=float)
    assert one_cluster_p(table, [0, 2]) == 2 / 2**5 and one_cluster_p(table, [0, 1]) == 0.0
    assert one_cluster_p(np.random.default_rng(0).normal(size=(3, 5)), [0, 2]) == 0.0
    study = {arm: seeded(*map(float, own)) for arm, own in values.items()}
    found = judge_values("a", study, METRIC, planned_seeds=5, margin=20.0)
    verdicts = [each.verdict for each in found.differences]
    assert verdicts == ["no difference that matters", "cannot tell"]


def test_documents_of_unequal_length_count_for_fewer():
    documents = np.repeat(np.arange(4), [60, 20, 10, 10])
    units, _ = covariance.units_of(100, documents)
    shares = covariance.shares_of(units, documents)
    assert shares.tolist() == [0.6, 0.2, 0.1, 0.1]
    nothing = [covariance.shares_of(*each) for each in (2 * (np.arange(4),), (units, None))]
    assert nothing == [None, None]
    factors, freedom = covariance.unequal_units(shares)
    assert freedom == pytest.approx(1 / 0.42 - 1)
    # Of documents whose means vary with variance 1, the mean has that of the squared shares.
    residuals = shares[:, None] * (np.eye(4) - shares)
    variance = (factors**2 * (residuals**2).sum(1)).sum() * 4 / 3
    assert variance == pytest.approx(0.42)
    effects = {"a": seeded(*2 * (residuals @ [1.0, 2.0, -1.0, 0.0],))}
    effects["b"] = seeded(*np.zeros((2, 4)))
    values = {"a": seeded(0.0, 1.0), "b": seeded(0.0, 1.0)}
    scores = RunScores.of(values, effects=effects, n_documents=4, shares=shares)
    whole = ItemSpreads(scores, "b").spread(arm_less("a", "b")).whole
    squares = (factors * effects["a"][0]) ** 2
    assert whole.variance == pytest.approx(squares.sum() * 4 / 3)
    assert whole.freedoms.tolist() == [pytest.approx(freedom)]


@pytest.mark.parametrize(("n_arms", "n_seeds"), rows([(2, 8), (4, 5), (2, 3)], 1))
def test_arms_without_skill_are_not_called_different(n_arms, n_seeds):
    rng = np.random.default_rng(4)
    wrong = by_seeds = 0
    for _ in range(150):
        values, effects = {}, {}
        for arm in map(str, range(n_arms)):
            # Models without any skill: each arm has a taste of its own for items.
            taste = rng.random(470)
            right = [taste + 0.3 * rng.normal(size=470) > 0.5 for _ in range(n_seeds)]
            values[arm] = seeded(*(float(each.mean()) for each in right))
            effects[arm] = seeded(*(item_effects(table(each), SHARE).effects for each in right))
        of_items = judged(values, METRIC, effects=effects)
        of_seeds = judged(values, METRIC)
        wrong += any(each.verdict != "cannot tell" for each in of_items)
        by_seeds += any(each.verdict != "cannot tell" for each in of_seeds)
    assert wrong / 150 < most_wrong(150)
    assert by_seeds > wrong  # items are needed


def test_arms_that_are_alike_and_tuned_by_few_runs_are_not_called_different():
    # By one run of each of three trials, of which one is the best.
    rng = np.random.default_rng(6)
    means = np.array([0.0, 0.4, 1.0])
    wrong = {True: 0, False: 0}
    for _ in range(300):
        values, tuned = {}, {}
        for arm in "ab":
            scores = means + rng.normal(0, 0.5, 3)
            values[arm] = seeded(*(means[scores.argmin()] + rng.normal(0, 0.5, 20)))
            tuned[arm] = Tuned(tuple(scores), 1, values[arm])
        for with_choice in wrong:
            (found,) = judged(values, tuned=tuned if with_choice else {})
            wrong[with_choice] += found.verdict in ("better", "worse")
    assert wrong[True] / 300 < most_wrong(300) and wrong[False] / 300 > 0.15
