"""Arms in English: one name for each, in sentences of the terminal and of the report."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.fields.catalog import TABLES
from sublayer.config.layering.layers import load_recipe
from sublayer.study.arms import expand
from sublayer.study.report import arm_names
from sublayer.study.report.arm_names import arm_name, name_setting, name_settings
from sublayer.study.report.messages import headline, statements
from sublayer.study.results import Results

Make = Callable[..., Results]


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("model.ffn", "swiglu", "SwiGLU feed-forward"),
        ("model.positions", "none", "no positions"),
        ("model.norm_order", "post", "post-norm"),
        ("model.tie_embeddings", False, "untied embeddings"),
        ("model.softmax", "all", "softmax over tokens and positions"),
        ("model.dropout_embedding_of", "matrix", "embedding dropout of the matrix"),
        ("model.n_layers", 1, "1 layer"),
        ("model.n_layers", 12, "12 layers"),
        ("model.bias", 1, "bias = 1"),
        ("model.block", ["attention", "ffn*0.5"], "block attention ffn*0.5"),
        ("optimizer.lr", 0.001, "learning rate 0.001"),
        ("model.rotary_base", 500000.0, "rotary_base = 500000.0"),
    ],
)
def test_a_setting_has_a_name_in_english(field: str, value: object, name: str):
    assert name_setting(field, value) == name


def test_several_settings_are_named_one_after_another():
    settings = {"model.ffn": "relu", "model.positions": "rotary"}
    assert name_settings(settings) == "ReLU feed-forward + rotary positions"


def test_every_network_and_every_position_scheme_has_words_of_its_own():
    assert arm_names._PHRASES["model.ffn"].keys() == FFNS.keys()
    assert arm_names._PHRASES["model.positions"].keys() == POSITIONS.keys()


def test_only_fields_that_exist_have_names():
    named = arm_names._PHRASES | arm_names._FORMS | arm_names._SINGULAR
    recipes = ("gpt", "albert-small", "t5-mini", "multi30k-tiny", "char-t64")
    known: set[str] = set()
    for recipe in recipes:
        known |= load_recipe(recipe).origins.keys()
    assert {key.partition(".")[0] for key in named} <= set(TABLES)
    assert named.keys() <= known


def varied(results: Results) -> Results:
    gpt, swiglu = results.arms
    arms = (
        replace(gpt, varied={"model.ffn": "gelu"}),
        replace(swiglu, varied={"model.ffn": "swiglu"}),
    )
    return replace(results, arms=arms)


def test_sentences_name_varied_arms_in_english(synthetic_results: Make):
    results = varied(synthetic_results({"ffn=gelu": 0.0, "ffn=swiglu": -0.1}))
    (statement,) = statements(results)
    assert str(statement).startswith("SwiGLU feed-forward is better than GELU feed-forward by 0.09")
    assert headline(results).startswith("SwiGLU feed-forward is better than GELU feed-forward by")


def test_arms_with_names_of_their_own_keep_them(synthetic_results: Make):
    results = synthetic_results({"gpt": 0.0, "positions=none": 0.1})
    assert arm_name(results, "positions=none") == "positions=none"


def test_arms_of_vary_know_what_they_are_named_by():
    arms = expand(load_recipe("gpt"), ["model.ffn=gelu,swiglu"])
    assert all(arm.is_varied for arm in arms)
    assert [dict(arm.settings) for arm in arms] == [
        {"model.ffn": "gelu"},
        {"model.ffn": "swiglu"},
    ]
