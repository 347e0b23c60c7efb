"""Matched arms have the baseline's budget, or say why they cannot."""

from typing import Any

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.study.arms import Arm, expand
from sublayer.study.budget.match import (
    Match,
    Rule,
    apply_match,
    leave_unmatched,
    match_arms,
    match_parameters,
    match_steps,
)
from sublayer.study.definition import load_study


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
@pytest.mark.parametrize("d_ff", [143, 297, 1013])
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
    message = (
        r"share=all: model\.share = all .* model\.d_ff = (\d+) instead of 128; "
        "use --match flops or --match time"
    )
    with pytest.raises(ConfigError, match=message) as error:
        match_parameters("share=all", arm, baseline)
    width = int(str(error.value).split("d_ff = ")[1].split(" ")[0])
    matched = count_parameters(arm.model_copy(update={"d_ff": width})).total
    assert matched == pytest.approx(count_parameters(baseline).total, rel=0.005)


def test_an_arm_of_a_sharing_baseline_is_refused_as_well() -> None:
    baseline = resolved(n_layers=2, d_model=32, n_heads=2, share="attention")
    with pytest.raises(ConfigError, match=r"model\.share = attention is not matched"):
        match_parameters("share=none", baseline.model_copy(update={"share": "none"}), baseline)


def test_an_arm_without_feed_forward_network_cannot_be_matched() -> None:
    with pytest.raises(ConfigError, match=r"attention only: model\.block has no ffn entry"):
        match_parameters("attention only", resolved(block=("attention",)), resolved())


def test_an_arm_too_large_at_the_smallest_width_cannot_be_matched() -> None:
    with pytest.raises(
        ConfigError,
        match=r"deep: it has [\d,]+ parameters at model\.d_ff = 1, the baseline [\d,]+;",
    ):
        match_parameters("deep", resolved(n_layers=60), resolved(n_layers=6))


def test_steps_are_inverse_to_the_cost_of_a_step() -> None:
    assert match_steps(900, cost=3.0, baseline_cost=2.0) == Match(("train.steps=600",), 0.0)
    assert match_steps(900, cost=2.0, baseline_cost=2.0) == Match(("train.steps=900",), 0.0)


def test_rounding_to_whole_steps_leaves_a_residual() -> None:
    match = match_steps(10, cost=3.0, baseline_cost=2.0)
    assert match.overrides == ("train.steps=7",)
    assert match.mismatch == pytest.approx(1 / 20)
    assert match.is_unequal


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


def test_arms_matched_by_time_run_inversely_to_how_long_a_step_takes() -> None:
    arms, models = arms_of("model.ffn=relu,swiglu")
    matches = match_arms(arms, models, "time", steps=1000, step_seconds=[0.2, 0.25])
    assert matches == [Match((), 0.0), Match(("train.steps=800",), 0.0)]


def test_what_is_not_known_yet_leaves_the_match_open() -> None:
    arms, models = arms_of("model.ffn=relu,swiglu")
    assert match_arms(arms, models, "flops") == [None, None]
    assert match_arms(arms, models, "time", steps=9) == [None, None]
    assert apply_match(arms[1], None) is arms[1].loaded


@pytest.mark.parametrize(
    ("rule", "vary", "message"),
    [
        (
            "parameters",
            "model.d_ff=100,200",
            r"arm d_ff=200 sets model\.d_ff, which --match parameters solves",
        ),
        (
            "flops",
            "train.steps=100,200",
            r"arm steps=200 sets train\.steps, which --match flops solves",
        ),
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
