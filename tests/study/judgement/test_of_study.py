"""A study's runs as they are judged: which seeds, at which look, what is still missing."""

from dataclasses import replace
from pathlib import Path

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.study.arms import Arm
from sublayer.study.budget.budget import MatchedArm
from sublayer.study.definition import Study
from sublayer.study.execution.arm_runs import ArmRuns
from sublayer.study.execution.one_run import Outcome
from sublayer.study.judgement.looks import Looks, fixed
from sublayer.study.judgement.of_study import Looking, StudyJudge
from sublayer.study.judgement.stopping import Reached, look_reached
from sublayer.study.question import Question
from sublayer.study.seeds import Seeds
from sublayer.study.tuning import NO_TRIAL

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


def test_runs_of_other_seeds_than_the_baselines_count_too() -> None:
    values = {
        "a": {0: 1.0, 1: 1.3, 2: 1.1, 7: 1.6},
        "b": {0: 2.1, 1: 2.0, 2: 2.3, 9: 2.6},
    }
    runs = [runs_of(name, own) for name, own in values.items()]
    looking = Looking(fixed(4))
    judge = StudyJudge(study_of(*values), (BITS_PER_BYTE,), runs, [], 4, looking)
    judged = judge.first(values)
    assert judged.pairing is not None and not judged.pairing.is_paired
    assert judged.differences[0].mean == pytest.approx(9.0 / 4 - 5.0 / 4)


def test_a_further_metric_has_a_verdict_where_the_study_asks_and_then_all_are_one_family() -> None:
    values = {"a": noise(1.0, 4), "b": noise(9.0, 4, order=5)}
    runs = [runs_of(name, own) for name, own in values.items()]
    plain = study_of(*values)
    asking = replace(plain, question=Question(also=("loss",)))
    loss = replace(BITS_PER_BYTE, name="loss")
    other = replace(BITS_PER_BYTE, name="other")
    alone, both = (
        StudyJudge(each, (BITS_PER_BYTE, loss, other), runs, [], 4, Looking(fixed(4)))
        for each in (plain, asking)
    )
    (shown,) = alone.further(loss, values).differences
    assert (shown.verdict, shown.p) == ("no verdict", None)
    (judged,) = both.further(loss, values).differences
    assert judged.verdict == "worse"
    (unasked,) = both.further(other, values).differences
    assert unasked.verdict == "no verdict"
    (before,), (after,) = (each.first(values).differences for each in (alone, both))
    assert after.low < before.low and after.high > before.high
    assert (judged.low, judged.high) == (after.low, after.high)


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ((2, 3, 3), Reached(3, 1, is_judged=False)),  # before the first look
        ((3, 3, 3), Reached(3, 4, is_judged=True)),  # a and c lack two each
        ((5, 3, 4), Reached(3, 1, is_judged=True)),
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
