import pytest

from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.layering.layers import load_recipe
from sublayer.config.objectives.kinds import OBJECTIVES
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
    ("override", "message"),
    [
        ("optimizer.lr=fast", "optimizer.lr = 'fast' is not a number"),
        ("optimizer.lr='3e-4'", "optimizer.lr = '3e-4' is not a number"),
        ("optimizer.lr=true", "optimizer.lr = true is not a number"),
        ("optimizer.lr=0", "optimizer.lr = 0 must be more than 0"),
        ("optimizer.lr=nan", "optimizer.lr = nan must be finite"),
        ("optimizer.lr=inf", "optimizer.lr = inf must be finite"),
        ("model.n_layers=2.0", "model.n_layers = 2.0 is not a whole number"),
        ("model.n_layers=0", "model.n_layers = 0 must be at least 1"),
        ("model.dropout=1.0", "model.dropout = 1.0 must be less than 1"),
        ("optimizer.warmup_share=1.5", "optimizer.warmup_share = 1.5 must be at most 1"),
        ("model.bias=True", "model.bias = 'True' is not true or false"),
        ("model.bias=1", "model.bias = 1 is not true or false"),
        (
            "model.ffn=swigul",
            f"model.ffn = 'swigul' is not one of {', '.join(FFNS)}: did you mean swiglu?",
        ),
        ("model.norm=3", "model.norm = 3 is not one of layer, rms, none"),
        (
            "model.kind=encodr",
            "model.kind = 'encodr' is not one of decoder, encoder, encoder-decoder, lstm: "
            "did you mean encoder?",
        ),
        ("model.block=3", "model.block = 3 is not text or a list of texts: put it in quotes"),
        ("model.block=[1]", "model.block = [1] is not text or a list of texts"),
        (
            "data.path=1984",
            "data.path = 1984 is not text, a list of texts or {name = weight}: put it in quotes",
        ),
        (
            "data.path={a = 'b'}",
            "data.path = {'a': 'b'} is not text, a list of texts or {name = weight}",
        ),
        (
            "data.watch=notes.txt",
            "data.watch = 'notes.txt' is not a list of texts or {name = path}",
        ),
        ("init.run=7", "init.run = 7 is not text: put it in quotes"),
        ("optimizer.betas=[0.9]", "optimizer.betas = [0.9] is not a list of 2 numbers"),
        ("optimizer.betas=[0.9, 'a']", "optimizer.betas = [0.9, 'a'] is not a list of 2 numbers"),
        ("optimizer.betas=[0.9, 1.0]", "optimizer.betas = [0.9, 1.0] must be less than 1"),
        (
            "optimizer.momentum=0.9",
            f"optimizer.momentum is a field of optimizer.kind = {optimizers_with('momentum')}, "
            "not of adamw",
        ),
        (
            "optimizer.min_factored=8",
            "optimizer.min_factored is a field of optimizer.kind = "
            f"{optimizers_with('min_factored')}, not of adamw",
        ),
        ("optimizer.kind=3", f"optimizer.kind = 3 is not one of {', '.join(OPTIMIZERS)}"),
        ("model.sentence_classes=3", "model.sentence_classes = 3 is not one of 0, 1, 2"),
        (
            "objective.kind=xyz",
            f"objective.kind = 'xyz' is not one of {', '.join(OBJECTIVES)}",
        ),
        (
            "objective.kind=masked",
            "objective.kind = masked trains a model.kind = encoder, not decoder"
            ": give another objective, or that kind of model",
        ),
        (
            "model.kind=encoder",
            "objective.kind = causal trains a model.kind = decoder or lstm, not encoder"
            ": give another objective, or that kind of model",
        ),
    ],
)
def test_a_wrong_value_is_one_line_with_field_value_and_rule(override: str, message: str):
    assert refusal(override) == message


@pytest.mark.parametrize("field", ["betas", "momentum", "weight_decay", "bias_correction"])
def test_what_adafactor_has_not_is_an_error_that_names_what_has_it(field: str):
    value = {"betas": "[0.9, 0.99]", "bias_correction": "false"}.get(field, "0.5")
    assert refusal("optimizer.kind=adafactor", f"optimizer.{field}={value}") == (
        f"optimizer.{field} is a field of optimizer.kind = {optimizers_with(field)}, "
        "not of adafactor"
    )


@pytest.mark.parametrize("kind", ["sgd", "adam", "lamb"])
def test_a_parameter_scale_that_nothing_uses_is_an_error(kind: str):
    refused = refusal(f"optimizer.kind={kind}", "optimizer.parameter_scale=true")
    assert refused == (
        "optimizer.parameter_scale is a field of optimizer.kind = adamw or adafactor, "
        f"not of {kind}"
    )


def test_adafactor_clips_no_gradient_where_a_recipe_clips_adams():
    clipped = load_recipe("gpt", ["optimizer.clip_norm=0.5"]).recipe
    assert clipped.optimizer.clip_norm == 0.5
    recipe = load_recipe("gpt", ["optimizer.kind=adafactor"]).recipe
    assert recipe.optimizer.clip_norm == 0.0
    assert recipe.optimizer.lr == 0.01


def test_a_whole_number_is_taken_where_a_number_is_asked():
    recipe = load_recipe("gpt", ["optimizer.lr=1", "optimizer.betas=[0, 0]"]).recipe
    assert recipe.optimizer.lr == 1.0
    assert isinstance(recipe.optimizer.lr, float)


def test_values_of_a_mapping_keep_their_types():
    assert load_recipe("gpt", {"model.d_ff": 512}).recipe.model.d_ff == 512
    with pytest.raises(ConfigError, match=r"model\.d_ff = '512' is not a whole number"):
        load_recipe("gpt", {"model.d_ff": "512"})


def test_a_long_value_is_cut_short():
    assert len(refusal(f"model.norm={'x' * 1000}")) < 200


def test_line_breaks_in_a_value_stay_on_one_line():
    refusal("model.norm=a\nb")


@pytest.mark.parametrize(
    ("overrides", "fields"),
    [
        (["model.n_heads=7", "model.d_model=512"], ["model.n_heads = 7", "model.d_model = 512"]),
        (
            ["model.positions=rotary", "model.d_head=5"],
            ["model.positions = rotary", "model.d_head"],
        ),
        (
            ["model.positions=sinusoidal", "model.d_model=7", "model.n_heads=1"],
            ["sinusoidal", "model.d_model"],
        ),
        (
            ["model.norm=none", "model.final_norm=affine"],
            ["model.final_norm = affine", "model.norm = none"],
        ),
        (['model.block=["attention", "cross"]'], ["cross", "model.kind = decoder"]),
        (["model.block=macron"], ["model.block = 'macron'", "macaron"]),
        (
            ['model.block=["ffn"]', "model.share=attention"],
            ["model.share = attention", "model.block"],
        ),
        (
            ["model.share=all", "model.share_groups=7"],
            ["model.share_groups = 7", "model.n_layers = 6"],
        ),
        (
            ["model.max_len=100", "data.context=101"],
            ["model.max_len = 100", "data.context = 101: give data.context=100"],
        ),
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
        (
            ["model.share=all", "model.share_inner=4"],
            ["model.share_inner = 4", "model.n_layers = 6"],
        ),
    ],
)
def test_a_contradiction_is_refused_and_names_both_fields(overrides: list[str], fields: list[str]):
    message = refusal(*overrides)
    assert all(field in message for field in fields)


def test_a_warm_up_that_a_schedule_needs_is_derived_for_a_short_run_too():
    load_recipe("gpt", ["optimizer.schedule=inverse-sqrt", "train.steps=3"])
