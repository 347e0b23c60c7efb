"""Fields of a recipe: listing, schema, effect, old names."""

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.fields.applicability import USES, is_idle, uses
from sublayer.config.fields.catalog import HEADINGS, TABLES, declarations, is_union, keys
from sublayer.config.fields.listing import FieldRow, field_rows, json_schema
from sublayer.config.fields.renames import RENAMED, with_current_names
from sublayer.config.fields.use import value_of
from sublayer.config.layering.layers import load_recipe
from sublayer.config.layering.run_recipe import read_recipe, read_run_recipe
from sublayer.config.layering.sources import FILE_ONLY, find_source, read_toml, shipped_recipes
from sublayer.config.optimizers.kinds import OPTIMIZERS
from sublayer.config.recipe import Recipe
from sublayer.errors import ConfigError
from sublayer.model.model_folder import load_weights
from sublayer.study.definition import load_study
from tests.breadth import rows

PURE = (
    "_std",
    "base",
    "beta",
    "betas",
    "decay",
    "eps",
    "exponent",
    "first_position",
    "loss",
    "lr",
    "momentum",
    "norm",
    "penalty",
    "power",
    "ratio",
    "seed",
    "threshold",
    "weight",
)

"""Ends of the names of numbers that count nothing."""


def row(key: str) -> FieldRow:
    table, _, name = key.rpartition(".")
    return next(each for each in field_rows() if (each.table, each.name) == (table, name))


def test_every_field_is_listed_once_with_type_and_description():
    rows = field_rows()
    assert [".".join(filter(None, (each.table, each.name))) for each in rows] == [
        *HEADINGS,
        *keys(),
    ]
    assert all(each.description and each.type and each.default for each in rows)


@pytest.mark.parametrize("table", ["model", "optimizer"])
def test_a_table_lists_its_own_fields(table: str):
    assert {each.table for each in field_rows(table)} == {table}


def test_a_row_says_what_a_field_takes_and_when_it_counts():
    assert row("model.d_ff").default == "derived: 4 * d_model"
    assert row("model.d_ff").unit == "features"
    assert row("model.d_ff").used_when == "model.kind is not lstm; the block has an ffn entry"
    assert "macaron" in row("model.d_ff").set_by
    assert row("model.n_layers").type == "a whole number, at least 1, at most 1,000"
    assert row("model.norm").type == "one of layer, rms, none"
    assert row("model.rotary_base").used_when == "model.positions is rotary"
    assert row("train.tokens").default == "unset"
    assert row("model.share").used_when == "model.kind is not lstm"
    assert row("model.bias").used_when == ""


def said_by_kind(text: str, separator: str) -> dict[str, str]:
    """Return what a text such as ``sgd: 0.1, adam and adamw: 0.0003`` says of each kind."""
    said = {}
    for part in text.split(separator):
        kinds, _, words = part.partition(": ")
        said.update(dict.fromkeys(kinds.split(" and "), words))
    return said


def test_a_union_says_what_each_kind_takes():
    assert row("optimizer.kind").default == "'adamw'"
    assert row("optimizer.kind").type == f"one of {', '.join(OPTIMIZERS)}"
    said = row("optimizer.kind").description.rstrip(".")
    assert re.split(", | or ", said) == list(OPTIMIZERS)
    rates = said_by_kind(row("optimizer.lr").default, ", ")
    assert set(rates) == set(OPTIMIZERS)
    assert rates["sgd"] == "0.1"
    assert rates["adam"] == rates["adamw"] == "0.0003"
    assert rates["lamb"] == "0.00176"
    assert rates["adafactor"] == "0.01"
    assert re.match(r"optimizer\.kind is sgd\b", row("optimizer.momentum").used_when)
    decay = row("optimizer.weight_decay").description
    assert re.match("sgd and adam[^:]*: L2", decay)
    assert re.search("adamw and lamb[^:]*: Decoupled", decay)


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


def test_the_schema_has_only_the_keywords_of_its_draft():
    known = {
        "$schema",
        "$defs",
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "default",
        "description",
        "enum",
    }
    known |= {
        "exclusiveMaximum",
        "exclusiveMinimum",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
    }
    known |= {"prefixItems", "properties", "title", "type"}

    def keywords(node: object, is_schema: bool = True) -> set[str]:
        if isinstance(node, list):
            return set().union(*(keywords(each) for each in node))
        if not isinstance(node, dict):
            return set()
        names = set(node) if is_schema else set()
        for name, content in node.items():
            if not is_schema or name not in ("default", "enum", "const"):
                names |= keywords(
                    content, is_schema=not (is_schema and name in ("properties", "$defs"))
                )
        return names

    assert keywords(json_schema()) <= known


def test_a_union_table_may_leave_out_its_kind():
    optimizer = json_schema()["properties"]["optimizer"]
    assert len(optimizer["anyOf"]) == len(OPTIMIZERS)
    assert "discriminator" not in optimizer
    assert "required" not in json_schema()["$defs"]["SgdConfig"]


TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


def fits(value: Any, rule: dict[str, Any], schema: dict[str, Any]) -> bool:
    if "$ref" in rule:
        return fits(value, schema["$defs"][rule["$ref"].rpartition("/")[2]], schema)
    if "anyOf" in rule:
        return any(fits(value, each, schema) for each in rule["anyOf"])
    if rule.get("type") == "null" or not isinstance(value, TYPES[rule["type"]]):
        return False
    if "enum" in rule and value not in rule["enum"]:
        return False
    if "properties" in rule:
        known = rule["properties"]
        return all(
            name in known and fits(content, known[name], schema) for name, content in value.items()
        )
    return value >= rule.get("minimum", value) if isinstance(value, int | float) else True


@pytest.mark.parametrize("name", rows(shipped_recipes(), 3))
def test_every_shipped_recipe_fits_the_schema(name: str):
    schema = json_schema()
    assert fits(read_toml(find_source(name).path), schema, schema)


@pytest.mark.parametrize(
    "text", ["[model]\nn_layer = 3", "[model]\nffn = 'swigul'", "[optimizer]\nmomentum = 'a'"]
)
def test_the_schema_refuses_what_loading_refuses(text: str):
    schema = json_schema()
    assert fits({"model": {"n_layers": 3}}, schema, schema)
    assert not fits(tomllib.loads(text), schema, schema)


def test_the_list_of_fields_names_every_shipped_recipe():
    assert set(shipped_recipes()) == {name for each in field_rows() for name in each.set_by}


FFN_ONLY = 'model.block=["ffn"]'
ATTENTION_ONLY = 'model.block=["attention"]'
NAMED_FFNS = 'model.block=["ffn:relu*0.5", "attention", "ffn:swiglu*0.5"]'

IDLE = [
    ["model.norm_order=pre", "model.norm=none"],
    ["model.init_std=0.1", "model.init=xavier"],
    ["model.gelu=exact", "model.ffn=relu"],
    ["model.gelu=exact", NAMED_FFNS],
    ["model.ffn=relu", NAMED_FFNS],
    ["model.dropout_ffn=0.1", ATTENTION_ONLY],
    ["model.d_head=8", FFN_ONLY],
    ["model.positions=rotary", FFN_ONLY],
    ["data.vocab_size=300", "data.tokenizer=tokenizer.json"],
    ["data.tokenizer=bpe", "init.run=runs/a"],
    ["data.normalization=published", "data.tokenizer=moses-bpe"],
    ["optimizer.final_lr_share=0.1", "optimizer.schedule=inverse-sqrt"],
    ["optimizer.power=2.0", "optimizer.schedule=linear"],
    ["optimizer.warmup=albert", "optimizer.schedule=cosine"],
    ["optimizer.warmup=constant", "optimizer.schedule=linear"],
    ["optimizer.cooldown_share=0.1", "optimizer.schedule=cosine"],
    ["optimizer.warmup_init_lr=1e-7", "optimizer.schedule=linear"],
    ["optimizer.decay_vectors=true", "optimizer.weight_decay=0"],
    ["data.documents=json", "data.corpus=python"],
    ["data.documents=json", "data.corpus=albert-intrinsic", "data.path=a"],
    ["data.text_field=body", "data.path=a.txt"],
    ["data.text_field=body", "data.documents=blank-line", "data.path=a.txt"],
    ["data.split=80/10/10", "data.valid_path=v", "data.test_path=t"],
    ["data.split=80/10/10", "data.corpus=enwik8"],
    ["model.embedding_projection=tokens"],
    ["train.compile=true", "model.kind=lstm"],
]
"""An override without effect, and those that make it so."""


@pytest.mark.parametrize("overrides", rows(IDLE, 16), ids=" ".join)
def test_a_field_without_effect_is_refused_by_name(overrides: list[str]):
    load_recipe("gpt", overrides[1:])
    with pytest.raises(ConfigError) as error:
        load_recipe("gpt", overrides)
    message = str(error.value)
    assert message.startswith(overrides[0].partition("=")[0] + " = ")
    assert " has no effect" in message
    if len(overrides) == 2:
        assert overrides[1].partition("=")[0] in message


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.rotary_base=500", "model.positions=rotary"],
        ["model.gelu=exact", 'model.block=["ffn:relu", "attention", "ffn:gelu"]'],
        ["model.ffn=relu", 'model.block=["ffn:gelu", "attention", "ffn"]'],
        ["model.positions=learned", FFN_ONLY],
        ["data.vocab_size=300", "data.tokenizer=characters"],
        ["data.split=80/10/10", "data.valid_path=v"],
        ["data.split=80/10/10", 'data.corpus=["enwik8", "python"]'],
        ["data.split=80/10/10", "data.corpus=enwik8", "data.path=x"],
        ["data.documents=json", "data.path=a.jsonl", "data.text_field=body"],
        ["data.text_field=body", "data.path=hub:owner/name"],
        ["optimizer.final_lr_share=0.1", "optimizer.power=2.0", "optimizer.schedule=polynomial"],
        ["optimizer.warmup=constant", "optimizer.schedule=inverse-sqrt"],
        ["optimizer.cooldown_share=0.1", "optimizer.schedule=constant"],
    ],
    ids=" ".join,
)
def test_a_field_with_effect_is_accepted(overrides: list[str]):
    load_recipe("gpt", overrides)


def test_every_rule_is_about_fields_that_exist():
    known = keys()
    assert set(USES) <= set(known)
    deciders = {decider for key in known for use in uses(key) for decider in use.deciders}
    assert deciders
    assert deciders <= set(known)
    of_any_kind = {decider for decider in deciders if not is_union(decider.partition(".")[0])}
    assert all(value_of(decider, Recipe()) is not ... for decider in of_any_kind)


def test_a_default_that_is_restored_is_not_idle():
    assert is_idle("model.rotary_base", Recipe())
    loaded = load_recipe("albert-small", ["model.d_embed=256", "model.embedding_projection=tokens"])
    assert loaded.recipe.model.embedding_projection == "tokens"
    assert loaded.notes == ()


OF_BLOCKS = {
    "block": "macaron",
    "n_heads": 2,
    "d_head": 8,
    "d_ff": 12,
    "dropout_ffn": 0.1,
    "dropout_attention": 0.1,
    "dropout_final": 0.1,
    "attention_scale": "none",
    "norm": "rms",
    "norm_order": "post",
    "norm_affine": False,
    "norm_eps": 1e-6,
    "final_norm": "plain",
    "embedding_norm": True,
    "positions": "rotary",
    "sinusoids": "marian",
    "first_position": 2,
    "rotary_base": 500.0,
    "relative_buckets": 8,
    "relative_distance": 20,
    "share": "all",
    "share_groups": 2,
    "share_inner": 2,
    "max_len": 500,
    "ffn": "relu",
    "gelu": "exact",
    "swish_beta": 2.0,
}


@pytest.mark.parametrize("name", rows(OF_BLOCKS, 4))
def test_what_is_said_of_blocks_is_refused_of_an_lstm_by_its_kind(name: str):
    with pytest.raises(ConfigError) as error:
        load_recipe("gpt", {"model.kind": "lstm", f"model.{name}": OF_BLOCKS[name]})
    assert str(error.value).startswith(f"model.{name} = ")
    assert "has no effect with model.kind = 'lstm'" in str(error.value)


def test_every_other_field_of_a_model_changes_an_lstm():
    others = {
        "n_layers": 2,
        "d_model": 64,
        "d_embed": 32,
        "project_embeddings": "always",
        "tie_embeddings": False,
        "embedding_scale": "sqrt",
        "output_scale": "sqrt",
        "bias": False,
        "head_bias": True,
        "dropout": 0.1,
        "dropout_embedding": 0.1,
        "init": "xavier",
        "vocab_multiple": 8,
    }
    for name, value in others.items():
        load_recipe("gpt", {"model.kind": "lstm", f"model.{name}": value})
    of_transform = {"model.kind": "lstm", "model.head": "transform", "model.ffn": "swish"}
    load_recipe("gpt", {**of_transform, "model.swish_beta": 2.0})


def test_a_kind_that_comes_later_drops_what_was_said_of_blocks():
    loaded = load_recipe("modern", {"model.kind": "lstm"})
    assert loaded.recipe.model.norm == "layer"
    assert any("model.norm = 'rms' of recipe modern has no effect" in note for note in loaded.notes)


PROJECT = Path(__file__).resolve().parents[2]
OLD_RUNS = PROJECT / "tests" / "golden" / "old" / "ba7f49d"
RECORDED = sorted(PROJECT.glob("records/**/*.toml"))


@pytest.mark.parametrize("old", rows(RENAMED, 2))
def test_an_old_name_leads_to_a_field_of_its_table(old: str) -> None:
    assert declarations(old) == {}
    assert declarations(RENAMED[old]) != {}
    assert RENAMED[old].startswith(f"{old.partition('.')[0]}.")


@pytest.mark.parametrize("old", rows(RENAMED, 1))
def test_a_user_is_told_the_new_name_in_one_line(old: str, tmp_path: Path) -> None:
    table, _, name = old.partition(".")
    told = f"{old} is now called {RENAMED[old]}: write that"
    with pytest.raises(ConfigError) as given:
        load_recipe("gpt", [f"{old}=2"])
    assert str(given.value) == told
    file = tmp_path / "mine.toml"
    file.write_text(f'extends = "gpt"\n[{table}]\n{name} = 2\n')
    with pytest.raises(ConfigError) as written:
        load_recipe(file)
    assert str(written.value) == f"{told} (recipe {file})"


def test_so_is_who_varies_it() -> None:
    with pytest.raises(ConfigError, match=r"objective\.mask_most is now called objective\.max_pr"):
        load_study("bert-base", vary_texts=["objective.mask_most=10,20"])


def test_the_recipe_of_an_old_run_is_read_by_the_current_names() -> None:
    masked = OLD_RUNS / "masked" / "finished"
    file = masked / "recipe.toml"
    written = tomllib.loads(file.read_text())["objective"]
    old = {"mask_most": 4, "ngram_longest": 2, "alone": "negative"}
    new = {"max_predictions": 4, "max_ngram": 2, "single_sentence": "negative"}
    assert old.items() <= written.items()
    for recipe in (read_run_recipe(file), load_recipe(masked).recipe):
        assert new.items() <= recipe.objective.model_dump().items()
    pairs = read_run_recipe(OLD_RUNS / "translation" / "finished" / "recipe.toml").data
    assert pairs.max_words == 12
    assert pairs.max_words_ratio == 3.0


def test_what_was_derived_under_an_old_name_is_derived_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RENAMED, "model.width", "model.d_ff")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('derived = ["model.width"]\n[model]\nwidth = 24\nd_model = 8\n')
    assert load_recipe(tmp_path).recipe.model.d_ff is None
    assert read_recipe(recipe).model.d_ff == 24


def test_an_old_model_folder_is_read_by_the_current_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RENAMED, "model.width", "model.d_ff")
    folder = tmp_path / "model"
    shutil.copytree(OLD_RUNS / "causal" / "finished" / "model", folder)
    file = folder / "config.json"
    described = json.loads(file.read_text())
    model = described["model"]
    model["width"] = model.pop("d_ff")
    file.write_text(json.dumps(described))
    config, _ = load_weights(folder)
    assert config.d_ff == 16


def test_an_old_name_beside_the_new_one_is_not_taken_for_it(tmp_path: Path) -> None:
    both = {"objective.mask_most": 3, "objective.max_predictions": 4}
    assert with_current_names(both) == both
    (tmp_path / "recipe.toml").write_text(
        'derived = []\n[objective]\nkind = "masked"\nmask_most = 3\nmax_predictions = 4\n'
    )
    with pytest.raises(ConfigError, match="mask_most is now called"):
        load_recipe(tmp_path)


@pytest.mark.parametrize(
    "path", rows(RECORDED, 4), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_every_recipe_of_a_record_is_read(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    table = tomllib.loads(text)
    recipes = table["asked"]["recipes"].values() if "asked" in table else [text]
    assert recipes
    gpt = load_recipe("gpt").recipe
    file = tmp_path / "recipe.toml"
    for recipe in recipes:
        file.write_text(recipe)
        assert read_recipe(file) != gpt
        load_recipe(tmp_path)
