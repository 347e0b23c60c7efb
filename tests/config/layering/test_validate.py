import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.config.optimizers.kinds import OPTIMIZERS
from sublayer.errors import ConfigError


def optimizers_with(field: str) -> str:
    return " or ".join(kind for kind, table in OPTIMIZERS.items() if field in table.model_fields)


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        load_recipe("gpt", overrides)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("override", "rule"),
    [
        ("optimizer.lr='3e-4'", "is not a number"),
        ("optimizer.lr=true", "is not a number"),
        ("optimizer.lr=0", "must be more than 0"),
        ("optimizer.lr=nan", "must be finite"),
        ("model.n_layers=2.0", "is not a whole number"),
        ("model.n_layers=0", "must be at least 1"),
        ("model.dropout=1.0", "must be less than 1"),
        ("optimizer.warmup_share=1.5", "must be at most 1"),
        ("model.bias=1", "is not true or false"),
        ("model.ffn=swigul", "did you mean swiglu?"),
        ("model.norm=3", "is not one of layer, rms, none"),
        ("model.kind=encodr", "did you mean encoder?"),
        ("model.block=[1]", "is not text or a list of texts"),
        ("data.path=1984", "put it in quotes"),
        ("data.path={a = 'b'}", "is not text, a list of texts or {name = weight}"),
        ("data.watch=notes.txt", "is not a list of texts or {name = path}"),
        ("optimizer.betas=[0.9]", "is not a list of 2 numbers"),
        ("optimizer.betas=[0.9, 'a']", "is not a list of 2 numbers"),
        ("optimizer.betas=[0.9, 1.0]", "must be less than 1"),
        ("model.sentence_classes=3", "is not one of 0, 1, 2"),
    ],
)
def test_a_wrong_value_is_refused_by_field_and_rule(override: str, rule: str):
    message = refusal(override)
    assert message.startswith(override.partition("=")[0] + " = ")
    assert rule in message


@pytest.mark.parametrize(
    ("kind", "override"),
    [
        ("adamw", "momentum=0.5"),
        ("adamw", "min_factored=8"),
        ("adafactor", "bias_correction=false"),
        ("sgd", "parameter_scale=true"),
    ],
)
def test_a_field_of_other_optimizers_is_refused_by_their_names(kind: str, override: str):
    field = override.partition("=")[0]
    assert refusal(f"optimizer.kind={kind}", f"optimizer.{override}") == (
        f"optimizer.{field} is a field of optimizer.kind = {optimizers_with(field)}, not of {kind}"
    )


def test_adafactor_clips_no_gradient_where_a_recipe_clips_adams():
    clipped = load_recipe("gpt", ["optimizer.clip_norm=0.5"]).recipe
    assert clipped.optimizer.clip_norm == 0.5
    recipe = load_recipe("gpt", ["optimizer.kind=adafactor"]).recipe
    assert recipe.optimizer.clip_norm == 0.0
    assert recipe.optimizer.lr == 0.01


def test_numbers_and_values_of_a_mapping_keep_their_types():
    recipe = load_recipe("gpt", {"model.d_ff": 512, "optimizer.lr": 1}).recipe
    assert recipe.model.d_ff == 512
    assert isinstance(recipe.optimizer.lr, float)
    with pytest.raises(ConfigError, match=r"model\.d_ff = '512' is not a whole number"):
        load_recipe("gpt", {"model.d_ff": "512"})


def test_a_long_value_is_cut_short_and_stays_on_one_line():
    assert len(refusal(f"model.norm={'x' * 1000}")) < 200
    refusal("model.norm=a\nb")


@pytest.mark.parametrize(
    ("overrides", "fields"),
    [
        (["model.n_heads=7", "model.d_model=512"], ["model.n_heads = 7", "model.d_model = 512"]),
        (["model.positions=rotary", "model.d_head=5"], ["model.positions", "model.d_head"]),
        (["model.positions=sinusoidal", "model.d_model=7", "model.n_heads=1"], ["model.d_model"]),
        (["model.norm=none", "model.final_norm=affine"], ["model.final_norm", "model.norm"]),
        (['model.block=["attention", "cross"]'], ["cross", "model.kind = decoder"]),
        (['model.block=["ffn"]', "model.share=attention"], ["model.share", "model.block"]),
        (["model.share=all", "model.share_groups=7"], ["model.share_groups", "model.n_layers = 6"]),
        (["model.share=all", "model.share_inner=4"], ["model.share_inner", "model.n_layers = 6"]),
        (["model.max_len=100", "data.context=101"], ["model.max_len = 100", "data.context=100"]),
        (["optimizer.warmup_steps=9", "train.steps=8"], ["optimizer.warmup_steps = 9", "8 steps"]),
        (
            ["optimizer.schedule=inverse-sqrt", "optimizer.warmup_steps=0", "train.steps=3"],
            ["optimizer.schedule = inverse-sqrt", "optimizer.warmup_steps"],
        ),
        (
            [
                "optimizer.schedule=linear",
                "optimizer.warmup=albert",
                "optimizer.warmup_steps=0",
                "train.steps=3",
            ],
            ["optimizer.warmup = albert", "optimizer.warmup_steps"],
        ),
    ],
)
def test_a_contradiction_is_refused_and_names_both_fields(overrides: list[str], fields: list[str]):
    message = refusal(*overrides)
    assert all(field in message for field in fields)


def test_a_warm_up_that_a_schedule_needs_is_derived_for_a_short_run_too():
    load_recipe("gpt", ["optimizer.schedule=inverse-sqrt", "train.steps=3"])
