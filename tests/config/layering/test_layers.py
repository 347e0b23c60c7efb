import subprocess
import sys

import pytest

from sublayer.config.fields.catalog import TABLES
from sublayer.config.layering.layers import load_recipe, vary
from sublayer.errors import ConfigError


def test_every_value_has_its_origin():
    loaded = load_recipe("modern", ["model.n_layers=2"])
    assert loaded.origins["model.n_layers"] == "command line"
    assert loaded.origins["model.norm"] == "recipe modern"
    assert loaded.origins["model.d_model"] == "recipe gpt"
    assert loaded.origins["model.share"] == "default"
    fields = {
        f"{table}.{name}"
        for table in TABLES
        for name in type(getattr(loaded.recipe, table)).model_fields
    }
    assert set(loaded.origins) == fields | {"title", "source", "cost"}


def test_an_arm_is_one_more_layer():
    loaded = load_recipe("gpt", ["train.minutes=3", "model.d_ff=64"])
    arm = vary(loaded, ["train.steps=7"])
    assert (arm.recipe.train.steps, arm.recipe.train.minutes, arm.recipe.model.d_ff) == (
        7,
        None,
        64,
    )
    assert arm.origins["train.steps"] == "vary"
    assert arm.name == loaded.name
    assert loaded.recipe.train.minutes == 3


def test_arms_can_be_laid_on_arms():
    arm = vary(
        vary(load_recipe("gpt"), ["model.positions=rotary", "model.rotary_base=500"]),
        {"model.positions": "none"},
    )
    assert arm.recipe.model.positions == "none"
    assert arm.recipe.model.rotary_base == 10000.0


def test_an_arm_is_checked_as_a_recipe_is():
    with pytest.raises(ConfigError, match="must divide"):
        vary(load_recipe("gpt"), ["model.n_heads=7"])


def test_one_command_line_resolves_alike_twice():
    assert load_recipe("modern", ["model.d_ff=3"]) == load_recipe("modern", ["model.d_ff=3"])


def test_loading_a_recipe_does_not_import_torch():
    load = "from sublayer.config.layering.layers import load_recipe; load_recipe('gpt')"
    code = f"import sys; {load}; print('torch' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"


def test_merges_and_a_vocabularys_size_replace_each_other():
    merges = load_recipe("multi30k-tiny", ["data.merges=500"]).recipe.data
    assert (merges.merges, merges.vocab_size) == (500, None)
    with pytest.raises(ConfigError, match="exclude each other: give one of data.vocab_size"):
        load_recipe("multi30k-tiny", ["data.merges=500", "data.vocab_size=600"])
    with pytest.raises(ConfigError, match="data.merges = 500 has no effect with data.tokenizer"):
        load_recipe("multi30k-tiny", ["data.merges=500", "data.tokenizer=unigram"])
