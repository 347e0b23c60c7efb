"""Variance due to test items and to hyperparameter selection: by hand and in drawn studies."""

import math

import numpy as np
import pytest

from sublayer.evaluation.items import FromItems, ItemTable
from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.objective.metric import Metric
from sublayer.study.judgement.choice_spread import Tuned, choice_variance
from sublayer.study.judgement.contrast import arm_less
from sublayer.study.judgement.item_effects import FEWEST_DOCUMENTS, item_effects, units_of
from sublayer.study.judgement.item_spread import item_spread
from sublayer.study.judgement.judge import Evidence, judge
from tests.breadth import rows

SHARE = FromItems("t", lambda sums: float(sums["right"]) / float(sums["all"]))
METRIC = Metric("share", "share", is_lower_better=False, from_items=SHARE)


def table(right, documents=None) -> ItemTable:
    right = np.asarray(right, dtype=np.int64)
    return ItemTable("an item", "d", {"right": right, "all": np.ones_like(right)}, documents)


def test_the_effect_of_an_item_on_a_share_is_its_distance_from_it():
    # d(r / n) = (x - r / n) / n of each item
    right = np.array([1, 0, 1, 1, 0, 0, 0, 0, 0, 0])
    units = item_effects(table(right), SHARE)
    assert units.effects == pytest.approx((right - 0.3) / 10, abs=1e-2)
    assert units.step == pytest.approx(0.1, rel=0.2)
    variance = 0.3 * 0.7 / 10 * 10 / 9
    assert (units.effects**2).sum() * 10 / 9 == pytest.approx(variance, rel=0.05)


def test_a_ratio_of_sums_has_the_variance_of_the_bootstrap():
    rng = np.random.default_rng(0)
    nats, lengths = rng.gamma(2, 10, 400), rng.integers(5, 40, 400)
    ratio = FromItems("t", lambda sums: float(sums["nats"]) / float(sums["tokens"]))
    columns = {"nats": nats, "tokens": lengths}
    effects = item_effects(ItemTable("a pair", "d", columns, None), ratio).effects
    drawn = rng.integers(0, 400, (2000, 400))
    values = nats[drawn].sum(1) / lengths[drawn].sum(1)
    assert math.sqrt((effects**2).sum()) == pytest.approx(values.std(), rel=0.06)


def test_units_are_documents_where_there_are_enough_and_stretches_elsewhere():
    many = np.repeat(np.arange(FEWEST_DOCUMENTS), 3)
    labels, n_units = units_of(table(np.zeros(60), many))
    assert n_units == FEWEST_DOCUMENTS and (labels == many).all()
    labels, n_units = units_of(table(np.zeros(1000), np.zeros(1000, dtype=int)))
    assert n_units == 100 and (labels == np.arange(1000) // 10).all()
    # No stretch crosses from one document to another.
    labels, n_units = units_of(table(np.zeros(64), np.repeat([0, 1], [30, 34])))
    assert labels[29] != labels[30]
    assert units_of(table(np.zeros(12)))[1] == 12
    # Too few units have no effects.
    assert item_effects(table([1, 0, 1]), SHARE) is None


def test_variance_over_items_follows_the_crossed_design():
    # Two seeds, differences of items d + or - e: d varies over items, e is of both.
    d = np.array([1.0, -1.0, 2.0, -2.0])
    e = np.array([0.5, 0.5, -0.5, -0.5])
    effects = {"a": {0: d + e, 1: d - e}, "b": {0: np.zeros(4), 1: np.zeros(4)}}
    spread = item_spread(effects, arm_less("a", "b"), is_paired=True)
    assert spread.whole == pytest.approx((d**2).sum() * 4 / 3)
    assert spread.both == pytest.approx(2 * (e**2).sum() * 4 / 3 / 1 / 2)
    assert spread.alone == pytest.approx(spread.whole - spread.both)
    unpaired = item_spread(effects, arm_less("a", "b"), is_paired=False)
    assert unpaired.alone == pytest.approx(spread.alone)


def _study(rng: np.random.Generator, n_arms: int, n_seeds: int, n_items: int):
    """Draw models without any skill: each arm has a taste of its own for items."""
    values: dict[str, dict[int, float]] = {}
    effects: dict[str, dict[int, np.ndarray]] = {}
    for arm in map(str, range(n_arms)):
        taste = rng.random(n_items)
        values[arm], effects[arm] = {}, {}
        for seed in range(n_seeds):
            right = taste + 0.3 * rng.normal(size=n_items) > 0.5
            values[arm][seed] = float(right.mean())
            effects[arm][seed] = item_effects(table(right), SHARE).effects
    return values, effects


@pytest.mark.parametrize(("n_arms", "n_seeds"), rows([(2, 8), (4, 5), (2, 3)], 1))
def test_arms_without_skill_are_not_called_different(n_arms: int, n_seeds: int):
    rng = np.random.default_rng(4)
    n_studies, wrong, by_seeds = 150, 0, 0
    for _ in range(n_studies):
        values, effects = _study(rng, n_arms, n_seeds, 470)
        of_items, of_seeds = (
            judge("0", values, METRIC, planned_seeds=n_seeds, evidence=evidence).differences
            for evidence in (Evidence(effects=effects), Evidence())
        )
        wrong += any(each.verdict != "cannot tell" for each in of_items)
        by_seeds += any(each.verdict != "cannot tell" for each in of_seeds)
    assert wrong / n_studies < 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / n_studies)
    assert by_seeds > wrong  # items are needed


def test_a_choice_by_a_coin_or_by_luck_spreads_by_hand():
    # Scores 0 and d, chosen each with one half: another tuning gives d in every second case.
    assert choice_variance(Tuned((0.0, 1e-6), 1), 1.0) == pytest.approx(0.5e-12, rel=0.05)
    lucky = (0.0, 1.0)
    # Its trial scored 0 and its seeds 2: nearly every other tuning takes the one that scored 1.
    known = choice_variance(Tuned(lucky, 1, {0: 1.9, 1: 2.1}), 1e-4)
    assert known == pytest.approx(1.0)
    assert choice_variance(Tuned(lucky, 1), 1e-4) == 0.0
    # Seeds that score as the trial did change nothing.
    assert choice_variance(Tuned(lucky, 1, {0: 0.0}), 0.3) == choice_variance(Tuned(lucky, 1), 0.3)


def test_a_choice_that_every_tuning_would_make_spreads_nothing():
    assert choice_variance(Tuned((1.0, 2.0, 3.0), 4), 0.01) == 0.0
    assert choice_variance(Tuned((1.0,), 1), 1.0) == 0.0
    few, many = (choice_variance(Tuned((1.0, 1.1), n), 0.01) for n in (1, 16))
    assert few > 5 * many


def _verdicts(with_choice: bool, n_studies: int = 300) -> float:
    """Tune arms that are alike by one run of each of three trials, of which one is the best."""
    rng = np.random.default_rng(6)
    means = np.array([0.0, 0.4, 1.0])
    wrong = 0
    for _ in range(n_studies):
        values, tuned = {}, {}
        for arm in "ab":
            scores = means + rng.normal(0, 0.5, 3)
            chosen = means[scores.argmin()]
            values[arm] = dict(enumerate(chosen + rng.normal(0, 0.5, 20)))
            tuned[arm] = Tuned(tuple(scores), 1, values[arm])
        evidence = Evidence(tuned=tuned if with_choice else None)
        judged = judge("a", values, BITS_PER_BYTE, planned_seeds=20, evidence=evidence)
        wrong += judged.differences[0].verdict in ("better", "worse")
    return wrong / n_studies


def test_arms_that_are_alike_and_tuned_by_few_runs_are_not_called_different():
    assert _verdicts(with_choice=True) < 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / 300)
    assert _verdicts(with_choice=False) > 0.15


def test_variance_of_tuning_widens_an_interval():
    values = {"a": {0: 0.0, 1: 0.1, 2: 0.2}, "b": {0: 0.3, 1: 0.1, 2: 0.2}}
    tuned = {arm: Tuned((0.0, 0.05), 1) for arm in values}
    (with_it,), (without,) = (
        judge("a", values, BITS_PER_BYTE, planned_seeds=3, evidence=evidence).differences
        for evidence in (Evidence(tuned=tuned), Evidence())
    )
    assert with_it.parts.tuning > without.parts.tuning == 0.0
    assert with_it.high - with_it.low > without.high - without.low
