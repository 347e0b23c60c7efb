"""Layers of settings: origins, overrides, dropped settings."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.config.fields.applicability import is_idle
from sublayer.config.fields.catalog import HEADINGS, TABLES
from sublayer.config.layering.dropped import settle
from sublayer.config.layering.layers import load_recipe, vary
from sublayer.config.layering.overrides import override_layer
from sublayer.config.layering.settings import Layer, merge
from sublayer.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("true", True),
        ("True", "True"),
        ("'1984'", "1984"),
        ('["ffn*0.5", "attention"]', ["ffn*0.5", "attention"]),
        ("{enwik8 = 1.0}", {"enwik8": 1.0}),
        ("2020-01-31", "2020-01-31"),
        ("", ""),
        ("1\nother = 2", "1\nother = 2"),
    ],
)
def test_an_override_is_a_toml_value_or_else_a_bare_text(text: str, value: object):
    assert override_layer([f"key={text}"], "command line").values == {"key": value}


def test_every_value_has_its_origin():
    loaded = load_recipe("modern", ["model.n_layers=2"])
    assert loaded.origins["model.n_layers"] == "command line"
    assert loaded.origins["model.norm"] == "recipe modern"
    assert loaded.origins["model.d_model"] == "recipe gpt"
    assert loaded.origins["model.share"] == "default"
    tables = {table: type(getattr(loaded.recipe, table)) for table in TABLES}
    fields = {f"{table}.{name}" for table, cls in tables.items() for name in cls.model_fields}
    assert set(loaded.origins) == {*fields, *HEADINGS}


def test_an_arm_is_one_more_layer():
    loaded = load_recipe("gpt", ["train.minutes=3", "model.d_ff=64"])
    arm = vary(loaded, ["train.steps=7", "model.positions=rotary", "model.rotary_base=500"])
    train, model = arm.recipe.train, arm.recipe.model
    assert (train.steps, train.minutes, model.d_ff, arm.name) == (7, None, 64, loaded.name)
    assert arm.origins["train.steps"] == "vary"
    assert loaded.recipe.train.minutes == 3
    model = vary(arm, {"model.positions": "none"}).recipe.model
    assert (model.positions, model.rotary_base) == ("none", 10000.0)


def merged(*layers: dict[str, object]) -> dict[str, object]:
    settings = merge([Layer("layer", values) for values in layers])
    return {key: setting.value for key, setting in settings.items()}


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("train.minutes", "train.steps"),
        ("train.tokens", "train.epochs"),
        ("optimizer.warmup_share", "optimizer.warmup_steps"),
        ("data.vocab_size", "data.merges"),
    ],
)
def test_a_later_exclusive_field_drops_the_earlier_one(earlier: str, later: str):
    assert merged({earlier: 1, "train.seed": 2}, {later: 1}) == {"train.seed": 2, later: 1}


def test_a_later_text_or_start_replaces_what_it_brings():
    both = {"data.path": "a", "data.corpus": "b"}
    assert merged(both, {"data.path": "c"}) == {"data.path": "c"}
    assert merged(both, {"data.corpus": "c"}) == {"data.corpus": "c"}
    assert merged({"data.path": "c"}, both) == both
    earlier = {"data.tokenizer": "bpe", "data.vocab_size": 512, "data.context": 64}
    assert merged(earlier, {"init.run": "runs/a"}) == {"data.context": 64, "init.run": "runs/a"}
    sized = {"data.tokenizer": "bpe", "data.vocab_size": 500}
    assert "data.vocab_size" not in merged(sized, {"data.tokenizer": "bytes"})
    assert "data.vocab_size" not in merged(sized, {"data.tokenizer": "mine/tokenizer.json"})
    assert merged(sized, {"data.tokenizer": "unigram"})["data.vocab_size"] == 500


def test_a_new_optimizer_drops_settings_of_the_old_one_and_keeps_shared_ones():
    adamw = {"optimizer.lr": 1e-3, "optimizer.betas": [0.9, 0.99], "optimizer.clip_norm": 2}
    sgd = {"optimizer.kind": "sgd"}
    assert merged(adamw, sgd) == {"optimizer.clip_norm": 2, **sgd}
    given = {**sgd, "optimizer.lr": 0.5, "optimizer.momentum": 0.8}
    assert merged({"optimizer.lr": 1e-3}, given) == given
    # Adam's default learning rate is AdamW's.
    adam = {"optimizer.kind": "adam"}
    assert merged({"optimizer.lr": 1e-3, "optimizer.betas": [0.9, 0.99]}, adam) == {
        "optimizer.lr": 1e-3,
        **adam,
    }
    same = {"optimizer.kind": "adamw"}
    assert merged(adamw, same) == merged({**same, **adamw}, same) == {**adamw, **same}


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("model.lr", "optimizer.lr"),
        ("titel", "title"),
        ("model.zzzzz", "`sublayer fields model`"),
        ("zzzzz.yyyyy", "the tables are model"),
    ],
)
def test_an_unknown_key_names_the_nearest_and_its_layer(key: str, meant: str):
    with pytest.raises(ConfigError, match=rf"^{key} .*{meant}.*\(recipe x\)$"):
        merge([Layer("recipe x", {key: 1})])


def test_a_layer_restores_a_default_that_an_earlier_one_changed():
    changed = Layer("recipe a", {"model.share_groups": 2})
    restored = Layer("vary", {"model.share_groups": 1})
    layers = ([changed, restored], [changed, restored, restored], [restored], [changed])
    found = [merge(each)["model.share_groups"].restores for each in layers]
    assert found == [True, True, False, False]


CHOICES: dict[str, list[Any]] = {
    "model.block": [["attention", "ffn"], ["ffn"], ["attention"], ["ffn:relu", "attention"]],
    "model.d_embed": [32, 64],
    "model.embedding_projection": ["sum"],
    "model.ffn": ["relu", "gelu"],
    "model.gelu": ["exact"],
    "model.norm": ["layer", "none"],
    "model.positions": ["learned", "rotary", "none"],
    "model.rotary_base": [500.0],
    "model.share": ["none", "all"],
    "model.share_groups": [2],
    "optimizer.schedule": ["linear", "constant", "inverse-sqrt", "polynomial"],
    "optimizer.warmup": ["albert", "gpt1", "constant"],
    "optimizer.weight_decay": [0.0, 0.2],
    "optimizer.decay_vectors": [True],
}
SETTINGS = st.fixed_dictionaries(
    {}, optional={key: st.sampled_from(values) for key, values in CHOICES.items()}
)


@given(SETTINGS, SETTINGS)
def test_a_setting_that_a_later_layer_makes_idle_is_dropped_with_a_note_and_nothing_else(
    earlier: dict[str, Any], later: dict[str, Any]
):
    base, over = Layer("recipe mine", earlier), Layer("command line", later)
    try:
        before = settle([base])
    except ConfigError:
        return
    try:
        settled = settle([base, over])
    except ConfigError as error:
        # What is refused was set by the later layer itself.
        key, _, _ = str(error).partition(" = ")
        assert key in later
        return
    assert before.notes == ()
    noted = [note.partition(" = ")[0] for note in settled.notes]
    gone = [key for key in earlier if key not in settled.settings]
    assert sorted(noted) == sorted(gone)
    assert not set(noted) & set(later)
    for key, setting in settled.settings.items():
        assert setting.restores or not is_idle(key, settled.recipe)


def test_a_setting_that_never_had_an_effect_is_refused_with_its_origin(tmp_path: Path):
    recipe = tmp_path / "x.toml"
    recipe.write_text("[model]\nshare_groups = 2\n")
    with pytest.raises(ConfigError) as error:
        load_recipe(recipe, ["model.d_ff=64"])
    origin = f"model.share_groups = 2 (recipe {recipe}) has no effect with model.share = 'none'"
    assert str(error.value).startswith(origin)
