"""Budgets of arms: matched, given to every arm, and their excess over the arm of comparison."""

import json
from dataclasses import replace
from typing import Any

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.study.arms import Arm, expand
from sublayer.study.budget.budget import Measures, arm_steps, match_budgets
from sublayer.study.budget.excess import (
    ArmBudget,
    Budget,
    Excess,
    budget_to_json,
    excess_over,
    read_budget,
)
from sublayer.study.budget.match import (
    Match,
    apply_match,
    leave_unmatched,
    match_arms,
    match_parameters,
    match_steps,
)
from sublayer.study.definition import load_study
from sublayer.study.header import budget_rows
from tests.study.test_plan import planned


def resolved(**fields: Any) -> ModelConfig:
    return resolve_model(ModelConfig(**fields), vocab_size=101, context=31)


def arms_of(*vary: str, base: str = "model.bias=false") -> tuple[list[Arm], list[ModelConfig]]:
    arms = expand(load_recipe("gpt", [base]), vary)
    recipes = [arm.loaded.recipe for arm in arms]
    return arms, [
        resolve_model(each.model, vocab_size=256, context=each.data.context) for each in recipes
    ]


def test_matching_finds_the_width_of_the_nearest_number_of_parameters():
    relu, swiglu = (
        resolved(d_model=768, n_heads=12, d_ff=3072, ffn=ffn, bias=False)
        for ffn in ("relu", "swiglu")
    )
    assert match_parameters("swiglu", swiglu, relu) == Match(("model.d_ff=2048",), 0.0)
    transformer = resolved(d_model=512, n_heads=8, d_ff=2048)
    macaron = transformer.model_copy(update={"block": "macaron"})
    match = match_parameters("macaron", macaron, transformer)
    # Three vectors more at half the width; one unit of both networks holds 4 * 512 + 2.
    left = 6 * (3 * 512 - (4 * 512 + 2))
    share = pytest.approx(left / count_parameters(transformer).total, rel=1e-12)
    assert match == Match(("model.d_ff=1023",), share)
    assert not match.is_unequal
    # Equal arms are left alone even where blocks share weights.
    shared = [resolved(ffn=ffn, share="all") for ffn in ("relu", "gelu")]
    assert match_parameters("gelu", shared[1], shared[0]) == Match((), 0.0)


def test_an_arm_that_differs_by_more_than_half_a_percent_is_marked():
    baseline = resolved(n_layers=1, d_model=8, n_heads=2, d_ff=1)
    coarse = resolved(
        n_layers=30, d_model=8, n_heads=2, block=("ffn",), norm="none", positions="none"
    )
    assert leave_unmatched(coarse, baseline).is_unequal
    assert match_parameters("coarse", coarse, baseline).is_unequal
    assert not leave_unmatched(baseline, baseline).is_unequal


def test_a_sharing_arm_is_refused_with_the_width_that_would_match():
    baseline = resolved(n_layers=6, d_model=32, n_heads=2, d_ff=128)
    arm = baseline.model_copy(update={"share": "all"})
    with pytest.raises(ConfigError, match=r"model\.d_ff = \d+ instead of 128") as error:
        match_parameters("share=all", arm, baseline)
    width = int(str(error.value).split("d_ff = ")[1].split(" ")[0])
    matched = count_parameters(arm.model_copy(update={"d_ff": width})).total
    assert matched == pytest.approx(count_parameters(baseline).total, rel=0.005)


@pytest.mark.parametrize(
    ("arm", "baseline", "message"),
    [
        ({"share": "none"}, {"share": "attention"}, r"model\.share = attention"),
        ({"block": ("attention",)}, {}, r"model\.block"),
        ({"n_layers": 60}, {"n_layers": 6}, r"model\.d_ff = 1"),
    ],
)
def test_arms_that_no_width_makes_equal_are_refused(arm, baseline, message):
    with pytest.raises(ConfigError, match=message):
        match_parameters("arm", resolved(**arm), resolved(**baseline))


def test_steps_are_inverse_to_the_cost_of_a_step():
    match = match_steps(10, cost=3.0, baseline_cost=2.0)
    assert (match.overrides, match.is_unequal) == (("train.steps=7",), True)
    assert match.mismatch == pytest.approx(1 / 20)
    assert match_steps(900, cost=3.0, baseline_cost=2.0) == Match(("train.steps=600",), 0.0)
    assert match_steps(900, cost=2.0, baseline_cost=2.0) == Match(("train.steps=900",), 0.0)


def test_arms_are_matched_by_parameters_operations_or_time():
    arms, models = arms_of("model.ffn=relu,swiglu", "model.n_layers=2,3")
    matches = match_arms(arms, models, "parameters")
    assert (matches[0], matches[2]) == (Match((), 0.0), Match(("model.d_ff=512",), 0.0))
    assert apply_match(arms[0], matches[0]) is arms[0].loaded
    matched = apply_match(arms[2], matches[2])
    assert (matched.recipe.model.d_ff, matched.origins["model.d_ff"]) == (512, "match")
    arms, models = arms_of("model.d_model=64,128", "train.batch_sequences=4,8")
    first, second, third, _ = match_arms(arms, models, "flops", steps=1000)
    assert (first, second) == (Match((), 0.0), Match(("train.steps=500",), 0.0))
    per_token = [flops_per_token(model, 128) for model in models]
    steps = round(1000 * per_token[0] / per_token[2])
    assert third is not None and third.overrides == (f"train.steps={steps}",)
    assert apply_match(arms[1], second).recipe.train.minutes is None
    arms, models = arms_of("model.ffn=relu,swiglu")
    timed = match_arms(arms, models, "time", steps=1000, step_seconds=[0.2, 0.25])
    assert timed == [Match((), 0.0), Match(("train.steps=800",), 0.0)]
    # Without steps or times it is left open.
    assert match_arms(arms, models, "flops") == [None, None]
    assert match_arms(arms, models, "time", steps=9) == [None, None]
    assert apply_match(arms[1], None) is arms[1].loaded


@pytest.mark.parametrize(
    ("rule", "vary", "message"),
    [
        ("parameters", "model.d_ff=100,200", r"arm d_ff=200 .*--match parameters"),
        ("flops", "train.steps=100,200", r"arm steps=200 .*--match flops"),
    ],
)
def test_an_arm_that_sets_what_matching_solves_is_refused(rule, vary, message):
    arms, models = arms_of(vary)
    with pytest.raises(ConfigError, match=message):
        match_arms(arms, models, rule, steps=100)
    assert match_arms(arms, models, "none")[0] == Match((), 0.0)


def test_a_mismatch_is_the_difference_from_the_control():
    study = load_study("macaron-translation", scale="paper")
    models = [
        resolve_model(arm.loaded.recipe.model, vocab_size=9000, context=64) for arm in study.arms
    ]
    sizes = [count_parameters(model).total for model in models]
    expected = []
    for place in (0, 2, 4):
        # 3 d_model more in each of 12 layers.
        assert sizes[place + 1] - sizes[place] == 36 * models[place].d_model
        expected += [0.0, pytest.approx(sizes[place + 1] / sizes[place] - 1)]
    left = [match.mismatch for match in match_arms(study.arms, models, "none") if match is not None]
    assert left == expected


STEPS = 301


def resolve(recipe: Recipe) -> Recipe:
    settled = {"steps": STEPS, "evaluate_steps": 31, "precision": "bfloat16", "threads": 2}
    return recipe.model_copy(update={"train": recipe.train.model_copy(update=settled)})


MEASURES = Measures(
    vocab_size=lambda recipe: 257,
    train_tokens=lambda recipe: 70_000,
    resolve=resolve,
    step_s=lambda loaded: 0.25 if loaded.recipe.model.block == "macaron" else 0.2,
)


def settled_arms(*texts: str, vary: str = "model.block=transformer,macaron") -> list[Arm]:
    return expand(load_recipe("gpt", list(texts)), [vary])


def test_arms_have_the_baselines_steps_precision_and_threads():
    for each in match_budgets(settled_arms("train.minutes=3"), "parameters", MEASURES):
        train = each.loaded.recipe.train
        assert (train.steps, train.minutes) == (STEPS, None)
        assert (each.settings["train.precision"], each.settings["train.threads"]) == ("bfloat16", 2)
    fixed = settled_arms("train.steps=300", "train.precision=float32", "train.threads=1")
    baseline, macaron = match_budgets(fixed, "parameters", MEASURES)
    assert (baseline.matched, baseline.settings) == ((), {})
    width = macaron.loaded.recipe.model.d_ff
    assert (macaron.matched, macaron.settings) == ((f"model.d_ff={width}",), {"model.d_ff": width})
    # A length of an arm stays.
    _, longer = match_budgets(settled_arms(vary="train.steps=11,13"), "none", MEASURES)
    assert longer.loaded.recipe.train.steps == 13


def test_arms_of_other_batches_have_the_tokens_and_evaluations_of_the_baselines_minutes():
    def briefly(recipe: Recipe) -> Recipe:
        update = {"evaluate_steps": 151, "evaluate_tokens": 999}
        return recipe.model_copy(update={"train": resolve(recipe).train.model_copy(update=update)})

    arms = settled_arms("train.minutes=3", vary="train.batch_sequences=16,7")
    found = []
    for measures in (MEASURES, replace(MEASURES, resolve=briefly)):
        for each in match_budgets(arms, "none", measures):
            train = each.loaded.recipe.train
            found.append((train.steps, train.evaluate_steps, train.evaluate_tokens))
    longer = round(STEPS * 16 / 7)
    assert found[:2] == [(STEPS, None, None), (longer, None, None)]
    assert found[2:] == [(STEPS, 151, 999), (longer, longer // 2, 999)]


def test_matching_by_time_starts_from_the_steps_of_minutes_or_epochs():
    _, macaron = match_budgets(settled_arms("train.minutes=3"), "time", MEASURES)
    assert macaron.loaded.recipe.train.steps == round(STEPS * 0.2 / 0.25)
    slow = replace(MEASURES, step_s=lambda loaded: 1.0)
    _, macaron = match_budgets(settled_arms("train.epochs=2"), "time", slow)
    assert macaron.loaded.recipe.train.steps == pytest.approx(2 * 70_000 / (8 * 128), abs=1)


def test_a_machine_that_slows_down_steadily_slows_all_arms_alike():
    timed = []

    def step_s(loaded):
        timed.append(loaded.recipe.model.block)
        return 0.15 + 0.05 * len(timed)

    slowing = replace(MEASURES, step_s=step_s)
    _, macaron = match_budgets(settled_arms("train.steps=300"), "time", slowing)
    assert timed == ["transformer", "macaron", "macaron", "transformer"]
    assert macaron.loaded.recipe.train.steps == 300


BLOCK = 12 * 64**2
"""Weights of a block of width 64 in products: four of attention, and a network of four times it."""
SIZES = ("model.d_model=64", "model.n_heads=2", "data.context=128", "model.vocab_size=256")


def planned_budgets(*settings: str, vary: str, **options: Any) -> tuple[ArmBudget, ...]:
    plan = planned(*SIZES, *settings, vary=[vary], **{"rule": "none", **options})
    return tuple(arm.budget for arm in plan.arms)


def test_an_excess_is_a_share_of_what_the_other_takes():
    excess = excess_over(Budget(103, 50.0, 9.8), Budget(100, 200.0, 10.0))
    assert excess.parameters == pytest.approx(0.03)
    assert excess.operations == pytest.approx(-0.75)
    assert excess.time == pytest.approx(-0.02)
    # 2 % of time is the clock's, 3 % of parameters are not the width's.
    assert set(excess.beyond) == {"parameters", "operations"}
    assert excess_over(Budget(1005), Budget(1000)).beyond == {}
    assert set(excess_over(Budget(1006), Budget(1000)).beyond) == {"parameters"}
    assert set(excess_over(Budget(1, None, 10.4), Budget(1, None, 10.0)).beyond) == {"time"}


def test_an_excess_is_unknown_where_one_of_both_is_and_is_kept():
    for one, other in ((None, 5.0), (5.0, None), (5.0, 0.0)):
        assert excess_over(Budget(10, one), Budget(10, other)) == Excess(0.0, None, None)
    budget = ArmBudget("b", "a", Excess(0.1, None), Excess(0.1, -0.2, 0.3))
    assert read_budget("b", json.loads(json.dumps(budget_to_json(budget)))) == budget


def test_planned_budgets_are_those_worked_out_by_hand():
    first, second = planned_budgets(vary="train.steps=100,200")
    assert first == ArmBudget("steps=100", None)
    assert second == ArmBudget("steps=200", "steps=100", Excess(0.0, 1.0))
    _, deeper = planned_budgets("train.steps=100", vary="model.n_layers=2,3")
    # Each block also mixes 128 keys, of which a query sees half, twice.
    products, head = BLOCK + 128 * 64, 256 * 64
    assert deeper.planned.operations == pytest.approx(products / (2 * products + head), rel=1e-6)
    weights = BLOCK + 13 * 64  # with biases, and two norms
    total = 2 * weights + (256 + 128 + 2) * 64
    assert deeper.planned.parameters == pytest.approx(weights / total, rel=1e-12)


@pytest.mark.parametrize("length", ["train.minutes=3", "train.epochs=2"])
def test_lengths_that_will_be_the_same_are_taken_as_equal(length):
    _, known = planned_budgets("train.steps=70", vary="model.d_ff=100,300")
    _, later = planned_budgets(length, vary="model.d_ff=100,300")
    assert later.planned == known.planned


def test_operations_that_depend_on_a_text_are_left_open_and_times_are_planned():
    for settings, vary, rule in (
        ([], "train.epochs=1,2", "none"),
        (["train.epochs=1"], "data.split=90/5/5,80/10/10", "none"),
        (["train.minutes=3"], "model.ffn=gelu,swiglu", "flops"),
    ):
        _, other = planned_budgets(*settings, vary=vary, rule=rule)
        assert other.planned.operations is None
    timed = {"rule": "time", "seconds": [0.3, 0.7]}
    _, other = planned_budgets("train.steps=10", vary="model.ffn=gelu,swiglu", **timed)
    assert other.planned.time == pytest.approx(4 * 0.7 / (10 * 0.3) - 1)
    assert "time" in other.planned.beyond


def test_of_many_arms_the_header_has_the_largest_differences():
    widths = ",".join(str(768 + 8 * step) for step in range(9))
    rates = ",".join("12345678")
    for vary, start in (
        (f"model.d_ff={widths}", "differ by up to 5.4 % in parameters and 5.2 % in operations"),
        (f"optimizer.lr={rates}", "equal to half a percent"),
    ):
        arms = load_study("gpt", ["train.steps=30"], vary_texts=[vary]).arms
        matched = match_budgets(arms, "none", MEASURES)
        steps = [arm_steps(arm.loaded, MEASURES) for arm in matched]
        [(label, text)] = budget_rows(matched, MEASURES, "none", steps)
        assert label == "budgets"
        assert text.replace("\N{NO-BREAK SPACE}", " ").startswith(f"{start}: sublayer plan")
