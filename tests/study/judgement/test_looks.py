"""Looks: how the error is spent over them, when they are reached, and verdicts that stand."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError
from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.study.arms import Arm
from sublayer.study.budget.budget import MatchedArm
from sublayer.study.definition import Study
from sublayer.study.execution.arm_runs import ArmRuns
from sublayer.study.execution.one_run import Outcome
from sublayer.study.judgement.difference import DECIDED, Judgement
from sublayer.study.judgement.judge import Evidence, judge
from sublayer.study.judgement.looks import AT_FIRST, ERROR, Looks, fixed, until_decided
from sublayer.study.judgement.of_study import Looking, StudyJudge
from sublayer.study.judgement.sequence import judge_looks, undecided_arms
from sublayer.study.judgement.stopping import Reached, look_reached
from sublayer.study.question import Question
from sublayer.study.seeds import Seeds
from sublayer.study.tuning import NO_TRIAL


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
    [(6, (3, 6)), (30, (3, 5, 8, 12, 20, 30))],
)
def test_looks_are_planned_to_the_last(at_most: int, looks: tuple[int, ...]):
    assert until_decided(at_most).planned == looks
    with pytest.raises(ConfigError, match="single look"):
        until_decided(3)


def test_five_looks_have_pococks_level():
    # Pocock 1977, five equally spaced looks, 5 %: nominal 0.0158. Those here are further apart.
    looks = Looks((4, 8, 12, 16, 20), is_sequential=True)
    (level,) = set(looks.levels((), 1).values())
    assert level == pytest.approx(0.0158 * ERROR / 0.05, rel=0.06)
    (of_four,) = set(looks.levels((), 4).values())
    assert of_four < level


def test_looking_five_times_errs_in_at_most_one_study_of_twenty():
    rng = np.random.default_rng(2)
    looks = until_decided(20)
    levels = looks.levels((), 1)
    n_studies, wrong = 250, 0
    for _ in range(n_studies):
        values = rng.normal(size=(2, 20))

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


BASE = load_recipe("gpt")
SEQUENCE = Looking(Looks((3, 5, 8), is_sequential=True))


def runs_of(name: str, values: dict[int, float]) -> ArmRuns:
    outcomes = {
        seed: Outcome(Path(f"{name}-{seed}"), {}, {"bits_per_byte": value})
        for seed, value in values.items()
    }
    return ArmRuns(MatchedArm(Arm(name, BASE, {}), {}, (), 0.0), NO_TRIAL, outcomes)


def study_of(*names: str) -> Study:
    return Study("a study", "", "", "none", None, tuple(Arm(name, BASE, {}) for name in names))


def noise(mean: float, n: int, order: int = 3) -> dict[int, float]:
    steps = (0.0, 0.3, 0.1, 0.2, 0.15, 0.05, 0.25, 0.12)
    return {seed: mean + steps[(order * seed) % 8] for seed in range(n)}


def test_a_further_metric_has_a_verdict_where_the_study_asks_and_then_all_are_one_family() -> None:
    values = {"a": noise(1.0, 4), "b": noise(9.0, 4, order=5)}
    runs = [runs_of(name, own) for name, own in values.items()]
    plain = study_of(*values)
    asking = replace(plain, question=Question(also=("loss",)))
    loss, other = (replace(BITS_PER_BYTE, name=name) for name in ("loss", "other"))
    alone, both = (
        StudyJudge(each, (BITS_PER_BYTE, loss, other), runs, [], 4, Looking(fixed(4)))
        for each in (plain, asking)
    )
    (shown,), (judged,), (unasked,) = (
        judge_.further(metric, values).differences
        for judge_, metric in ((alone, loss), (both, loss), (both, other))
    )
    assert (shown.verdict, shown.p, unasked.verdict) == ("no verdict", None, "no verdict")
    (before,), (after,) = (each.first(values).differences for each in (alone, both))
    assert after.low < before.low and after.high > before.high
    assert (judged.verdict, judged.low, judged.high) == ("worse", after.low, after.high)


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ((2, 3, 3), Reached(3, 1, is_judged=False)),  # before the first look
        ((3, 3, 3), Reached(3, 4, is_judged=True)),  # a and c lack two each
        ((5, 3, 5), Reached(5, 6, is_judged=True)),
        ((8, 3, 8), Reached(8, 0, is_judged=True)),
    ],
)
def test_a_look_is_reached_once_all_that_go_on_have_ended(
    seeds: tuple[int, int, int], expected: Reached
) -> None:
    # b is decided at once, c never.
    means = {"a": 1.0, "b": 9.0, "c": 1.01}
    orders = (3, 3, 5)
    drawn = zip(means.items(), seeds, orders, strict=True)
    runs = [runs_of(name, noise(mean, n, order)) for (name, mean), n, order in drawn]
    assert look_reached(study_of(*means), runs, [], list(means), Seeds(), SEQUENCE) == expected


def test_an_arm_without_a_run_lacks_all_of_the_first_look() -> None:
    runs = [runs_of("a", noise(1.0, 3))]
    found = look_reached(study_of("a", "b"), runs, [], ["a", "b"], Seeds(), SEQUENCE)
    assert found == Reached(3, 3, is_judged=False)
    later = [runs_of("a", {seed + 7: value for seed, value in noise(1.0, 3).items()})]
    assert look_reached(study_of("a"), later, [], ["a"], Seeds(first=7), SEQUENCE).n_missing == 0
