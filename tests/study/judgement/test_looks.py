"""Looks: how much of the error each may spend, and verdicts that stand where they were reached."""

import math

import numpy as np
import pytest

from sublayer.errors import ConfigError
from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.study.judgement.difference import DECIDED, Judgement
from sublayer.study.judgement.judge import Evidence, judge
from sublayer.study.judgement.looks import AT_FIRST, ERROR, Looks, fixed, until_decided
from sublayer.study.judgement.sequence import judge_looks, undecided_arms


def test_a_fixed_number_of_seeds_spends_most_at_once_and_keeps_the_rest_for_later():
    levels = fixed(5).levels([5, 8, 12], 3)
    assert levels[5] == AT_FIRST * ERROR
    assert levels[8] == pytest.approx((1 - AT_FIRST) * ERROR / 2)
    assert levels[12] == pytest.approx((1 - AT_FIRST) * ERROR / 4)
    assert sum(fixed(5).levels(range(5, 200), 1).values()) <= ERROR
    # A look that is repeated spends what it has spent.
    assert fixed(5).levels([5, 5, 8], 3) == fixed(5).levels([5, 8], 3)


@pytest.mark.parametrize(
    ("at_most", "looks"),
    [(20, (3, 5, 8, 12, 20)), (12, (3, 5, 8, 12)), (6, (3, 6)), (30, (3, 5, 8, 12, 20, 30))],
)
def test_looks_are_planned_to_the_last(at_most: int, looks: tuple[int, ...]):
    assert until_decided(at_most).planned == looks


def test_a_single_look_is_no_plan():
    with pytest.raises(ConfigError, match="single look"):
        until_decided(3)


def test_five_looks_have_pococks_level():
    # Pocock 1977, five equally spaced looks, 5 %: nominal 0.0158. Those here are further apart.
    looks = Looks((4, 8, 12, 16, 20), is_sequential=True)
    (level,) = set(looks.levels((), 1).values())
    assert level == pytest.approx(0.0158 * ERROR / 0.05, rel=0.06)
    (of_four,) = set(looks.levels((), 4).values())
    assert of_four < level


@pytest.mark.slow
@pytest.mark.parametrize("n_arms", [2, 4])
def test_looking_five_times_errs_in_at_most_one_study_of_twenty(n_arms: int):
    rng = np.random.default_rng(2)
    looks = until_decided(20)
    levels = looks.levels((), n_arms - 1)
    n_studies, wrong = 400, 0
    for _ in range(n_studies):
        values = rng.normal(size=(n_arms, 20))

        def judge_at(look: int, values: np.ndarray = values) -> Judgement:
            first = {str(arm): dict(enumerate(own[:look])) for arm, own in enumerate(values)}
            return judge("0", first, BITS_PER_BYTE, planned_seeds=look, level=levels[look])

        judged = judge_looks(judge_at, looks.planned)
        wrong += any(each.verdict in DECIDED for each in judged.differences)
    assert wrong / n_studies < 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / n_studies)


def test_what_a_look_has_decided_stands_with_its_interval():
    a = [0.0, 0.01, 0.02, 9.0, 9.0]
    b = [1.0, 1.02, 1.01, 0.0, 0.0]

    def judge_at(look: int) -> Judgement:
        values = {"a": dict(enumerate(a[:look])), "b": dict(enumerate(b[:look]))}
        return judge("a", values, BITS_PER_BYTE, planned_seeds=look)

    (difference,) = judge_looks(judge_at, (3, 5)).differences
    assert difference.verdict == "worse"
    assert difference.n_seeds == 3
    assert judge_at(5).differences[0].verdict == "cannot tell"


def test_arms_go_on_that_are_not_decided_and_what_they_are_compared_with():
    values = {
        "a": {0: 0.0, 1: 0.01, 2: 0.02},
        "b": {0: 5.0, 1: 5.01, 2: 5.02},
        "c": {0: 0.0, 1: 0.02, 2: 0.01},
    }
    judged = judge("a", values, BITS_PER_BYTE, planned_seeds=3)
    assert undecided_arms(judged, values, ()) == {"a", "c"}
    inside = judge("a", values, BITS_PER_BYTE, planned_seeds=3, evidence=Evidence(margin=1.0))
    assert undecided_arms(inside, values, ()) == set()
