"""``sublayer inspect``: layers, paths and splitting, of runs and of models without one."""

import math
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.loading import load
from sublayer.model.build import build
from sublayer.model.model_folder import save_model
from tests.commands.results import Sublayer
from tests.wrapping import unwrapped

VOCABULARY = {"tokenizer.json": ByteTokenizer().serialize()}


def save_untrained(folder: Path, **fields: Any) -> Path:
    """Save a small untrained model on bytes."""
    config = ModelConfig.model_validate({"d_model": 12, "n_heads": 2, **fields})
    model = build(resolve_model(config, vocab_size=256, context=16), seed=1)
    save_model(folder, model, VOCABULARY)
    return folder


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """The folder of an encoder of four executed blocks that share weights."""
    fields = {"kind": "encoder", "n_layers": 4, "share": "all", "norm_order": "post"}
    return save_untrained(tmp_path / "encoder", **fields)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(b"The dog sat over the cat;\nit was wet, and green."[:32])
    return path


def inspected(sublayer: Sublayer, what: str, run: Path, *options: object) -> dict[str, Any]:
    """Return the measurements of a run, and of which text they are."""
    [found] = sublayer("inspect", what, run, *options, "--json").answer()["runs"]
    return found


def test_a_decoder_and_an_encoder_are_drawn_in_one_plot(sublayer, trained, encoder, tmp_path):
    out = tmp_path / "new" / "layers.svg"
    text = trained.parent / "text.txt"
    words = ("inspect", "layers", trained, encoder, "--path", text, "--tokens", 96, "--out", out)
    shown = sublayer(*words).shown()
    read = f"{trained}: 96 tokens of {text}, in 3 windows of 32 block distance"
    assert unwrapped(shown).startswith(read)
    assert f"{encoder}: 96 tokens of {text}, in 6 windows of 16 block" in unwrapped(shown)
    assert re.findall(r"^ +(\d+) ", shown, re.MULTILINE) == ["1", "1", "2", "3", "4"]
    drawn = ElementTree.parse(out).iter("{http://www.w3.org/2000/svg}text")
    assert [each.text for each in drawn][-2:] == ["run", "encoder"]
    before = out.read_bytes()
    assert "nothing is overwritten" in sublayer(*words).refusal()
    assert out.read_bytes() == before


def test_runs_that_read_different_texts_are_told_apart(sublayer, trained, tmp_path):
    moved, text, before = tmp_path / "run", tmp_path / "text.txt", trained.parent / "text.txt"
    shutil.copytree(trained, moved)
    text.write_text(before.read_text().swapcase())
    recipe = (moved / "recipe.toml").read_text()
    (moved / "recipe.toml").write_text(recipe.replace(str(before), str(text)))
    changed = sublayer("inspect", "layers", moved).refusal()
    assert "no longer what it was trained with" in changed
    (moved / "record.json").unlink()
    out = tmp_path / "layers.svg"
    shown = sublayer("inspect", "layers", trained, moved, "--out", out).shown()
    assert "\n\nthe runs read different texts: give one to all by --path\n" in shown
    # Both folders are called run; the end of their paths tells them apart.
    assert all(str(run)[-60:] in out.read_text() for run in (trained, moved))
    shown = sublayer("inspect", "layers", trained, moved, "--path", text).out
    assert "different texts" not in shown


def test_numbers_of_tokens_that_never_move_are_null(sublayer, trained, text, tmp_path):
    model, zero = load(trained), tmp_path / "zero"
    for parameter in model.parameters():
        parameter.data.zero_()
    save_model(zero, model, VOCABULARY)
    (layer,) = inspected(sublayer, "layers", zero, "--path", text)["layers"]
    assert (layer["distance"], layer["norm_in"], layer["angle_degrees"]) == (0.0, 0.0, None)
    assert f"{math.nan}°" in sublayer("inspect", "layers", zero, "--path", text).out
    out = tmp_path / "zero.svg"
    (stack,) = inspected(sublayer, "paths", zero, "--path", text, "--out", out)["stacks"]
    assert stack["shares"] == [None, None]
    assert [(step["length"], step["in_plane"]) for step in stack["steps"]] == [(0.0, None)] * 2
    shown = unwrapped(sublayer("inspect", "paths", zero, "--path", text).shown())
    assert "the plane has none and none of the variance of 48 states" in shown
    assert out.is_file()
    (layer,) = inspected(sublayer, "splitting", zero, "--path", text)["layers"]
    assert (layer["lie"], layer["own"], layer["way"]) == (None, None, 0.0)
    assert sublayer("inspect", "splitting", zero, "--path", text).code == 0


def test_splittings_of_known_flows_are_measured_and_drawn(sublayer, tmp_path):
    plot = tmp_path / "errors.svg"
    found = sublayer("inspect", "splitting", "--out", plot, "--json").answer()
    orders = {
        (row["equation"], row["substeps"], row["splitting"]): row["slopes"][-1]
        for row in found["local_errors"]
    }
    assert orders["linear", "exact", "Lie (Transformer)"] == pytest.approx(2, abs=0.1)
    assert orders["linear", "exact", "Strang (Macaron)"] == pytest.approx(3, abs=0.1)
    assert orders["linear", "Euler", "Strang (Macaron)"] == pytest.approx(2, abs=0.1)
    assert orders["linear, of operators that commute", "exact", "Lie (Transformer)"] is None
    assert "Strang (Macaron)" in plot.read_text()


def test_layers_are_split_unless_norms_behind_them_have_gains(sublayer, trained, text, tmp_path):
    plot = tmp_path / "layers.svg"
    asked = ("inspect", "splitting", trained, "--tokens", 64)
    found = sublayer(*asked, "--out", plot, "--json").found()["runs"][0]["layers"]
    assert plot.is_file()
    assert " way stack layer Lie Strang as trained way " in unwrapped(sublayer(*asked).out)
    fields = {"norm_order": "post", "n_layers": 3}
    post = save_untrained(tmp_path / "post", norm_affine=False, **fields)
    behind = inspected(sublayer, "splitting", post, "--path", text)["layers"]
    assert [layer["layer"] for layer in behind] == [2, 3]
    for layer in (*found, *behind):
        assert layer["own"] == pytest.approx(layer["lie"])
        assert layer["strang"] > 0
    affine = save_untrained(tmp_path / "affine", norm_affine=True, **fields)
    refusal = sublayer("inspect", "splitting", affine, "--path", text).refusal()
    assert "gains, which move a token even where a sub-layer adds nothing" in refusal


def test_layers_of_an_lstm_are_measured_and_neither_split_nor_followed(
    sublayer, trained, tmp_path, own_cache
):
    words = (
        *("model.kind=lstm", "model.n_layers=2", "model.d_model=24", "data.context=32"),
        *("train.steps=2", "train.batch_sequences=4", "train.threads=1"),
    )
    run, text = tmp_path / "lstm", trained.parent / "text.txt"
    assert sublayer("train", "gpt", *words, f"data.path={text}", "--out", run).code == 0
    assert len(inspected(sublayer, "layers", run)["layers"]) == 2
    refusal = sublayer("inspect", "splitting", run).refusal()
    assert "is an LSTM, whose layers replace their input" in refusal
    refusal = sublayer("inspect", "paths", run).refusal()
    assert "is an LSTM, which has no sub-layers that add a step" in refusal
    # It goes on beyond its context, from a prompt that is longer.
    words = ("generate", run, "--prompt", "The cat sat on the mat. " * 3, "--seed", 1)
    code, first, said = sublayer(*words, "--tokens", 70)
    assert (code, "70 tokens" in said) == (0, True)
    shorter = sublayer(*words, "--tokens", 40).out
    assert len(shorter) > 80 and first.startswith(shorter.rstrip("\n\ufffd"))
