"""What varies becomes arms, the first value of each field the baseline."""

import pytest

from sublayer.config.layering.layers import LoadedRecipe, load_recipe
from sublayer.errors import ConfigError
from sublayer.study.arms import check_distinct, expand, make_arm, split_values


@pytest.fixture
def loaded() -> LoadedRecipe:
    return load_recipe("gpt")


def test_without_variation_the_recipe_is_the_only_arm(loaded: LoadedRecipe) -> None:
    (arm,) = expand(loaded, [])
    assert (arm.name, arm.loaded) == ("gpt", loaded)


def test_each_value_is_an_arm_and_the_first_is_the_baseline(loaded: LoadedRecipe) -> None:
    arms = expand(loaded, ["model.ffn=relu,swiglu"])
    assert [arm.name for arm in arms] == ["ffn=relu", "ffn=swiglu"]
    assert [arm.loaded.recipe.model.ffn for arm in arms] == ["relu", "swiglu"]
    assert [dict(arm.settings) for arm in arms] == [{"model.ffn": "relu"}, {"model.ffn": "swiglu"}]


def test_several_fields_make_every_combination(loaded: LoadedRecipe) -> None:
    arms = expand(loaded, ["model.ffn=relu,swiglu", "model.norm=layer,rms", "model.n_layers=1,2,3"])
    assert len(arms) == 12
    assert arms[0].name == "ffn=relu norm=layer n_layers=1"
    assert arms[-1].name == "ffn=swiglu norm=rms n_layers=3"


def test_fields_of_one_name_keep_their_table_in_the_label(loaded: LoadedRecipe) -> None:
    assert expand(loaded, ["optimizer.kind=adamw,sgd"])[1].name == "kind=sgd"
    with pytest.raises(ConfigError, match=r"optimizer\.kind=adamw objective\.kind=causal"):
        expand(loaded, ["optimizer.kind=adamw,sgd", "objective.kind=causal,causal"])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a,b", ["a", "b"]),
        (" a , b", ["a", "b"]),
        ('["ffn","attention"],transformer', ['["ffn","attention"]', "transformer"]),
        ('"a,b",c', ['"a,b"', "c"]),
        ("{a = 1, b = [2, 3]},'x]'", ["{a = 1, b = [2, 3]}", "'x]'"]),
    ],
)
def test_values_are_split_at_commas_outside_brackets_and_quotes(
    text: str, values: list[str]
) -> None:
    assert split_values(text) == values


def test_a_list_is_a_value(loaded: LoadedRecipe) -> None:
    arms = expand(loaded, ['model.block=transformer,["ffn","attention"]'])
    assert arms[1].loaded.recipe.model.block == ("ffn", "attention")


@pytest.mark.parametrize("text", ['["ffn",transformer', '"a,b', "{a = 1"])
def test_an_open_bracket_or_quote_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is missing"):
        split_values(text)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["model.ffn"], "is not field=a,b"),
        (["model.ffn=relu"], "has one value"),
        (["model.ffn=relu,"], "has an empty value"),
        (["model.ffn=relu,gelu", "model.ffn=glu,geglu"], "is given twice"),
        (["model.ffn=relu,gelu,gelu"], "two arms are named ffn=gelu"),
        (["title=a,b"], "changes nothing that is computed"),
        (["train.seed=0,1"], "give their number with --seeds"),
        (
            ["model.fnn=relu,gelu"],
            r"arm fnn=relu: model\.fnn is not a field: did you mean model\.ffn",
        ),
        (["model.n_heads=4,7"], r"arm n_heads=7: model\.n_heads = 7 must divide"),
    ],
)
def test_a_variation_without_meaning_is_refused(
    loaded: LoadedRecipe, texts: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        expand(loaded, texts)


def test_an_arm_equal_to_the_baseline_is_refused_also_where_the_value_is_derived(
    loaded: LoadedRecipe,
) -> None:
    with pytest.raises(ConfigError, match="arm d_ff=768 is equal to the baseline"):
        check_distinct(
            [make_arm("base", loaded, {}), make_arm("d_ff=768", loaded, {"model.d_ff": 4 * 192})]
        )


def test_arms_equal_to_each_other_are_refused(loaded: LoadedRecipe) -> None:
    with pytest.raises(ConfigError, match=r"arm init_std=2e-2 is equal to arm init_std=0\.02"):
        expand(loaded, ["model.init_std=0.01,0.02,2e-2"])


def test_a_field_both_set_and_varied_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.ffn is both set and given to --vary"):
        expand(load_recipe("gpt", ["model.ffn=glu"]), ["model.ffn=relu,gelu"])
