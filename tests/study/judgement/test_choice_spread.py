"""Another tuning may choose otherwise: arms that are alike are not called different for it."""

import math

import numpy as np
import pytest

from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.study.judgement.choice_spread import Tuned, choice_variance
from sublayer.study.judgement.judge import Evidence, judge


def test_two_trials_that_score_alike_are_chosen_by_a_coin():
    # Scores 0 and d, chosen each with one half: another tuning gives d in every second case.
    assert choice_variance(Tuned((0.0, 1e-6), 1), 1.0) == pytest.approx(0.5e-12, rel=0.05)


def test_a_trial_that_was_chosen_by_luck_is_known_by_the_runs_that_are_compared():
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


def test_a_trial_that_spreads_more_and_wins_by_luck_makes_no_verdict():
    # The best trial spreads little, another one three times as far: it wins one tuning of six.
    rng = np.random.default_rng(8)
    means, sds = np.array([0.0, 1.3, 1.7]), np.array([0.5, 0.7, 1.5])
    wrong = {False: 0, True: 0}
    for _ in range(150):
        values = {}
        tunings: dict[bool, dict[str, Tuned]] = {False: {}, True: {}}
        for arm in "ab":
            scores = rng.normal(means, sds)
            chosen = scores.argmin()
            values[arm] = dict(enumerate(rng.normal(means[chosen], sds[chosen], 8)))
            for is_known, tuned in tunings.items():
                tuned[arm] = Tuned(tuple(scores), 1, values[arm] if is_known else {})
        for is_known, tuned in tunings.items():
            judged = judge(
                "a", values, BITS_PER_BYTE, planned_seeds=8, evidence=Evidence(tuned=tuned)
            )
            wrong[is_known] += judged.differences[0].verdict in ("better", "worse")
    assert wrong[True] < 0.05 * 150 + 2.5 * math.sqrt(0.05 * 0.95 * 150)
    assert wrong[False] > 1.5 * wrong[True]


@pytest.mark.slow
def test_arms_that_are_alike_and_tuned_by_few_runs_are_not_called_different():
    assert _verdicts(with_choice=True) < 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / 300)
    assert _verdicts(with_choice=False) > 0.15


def test_what_another_tuning_would_leave_of_an_interval_is_told():
    values = {"a": {0: 0.0, 1: 0.1, 2: 0.2}, "b": {0: 0.3, 1: 0.1, 2: 0.2}}
    tuned = {arm: Tuned((0.0, 0.05), 1) for arm in values}
    (with_it,) = judge(
        "a", values, BITS_PER_BYTE, planned_seeds=3, evidence=Evidence(tuned=tuned)
    ).differences
    (without,) = judge("a", values, BITS_PER_BYTE, planned_seeds=3).differences
    assert with_it.parts.tuning > without.parts.tuning == 0.0
    assert with_it.high - with_it.low > without.high - without.low
