"""Budgets of arms: matched, given to every arm, and their excess over the arm of comparison."""

import json
from collections.abc import Sequence
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
    Rule,
    apply_match,
    leave_unmatched,
    match_arms,
    match_parameters,
    match_steps,
)
from sublayer.study.budget.plan import ArmPlan, make_plan
from sublayer.study.budget.resources import Resources
from sublayer.study.budget.sized_arm import Sized, StepTime
from sublayer.study.definition import load_study
from sublayer.study.header import budget_rows


def resolved(**fields: Any) -> ModelConfig:
    return resolve_model(ModelConfig(**fields), vocab_size=101, context=31)


def arms_of(*vary: str, base: str = "model.bias=false") -> tuple[list[Arm], list[ModelConfig]]:
    arms = expand(load_recipe("gpt", [base]), vary)
    recipes = [arm.loaded.recipe for arm in arms]
    return arms, [
        resolve_model(each.model, vocab_size=256, context=each.data.context) for each in recipes
    ]


def test_a_gated_arm_without_biases_gets_two_thirds_of_the_width() -> None:
    relu, swiglu = (
        resolved(d_model=768, n_heads=12, d_ff=3072, ffn=ffn, bias=False)
        for ffn in ("relu", "swiglu")
    )
    assert match_parameters("swiglu", swiglu, relu) == Match(("model.d_ff=2048",), 0.0)


def test_a_macaron_arm_gets_half_of_the_width() -> None:
    transformer = resolved(d_model=512, n_heads=8, d_ff=2048)
    match = match_parameters(
        "macaron", transformer.model_copy(update={"block": "macaron"}), transformer
    )
    # Three vectors more at half the width; one unit of both networks holds 4 * 512 + 2.
    assert match.overrides == ("model.d_ff=1023",)
    left = 6 * (3 * 512 - (4 * 512 + 2))
    assert match.mismatch == pytest.approx(left / count_parameters(transformer).total, rel=1e-12)
    assert not match.is_unequal


@pytest.mark.parametrize(
    "block", [("attention", "ffn:glu"), ("ffn:swiglu*0.5", "attention", "attention", "ffn:relu")]
)
@pytest.mark.parametrize("d_ff", [143])
def test_no_other_width_comes_nearer(block: tuple[str, ...], d_ff: int) -> None:
    baseline = resolved(d_model=20, d_ff=d_ff, norm="rms")
    arm = resolved(d_model=20, block=block, positions="rotary", d_head=6)
    target = count_parameters(baseline).total
    match = match_parameters("arm", arm, baseline)
    width = int(match.overrides[0].removeprefix("model.d_ff="))

    def distance(d_ff: int) -> int:
        return abs(count_parameters(arm.model_copy(update={"d_ff": d_ff})).total - target)

    assert distance(width) == min(distance(other) for other in range(max(1, width - 3), width + 4))
    assert abs(match.mismatch) == pytest.approx(distance(width) / target, abs=1e-12)


def test_equal_arms_are_left_alone_even_where_blocks_share_weights() -> None:
    baseline = resolved(ffn="relu", share="all")
    assert match_parameters("gelu", resolved(ffn="gelu", share="all"), baseline) == Match((), 0.0)


def test_an_arm_that_differs_by_more_than_half_a_percent_is_marked() -> None:
    baseline = resolved(n_layers=1, d_model=8, n_heads=2, d_ff=1)
    coarse = resolved(
        n_layers=30, d_model=8, n_heads=2, block=("ffn",), norm="none", positions="none"
    )
    assert leave_unmatched(coarse, baseline).is_unequal
    assert match_parameters("coarse", coarse, baseline).is_unequal
    assert not leave_unmatched(baseline, baseline).is_unequal


def test_sharing_arms_are_told_the_width_and_the_other_rules() -> None:
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
def test_arms_that_no_width_makes_equal_are_refused(
    arm: dict[str, Any], baseline: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        match_parameters("arm", resolved(**arm), resolved(**baseline))


def test_steps_are_inverse_to_the_cost_of_a_step() -> None:
    match = match_steps(10, cost=3.0, baseline_cost=2.0)
    assert (match.overrides, match.is_unequal) == (("train.steps=7",), True)
    assert match.mismatch == pytest.approx(1 / 20)
    assert match_steps(900, cost=3.0, baseline_cost=2.0) == Match(("train.steps=600",), 0.0)
    assert match_steps(900, cost=2.0, baseline_cost=2.0) == Match(("train.steps=900",), 0.0)


def test_arms_matched_by_parameters_are_laid_over_with_their_width() -> None:
    arms, models = arms_of("model.ffn=relu,swiglu", "model.n_layers=2,3")
    matches = match_arms(arms, models, "parameters")
    assert matches[0] == Match((), 0.0)
    assert matches[2] == Match(("model.d_ff=512",), 0.0)  # two thirds of 4 * 192
    assert apply_match(arms[0], matches[0]) is arms[0].loaded
    matched = apply_match(arms[2], matches[2])
    assert (matched.recipe.model.d_ff, matched.origins["model.d_ff"]) == (512, "match")


def test_arms_matched_by_operations_run_inversely_to_what_a_step_costs() -> None:
    arms, models = arms_of("model.d_model=64,128", "train.batch_sequences=4,8")
    matches = match_arms(arms, models, "flops", steps=1000)
    assert matches[:2] == [Match((), 0.0), Match(("train.steps=500",), 0.0)]
    per_token = [flops_per_token(model, 128) for model in models]
    assert matches[2] is not None
    assert matches[2].overrides == (f"train.steps={round(1000 * per_token[0] / per_token[2])}",)
    assert apply_match(arms[1], matches[1]).recipe.train.minutes is None


def test_what_is_not_known_yet_leaves_the_match_open() -> None:
    arms, models = arms_of("model.ffn=relu,swiglu")
    timed = match_arms(arms, models, "time", steps=1000, step_seconds=[0.2, 0.25])
    assert timed == [Match((), 0.0), Match(("train.steps=800",), 0.0)]
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
def test_an_arm_that_sets_what_matching_solves_is_refused(
    rule: Rule, vary: str, message: str
) -> None:
    arms, models = arms_of(vary)
    with pytest.raises(ConfigError, match=message):
        match_arms(arms, models, rule, steps=100)
    assert match_arms(arms, models, "none")[0] == Match((), 0.0)


def test_what_is_left_is_the_difference_from_the_arm_that_each_is_compared_with() -> None:
    study = load_study("macaron-translation", scale="paper")
    models = [
        resolve_model(arm.loaded.recipe.model, vocab_size=9000, context=64) for arm in study.arms
    ]
    left = [match.mismatch for match in match_arms(study.arms, models, "none") if match is not None]
    assert [left[place] for place in (0, 2, 4)] == [0.0, 0.0, 0.0]  # controls
    for place in (1, 3, 5):
        (control, macaron) = (
            count_parameters(model).total for model in models[place - 1 : place + 1]
        )
        # 3 d_model more in each of 12 layers.
        assert macaron - control == 36 * models[place].d_model
        assert left[place] == pytest.approx((macaron - control) / control)


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


def test_minutes_become_the_baselines_steps_for_every_arm():
    for each in match_budgets(settled_arms("train.minutes=3"), "parameters", MEASURES):
        assert each.loaded.recipe.train.steps == STEPS
        assert each.loaded.recipe.train.minutes is None


def test_an_arm_with_other_batches_gets_as_many_tokens_as_minutes_gave_the_baseline():
    baseline, half = match_budgets(
        settled_arms("train.minutes=3", vary="train.batch_sequences=16,7"), "none", MEASURES
    )
    assert baseline.loaded.recipe.train.steps == STEPS
    assert half.loaded.recipe.train.steps == round(STEPS * 16 / 7)


def test_arms_are_evaluated_as_seldom_and_as_briefly_as_the_minutes_of_the_baseline_ask_for():
    def briefly(recipe: Recipe) -> Recipe:
        train = resolve(recipe).train.model_copy(
            update={"evaluate_steps": 151, "evaluate_tokens": 999}
        )
        return recipe.model_copy(update={"train": train})

    settled = match_budgets(
        settled_arms("train.minutes=3", vary="train.batch_sequences=16,8"),
        "none",
        replace(MEASURES, resolve=briefly),
    )
    trains = [each.loaded.recipe.train for each in settled]
    assert [(each.evaluate_steps, each.evaluate_tokens) for each in trains] == [
        (151, 999),
        (301, 999),
    ]
    (usual, _) = match_budgets(settled_arms("train.minutes=3"), "none", MEASURES)
    assert (
        usual.loaded.recipe.train.evaluate_steps,
        usual.loaded.recipe.train.evaluate_tokens,
    ) == (None, None)


def test_an_arm_with_a_length_of_its_own_keeps_it():
    _, longer = match_budgets(settled_arms(vary="train.steps=11,13"), "none", MEASURES)
    assert longer.loaded.recipe.train.steps == 13


def test_precision_and_threads_are_the_baselines():
    for each in match_budgets(settled_arms(), "parameters", MEASURES):
        assert (each.settings["train.precision"], each.settings["train.threads"]) == ("bfloat16", 2)
    for each in match_budgets(
        settled_arms("train.precision=float32", "train.threads=1"), "parameters", MEASURES
    ):
        assert each.settings.keys() <= {"train.steps", "model.d_ff"}


def test_matching_adds_its_settings_and_leaves_the_baseline_alone():
    baseline, macaron = match_budgets(settled_arms("train.steps=300"), "parameters", MEASURES)
    assert baseline.matched == ()
    assert macaron.matched == (f"model.d_ff={macaron.loaded.recipe.model.d_ff}",)
    assert abs(macaron.mismatch) < 0.005


def test_matching_by_time_starts_from_the_steps_that_minutes_gave():
    _, macaron = match_budgets(settled_arms("train.minutes=3"), "time", MEASURES)
    assert macaron.loaded.recipe.train.steps == round(STEPS * 0.2 / 0.25)


def test_a_machine_that_slows_down_steadily_slows_all_arms_alike():
    timed = []

    def step_s(loaded):
        seconds = 0.2 + 0.05 * len(timed)
        timed.append(loaded.recipe.model.block)
        return seconds

    _, macaron = match_budgets(
        settled_arms("train.steps=300"), "time", replace(MEASURES, step_s=step_s)
    )
    assert timed == ["transformer", "macaron", "macaron", "transformer"]
    assert macaron.loaded.recipe.train.steps == 300


def test_epochs_are_counted_on_the_training_split():
    slow = replace(MEASURES, step_s=lambda loaded: 1.0)
    _, macaron = match_budgets(settled_arms("train.epochs=2"), "time", slow)
    assert macaron.loaded.recipe.train.steps == pytest.approx(2 * 70_000 / (8 * 128), abs=1)


PLENTY = Resources("cpu", memory_bytes=1 << 50, disk_bytes=1 << 50, has_fast_bfloat16=True, cores=1)
BLOCK = 12 * 64**2
"""Weights of a block of width 64 in products: four of attention, and a network of four times it."""
SIZES = ("model.d_model=64", "model.n_heads=2", "data.context=128", "model.vocab_size=256")


def planned_arms(
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
    first, second = planned_arms(vary=["train.steps=100,200"], rule="none")
    assert first.budget == ArmBudget("steps=100", None)
    assert second.budget == ArmBudget("steps=200", "steps=100", Excess(0.0, 1.0))


def test_a_third_layer_is_half_as_many_blocks_more_and_no_more_embeddings() -> None:
    base, deeper = planned_arms("train.steps=100", vary=["model.n_layers=2,3"], rule="none")
    # Each block also mixes 128 keys, of which a query sees half, twice.
    products, head = BLOCK + 128 * 64, 256 * 64
    spent = products / (2 * products + head)
    assert deeper.budget.planned.operations == pytest.approx(spent, rel=1e-6)
    weights = BLOCK + 13 * 64  # with biases, and two norms
    share = weights / base.parameters.total
    assert deeper.budget.planned.parameters == pytest.approx(share, rel=1e-12)


@pytest.mark.parametrize("length", ["train.minutes=3", "train.epochs=2"])
def test_lengths_that_will_be_the_same_are_taken_as_equal(length: str) -> None:
    known = planned_arms("train.steps=70", vary=["model.d_ff=100,300"], rule="none")
    later = planned_arms(length, vary=["model.d_ff=100,300"], rule="none")
    assert later[1].tokens is None
    assert later[1].budget.planned == known[1].budget.planned


def test_what_is_not_known_before_a_text_is_read_is_left_open() -> None:
    _, other = planned_arms(vary=["train.epochs=1,2"], rule="none")
    assert other.budget.planned.operations is None
    _, other = planned_arms("train.epochs=1", vary=["data.split=90/5/5,80/10/10"], rule="none")
    assert other.budget.planned.operations is None
    _, other = planned_arms("train.minutes=3", vary=["model.ffn=gelu,swiglu"], rule="flops")
    assert other.budget.planned.operations is None


def test_where_time_is_matched_what_steps_will_take_is_planned_too() -> None:
    _, other = planned_arms(
        "train.steps=10", vary=["model.ffn=gelu,swiglu"], rule="time", seconds=[0.3, 0.7]
    )
    assert other.steps == 4
    assert other.budget.planned.time == pytest.approx(4 * 0.7 / (10 * 0.3) - 1)
    assert "time" in other.budget.planned.beyond


def header(arms: Sequence[Arm], rule: Rule) -> list[tuple[str, str]]:
    matched = match_budgets(arms, rule, MEASURES)
    steps = [arm_steps(arm.loaded, MEASURES) for arm in matched]
    return budget_rows(matched, MEASURES, rule, steps)


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
