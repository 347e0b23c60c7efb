"""Fields of a recipe: listing, schema, effect, old names."""

import json
import shutil
from pathlib import Path

import pytest

from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.fields.applicability import USES, uses
from sublayer.config.fields.catalog import HEADINGS, TABLES, is_union, keys
from sublayer.config.fields.listing import field_rows, json_schema
from sublayer.config.fields.renames import RENAMED, with_current_names
from sublayer.config.fields.use import value_of
from sublayer.config.layering.layers import load_recipe
from sublayer.config.layering.run_recipe import read_recipe
from sublayer.config.layering.sources import FILE_ONLY, shipped_recipes
from sublayer.config.optimizers.kinds import OPTIMIZERS
from sublayer.config.recipe import Recipe
from sublayer.errors import ConfigError
from sublayer.model.model_folder import load_weights
from sublayer.study.definition import load_study

PURE = (
    *("_std", "base", "beta", "betas", "decay", "eps", "exponent", "first_position", "loss", "lr"),
    *("momentum", "norm", "penalty", "power", "ratio", "seed", "threshold", "weight"),
)
"""Ends of the names of numbers that count nothing."""


def test_every_field_is_listed_once_with_type_and_description():
    listed = field_rows()
    names = [".".join(filter(None, (each.table, each.name))) for each in listed]
    assert names == [*HEADINGS, *keys()]
    assert all(each.description and each.type and each.default for each in listed)
    assert {each.table for each in field_rows("optimizer")} == {"optimizer"}
    assert {name for each in listed for name in each.set_by} == set(shipped_recipes())


def test_numbers_have_a_unit_or_are_pure():
    names = {row.name for row in field_rows() if "number" in row.type and not row.unit}
    assert [name for name in names if not name.endswith(PURE)] == []
    assert [end for end in PURE if not any(name.endswith(end) for name in names)] == []


def test_the_schema_describes_every_table_and_is_json():
    schema = json.loads(json.dumps(json_schema()))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(schema["properties"]) == {*FILE_ONLY, *HEADINGS, *TABLES}
    assert schema["additionalProperties"] is False
    model = schema["$defs"]["ModelConfig"]
    assert model["additionalProperties"] is False
    assert model["properties"]["ffn"]["enum"] == list(FFNS)
    assert "Unit: features." in model["properties"]["d_ff"]["description"]
    # A table of kinds may leave out its kind.
    optimizer = schema["properties"]["optimizer"]
    assert len(optimizer["anyOf"]) == len(OPTIMIZERS)
    assert "discriminator" not in optimizer
    assert "required" not in schema["$defs"]["SgdConfig"]


NAMED_FFNS = 'model.block=["ffn:relu*0.5", "attention", "ffn:swiglu*0.5"]'


@pytest.mark.parametrize("idle, others", [
    ("model.gelu=exact", [NAMED_FFNS]), ("model.ffn=relu", [NAMED_FFNS]),
    ("model.norm=rms", ["model.kind=lstm"]),
    ("data.vocab_size=300", ["data.tokenizer=tokenizer.json"]),
    ("optimizer.decay_vectors=true", ["optimizer.weight_decay=0"]),
    ("data.text_field=body", ["data.documents=blank-line", "data.path=a.txt"]),
    ("data.split=80/10/10", ["data.valid_path=v", "data.test_path=t"]),
    ("train.compile=true", ["model.kind=lstm"]),
])  # fmt: skip
def test_a_field_without_effect_is_refused_by_name(idle, others):
    load_recipe("gpt", others)
    with pytest.raises(ConfigError) as error:
        load_recipe("gpt", [idle, *others])
    message = str(error.value)
    assert message.startswith(idle.partition("=")[0] + " = ")
    assert " has no effect" in message
    assert len(others) != 1 or others[0].partition("=")[0] in message


@pytest.mark.parametrize("overrides", [
    ["model.gelu=exact", 'model.block=["ffn:relu", "attention", "ffn:gelu"]'],
    ["model.ffn=relu", 'model.block=["ffn:gelu", "attention", "ffn"]'],
    ["model.kind=lstm", "model.head=transform", "model.ffn=swish", "model.swish_beta=2"],
    ["data.split=80/10/10", 'data.corpus=["enwik8", "python"]'],
    ["data.split=80/10/10", "data.corpus=enwik8", "data.path=x"],
    ["data.documents=json", "data.path=a.jsonl", "data.text_field=body"],
    ["data.text_field=body", "data.path=hub:owner/name"],
], ids=' '.join)  # fmt: skip
def test_a_field_with_effect_is_accepted(overrides):
    load_recipe("gpt", overrides)


def test_every_rule_is_about_fields_that_exist():
    known = keys()
    assert set(USES) <= set(known)
    deciders = {decider for key in known for use in uses(key) for decider in use.deciders}
    assert deciders
    assert deciders <= set(known)
    of_any_kind = {decider for decider in deciders if not is_union(decider.partition(".")[0])}
    assert all(value_of(decider, Recipe()) is not ... for decider in of_any_kind)


PROJECT = Path(__file__).resolve().parents[2]
OLD_RUNS = PROJECT / "tests" / "golden" / "old" / "ba7f49d"


def test_the_new_name_is_given_in_one_line(tmp_path):
    words = "objective.mask_most is now called objective.max_predictions: write that"
    file = tmp_path / "mine.toml"
    file.write_text('extends = "gpt"\n[objective]\nmask_most = 2\n')
    with pytest.raises(ConfigError) as given:
        load_recipe("gpt", ["objective.mask_most=2"])
    with pytest.raises(ConfigError) as written:
        load_recipe(file)
    assert (str(given.value), str(written.value)) == (words, f"{words} (recipe {file})")
    with pytest.raises(ConfigError, match=words.partition(":")[0]):
        load_study("bert-base", vary_texts=["objective.mask_most=10,20"])


def test_old_names_are_read_in_what_was_derived_and_in_folders_of_models(tmp_path, monkeypatch):
    monkeypatch.setitem(RENAMED, "model.width", "model.d_ff")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('derived = ["model.width"]\n[model]\nwidth = 24\nd_model = 8\n')
    assert load_recipe(tmp_path).recipe.model.d_ff is None
    assert read_recipe(recipe).model.d_ff == 24
    folder = tmp_path / "model"
    shutil.copytree(OLD_RUNS / "causal" / "finished" / "model", folder)
    file = folder / "config.json"
    file.write_text(file.read_text().replace('"d_ff"', '"width"'))
    config, _ = load_weights(folder)
    assert config.d_ff == 16


def test_an_old_name_beside_the_new_one_is_refused(tmp_path):
    both = {"objective.mask_most": 3, "objective.max_predictions": 4}
    assert with_current_names(both) == both
    (tmp_path / "recipe.toml").write_text(
        'derived = []\n[objective]\nkind = "masked"\nmask_most = 3\nmax_predictions = 4\n'
    )
    with pytest.raises(ConfigError, match="mask_most is now called"):
        load_recipe(tmp_path)
