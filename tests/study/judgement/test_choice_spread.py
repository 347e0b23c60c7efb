"""Another tuning may choose otherwise: arms that are alike are not called different for it."""

import math

import numpy as np
import pytest

from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.study.judgement.choice_spread import Tuned, choice_variance
from sublayer.study.judgement.judge import Evidence, judge


def test_two_trials_that_score_alike_are_chosen_by_a_coin():
    # Scores 0 and d, chosen each with one half: the variance is d squared by 4.
    assert choice_variance(Tuned((0.0, 1e-6), 1), 1.0) == pytest.approx(0.25e-12, rel=0.05)


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
            tuned[arm] = Tuned(tuple(scores), 1)
        evidence = Evidence(tuned=tuned if with_choice else None)
        judged = judge("a", values, BITS_PER_BYTE, planned_seeds=20, evidence=evidence)
        wrong += judged.differences[0].verdict in ("better", "worse")
    return wrong / n_studies


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
