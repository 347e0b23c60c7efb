"""Layers of settings: origins, overrides, dropped settings."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.config.fields.applicability import is_idle
from sublayer.config.fields.catalog import TABLES
from sublayer.config.layering.dropped import settle
from sublayer.config.layering.layers import load_recipe, vary
from sublayer.config.layering.settings import Layer, merge
from sublayer.config.optimizers.kinds import OPTIMIZERS
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


def merged(*layers: dict[str, object]) -> dict[str, object]:
    return {
        key: setting.value
        for key, setting in merge([Layer("layer", values) for values in layers]).items()
    }


def test_a_later_layer_replaces_a_value_and_is_its_origin():
    settings = merge(
        [
            Layer("recipe gpt", {"model.d_ff": 3, "model.bias": True}),
            Layer("command line", {"model.d_ff": 5}),
        ]
    )
    assert settings["model.d_ff"].value == 5
    assert settings["model.d_ff"].origin == "command line"
    assert settings["model.bias"].origin == "recipe gpt"


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("train.minutes", "train.steps"),
        ("train.tokens", "train.epochs"),
        ("train.batch_sequences", "train.batch_tokens"),
        ("optimizer.warmup_share", "optimizer.warmup_steps"),
    ],
)
def test_a_later_exclusive_field_drops_the_earlier_one(earlier: str, later: str):
    assert merged({earlier: 1, "train.seed": 2}, {later: 1}) == {"train.seed": 2, later: 1}


@pytest.mark.parametrize(
    ("one", "other"),
    [("train.steps", "train.minutes"), ("optimizer.warmup_steps", "optimizer.warmup_share")],
)
def test_two_exclusive_fields_in_one_layer_are_an_error_that_names_both(one: str, other: str):
    with pytest.raises(ConfigError, match="exclude each other") as error:
        merged({one: 1, other: 2})
    assert one in str(error.value)
    assert other in str(error.value)


def test_a_later_text_replaces_path_and_corpus():
    both = {"data.path": "a", "data.corpus": "b"}
    assert merged(both, {"data.path": "c"}) == {"data.path": "c"}
    assert merged(both, {"data.corpus": "c"}) == {"data.corpus": "c"}
    assert merged({"data.path": "c"}, both) == both


def test_a_run_to_start_from_brings_its_tokenizer():
    earlier = {"data.tokenizer": "bpe", "data.vocab_size": 512, "data.context": 64}
    assert merged(earlier, {"init.run": "runs/a"}) == {"data.context": 64, "init.run": "runs/a"}


def test_a_new_optimizer_drops_settings_of_the_old_one_and_keeps_shared_ones():
    adamw = {"optimizer.lr": 1e-3, "optimizer.betas": [0.9, 0.99], "optimizer.clip_norm": 2}
    sgd = {"optimizer.kind": "sgd"}
    assert merged(adamw, sgd) == {"optimizer.clip_norm": 2, **sgd}
    given = {**sgd, "optimizer.lr": 0.5, "optimizer.momentum": 0.8}
    assert merged({"optimizer.lr": 1e-3}, given) == given
    # Adam's default learning rate is AdamW's.
    assert merged({"optimizer.lr": 1e-3, "optimizer.betas": [0.9, 0.99]},
                  {"optimizer.kind": "adam"}) == {"optimizer.lr": 1e-3,
                                                  "optimizer.kind": "adam"}  # fmt: skip
    same = {"optimizer.kind": "adamw"}
    assert merged(adamw, same) == merged({**same, **adamw}, same) == {**adamw, **same}


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("model.n_layer", "model.n_layers"),
        ("modle.n_layers", "model.n_layers"),
        ("n_layer", "model.n_layers"),
        ("model.lr", "optimizer.lr"),
        ("titel", "title"),
        ("model.zzzzz", "`sublayer fields model`"),
        ("zzzzz.yyyyy", "the tables are model"),
    ],
)
def test_an_unknown_key_names_the_nearest_and_its_layer(key: str, meant: str):
    with pytest.raises(ConfigError, match=rf"^{key} .*{meant}.*\(recipe x\)$"):
        merge([Layer("recipe x", {key: 1})])


def test_an_unknown_kind_names_the_choices_and_the_nearest():
    with pytest.raises(ConfigError, match=f"^optimizer.kind = .*{', '.join(OPTIMIZERS)}.*adamw"):
        merged({"optimizer.kind": "admw"})


def test_a_layer_restores_a_default_that_an_earlier_one_changed():
    changed, restored = (
        Layer("recipe a", {"model.share_groups": 2}),
        Layer("vary", {"model.share_groups": 1}),
    )
    assert merge([changed, restored])["model.share_groups"].restores
    assert merge([changed, restored, restored])["model.share_groups"].restores
    assert not merge([restored])["model.share_groups"].restores
    assert not merge([changed])["model.share_groups"].restores


@pytest.mark.parametrize("tokenizer", ["bytes", "mine/tokenizer.json"])
def test_a_tokenizer_that_is_not_trained_drops_the_size_of_the_one_that_was(tokenizer: str):
    sized = Layer("recipe a", {"data.tokenizer": "bpe", "data.vocab_size": 500})
    assert "data.vocab_size" not in merge([sized, Layer("vary", {"data.tokenizer": tokenizer})])
    assert (
        merge([sized, Layer("vary", {"data.tokenizer": "unigram"})])["data.vocab_size"].value == 500
    )


CHOICES: dict[str, list[Any]] = {
    "model.block": [["attention", "ffn"], ["ffn"], ["attention"], ["ffn:relu", "attention"]],
    "model.d_embed": [32, 64],
    "model.d_ff": [96],
    "model.d_model": [64],
    "model.dropout_attention": [0.2],
    "model.embedding_projection": ["sum"],
    "model.ffn": ["relu", "gelu"],
    "model.gelu": ["exact"],
    "model.init": ["normal", "xavier"],
    "model.init_std": [0.1],
    "model.norm": ["layer", "none"],
    "model.norm_eps": [1e-3],
    "model.positions": ["learned", "rotary", "none"],
    "model.rotary_base": [500.0],
    "model.share": ["none", "all"],
    "model.share_groups": [2],
    "optimizer.schedule": ["linear", "constant", "inverse-sqrt", "polynomial"],
    "optimizer.power": [2.0],
    "optimizer.form": ["published", "gpt1"],
    "optimizer.bias_correction": [False],
    "optimizer.warmup": ["albert", "gpt1", "constant"],
    "optimizer.cooldown_share": [0.1],
    "optimizer.weight_decay": [0.0, 0.2],
    "optimizer.decay_vectors": [True],
}

SETTINGS = st.fixed_dictionaries(
    {}, optional={key: st.sampled_from(values) for key, values in CHOICES.items()}
)


@given(SETTINGS, SETTINGS)
def test_what_a_later_layer_makes_idle_is_dropped_with_a_note_and_nothing_else(
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


def test_a_row_of_alberts_table_of_widths_is_accepted():
    loaded = load_recipe("albert-base", ["model.d_embed=768"])
    assert loaded.notes == (
        "model.embedding_projection = 'sum' of recipe albert-base has no effect with "
        "model.d_embed = 768: dropped",
    )
    assert loaded.recipe.model.embedding_projection == "tokens"
    assert loaded.origins["model.embedding_projection"] == "default"


def test_what_never_had_an_effect_is_an_error_with_its_origin(tmp_path: Path):
    recipe = tmp_path / "x.toml"
    recipe.write_text("[model]\nshare_groups = 2\n")
    with pytest.raises(ConfigError) as error:
        load_recipe(recipe, ["model.d_ff=64"])
    assert str(error.value).startswith(
        f"model.share_groups = 2 (recipe {recipe}) has no effect with model.share = 'none'"
    )


def test_a_note_names_each_layer_and_stays_with_the_arms(tmp_path: Path):
    recipe = tmp_path / "x.toml"
    recipe.write_text('[model]\nshare = "all"\nshare_groups = 2\n')
    arm = vary(load_recipe(recipe, ["model.gelu=exact"]), ["model.share=none", "model.ffn=relu"])
    assert sorted(arm.notes) == [
        "model.gelu = 'exact' of the command line has no effect with model.ffn = 'relu': dropped",
        f"model.share_groups = 2 of recipe {recipe} has no effect with model.share = 'none': "
        "dropped",
    ]
    assert vary(arm, {"train.seed": 1}).notes == arm.notes
