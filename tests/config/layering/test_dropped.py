from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.config.fields.applicability import is_idle
from sublayer.config.layering.dropped import settle
from sublayer.config.layering.layers import load_recipe, vary
from sublayer.config.layering.settings import Layer
from sublayer.errors import ConfigError

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
