"""What arms take beyond others as planned: by hand, in both currencies, in plan and header."""

import json
from collections.abc import Sequence

import pytest

from sublayer.cli import main
from sublayer.config.recipe import Recipe
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.study.arms import Arm
from sublayer.study.budget.budget import arm_model, arm_steps, match_budgets
from sublayer.study.budget.excess import (
    ArmBudget,
    Budget,
    Excess,
    budget_to_json,
    excess_over,
    read_budget,
)
from sublayer.study.budget.match import Rule
from sublayer.study.budget.plan import ArmPlan, make_plan
from sublayer.study.budget.sized_arm import Sized, StepTime
from sublayer.study.definition import load_study
from sublayer.study.header import budget_rows
from tests.study.test_budget_budget import MEASURES
from tests.study.test_plan import PLENTY
from tests.wrapping import unwrapped

BLOCK = 12 * 64**2
"""Weights of a block of width 64 in products: four of attention, and a network of four times it."""
SIZES = ("model.d_model=64", "model.n_heads=2", "data.context=128", "model.vocab_size=256")


def planned(
    *settings: str, vary: Sequence[str], rule: Rule, seconds: Sequence[float] = ()
) -> Sequence[ArmPlan]:
    def clock(arms: Sequence[Sized]) -> list[StepTime]:
        return [StepTime(each, is_measured=True) for each, _ in zip(seconds, arms, strict=True)]

    study = load_study("gpt", [*SIZES, *settings], vary_texts=vary)
    return make_plan(study.arms, rule, PLENTY, clock if seconds else None).arms


def test_an_excess_is_a_share_of_what_the_other_takes() -> None:
    excess = excess_over(Budget(103, 50.0, 9.8), Budget(100, 200.0, 10.0))
    assert excess.parameters == pytest.approx(0.03)
    assert excess.operations == pytest.approx(-0.75)
    assert excess.time == pytest.approx(-0.02)
    # 2 % of time is the clock's, 3 % of parameters are not the width's.
    assert set(excess.beyond) == {"parameters", "operations"}
    assert excess_over(Budget(1005), Budget(1000)).beyond == {}
    assert set(excess_over(Budget(1006), Budget(1000)).beyond) == {"parameters"}
    assert set(excess_over(Budget(1, None, 10.4), Budget(1, None, 10.0)).beyond) == {"time"}


def test_what_is_not_known_of_one_is_not_known_of_both() -> None:
    assert excess_over(Budget(10, None), Budget(10, 5.0)) == Excess(0.0, None, None)
    assert excess_over(Budget(10, 5.0), Budget(10, None)) == Excess(0.0, None, None)
    assert excess_over(Budget(10, 5.0), Budget(10, 0.0)) == Excess(0.0, None, None)


def test_a_budget_is_read_as_it_was_written() -> None:
    budget = ArmBudget("b", "a", Excess(0.1, None), Excess(0.1, -0.2, 0.3))
    assert read_budget("b", json.loads(json.dumps(budget_to_json(budget)))) == budget


def test_twice_the_steps_are_twice_the_operations_and_no_parameter() -> None:
    first, second = planned(vary=["train.steps=100,200"], rule="none")
    assert first.budget == ArmBudget("steps=100", None)
    assert second.budget == ArmBudget("steps=200", "steps=100", Excess(0.0, 1.0))


def test_a_third_layer_is_half_as_many_blocks_more_and_no_more_embeddings() -> None:
    base, deeper = planned("train.steps=100", vary=["model.n_layers=2,3"], rule="none")
    # Each block also mixes 128 keys, of which a query sees half, twice.
    products, head = BLOCK + 128 * 64, 256 * 64
    spent = products / (2 * products + head)
    assert deeper.budget.planned.operations == pytest.approx(spent, rel=1e-6)
    weights = BLOCK + 13 * 64  # with biases, and two norms
    share = weights / base.parameters.total
    assert deeper.budget.planned.parameters == pytest.approx(share, rel=1e-12)


@pytest.mark.parametrize("length", ["train.minutes=3", "train.epochs=2"])
def test_lengths_that_will_be_the_same_are_taken_as_equal(length: str) -> None:
    known = planned("train.steps=70", vary=["model.d_ff=100,300"], rule="none")
    later = planned(length, vary=["model.d_ff=100,300"], rule="none")
    assert later[1].tokens is None
    assert later[1].budget.planned == known[1].budget.planned


def test_what_is_not_known_before_a_text_is_read_is_left_open() -> None:
    _, other = planned(vary=["train.epochs=1,2"], rule="none")
    assert other.budget.planned.operations is None
    _, other = planned("train.epochs=1", vary=["data.split=90/5/5,80/10/10"], rule="none")
    assert other.budget.planned.operations is None
    _, other = planned("train.minutes=3", vary=["model.ffn=gelu,swiglu"], rule="flops")
    assert other.budget.planned.operations is None


def test_steps_matched_by_operations_leave_less_than_a_step_of_them() -> None:
    _, other = planned("train.steps=400", vary=["model.ffn=gelu,swiglu"], rule="flops")
    assert other.steps is not None and other.budget.planned.operations is not None
    assert abs(other.budget.planned.operations) < 0.5 / other.steps
    assert other.budget.planned.beyond.keys() == {"parameters"}


def test_where_time_is_matched_what_steps_will_take_is_planned_too() -> None:
    _, other = planned(
        "train.steps=10", vary=["model.ffn=gelu,swiglu"], rule="time", seconds=[0.3, 0.7]
    )
    assert other.steps == 4
    assert other.budget.planned.time == pytest.approx(4 * 0.7 / (10 * 0.3) - 1)
    assert "time" in other.budget.planned.beyond


def test_each_arm_is_held_against_the_one_it_is_compared_with() -> None:
    study = load_study("macaron-translation", scale="paper")
    plans = make_plan(study.arms, study.match, PLENTY).arms
    controls = [plan.budget.against for plan in plans[::2]]
    assert controls == [None, None, None]
    for control, macaron in zip(plans[::2], plans[1::2], strict=True):
        assert macaron.budget.against == control.name
        share = macaron.parameters.total / control.parameters.total - 1
        assert macaron.budget.planned.parameters == pytest.approx(share)


def test_plan_prints_both_currencies_and_marks_what_is_not_equal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["plan", "gpt", "macaron", "modern", "model.n_layers=2", "model.d_model=32"]
    words += ["model.n_heads=2", "train.steps=150"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "beyond gpt parameters operations" in unwrapped(out)
    assert "macaron −0.18 % −0.62 % !" in unwrapped(out)
    assert "modern +0.25 % +12.03 % !" in unwrapped(out)
    assert "! not equal: differs by more than 0.5 %" in unwrapped(out)
    assert main([*words, "--json"]) == 0
    arms = json.loads(capsys.readouterr().out.splitlines()[-1])["arms"]
    assert arms[0]["excess"]["against"] is None
    assert arms[2]["excess"]["against"] == "gpt"
    assert arms[2]["excess"]["planned"]["operations"] == pytest.approx(0.1203, abs=5e-5)
    assert arms[2]["excess"]["realised"]["operations"] is None


def test_a_single_arm_has_nothing_beyond_another(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "gpt"]) == 0
    assert "beyond" not in capsys.readouterr().out


def header(arms: Sequence[Arm], rule: Rule) -> list[tuple[str, str]]:
    matched = match_budgets(arms, rule, MEASURES)
    steps = [arm_steps(arm.loaded, MEASURES) for arm in matched]
    return budget_rows(matched, MEASURES, rule, steps)


def test_the_header_says_what_each_arm_is_planned_to_take() -> None:
    study = load_study("gpt", ["train.minutes=3"], vary_texts=["model.d_ff=768,1024,512"])
    more, less = header(study.arms, "none")
    base, *others = [
        arm_model(arm.loaded, MEASURES) for arm in match_budgets(study.arms, "none", MEASURES)
    ]
    recipe: Recipe = study.arms[0].loaded.recipe
    told = []
    for model in others:
        sizes = count_parameters(model).total / count_parameters(base).total - 1
        context = recipe.data.context
        spent = flops_per_token(model, context) / flops_per_token(base, context) - 1
        told.append((sizes, spent))
    space = "\N{NO-BREAK SPACE}"
    assert more == (
        "budgets",
        f"d_ff=1024: parameters +{100 * told[0][0]:.2f}{space}%, "
        f"operations +{100 * told[0][1]:.2f}{space}% against d_ff=768",
    )
    assert less[0] == ""
    assert less[1].startswith(
        f"d_ff=512: parameters −{-100 * told[1][0]:.2f}{space}%, operations −"
    )


def test_of_many_arms_the_header_says_the_largest_differences() -> None:
    widths = ",".join(str(768 + 8 * step) for step in range(9))
    study = load_study("gpt", ["train.steps=30"], vary_texts=[f"model.d_ff={widths}"])
    [(label, text)] = header(study.arms, "none")
    assert label == "budgets"
    assert text.replace("\N{NO-BREAK SPACE}", " ") == (
        "differ by up to 5.4 % in parameters and 5.2 % in operations: sublayer plan shows each arm"
    )
    equal = load_study("gpt", ["train.steps=30"], vary_texts=["optimizer.lr=1,2,3,4,5,6,7,8"])
    [(_, text)] = header(equal.arms, "none")
    assert text == "equal to half a percent: sublayer plan shows each arm"
