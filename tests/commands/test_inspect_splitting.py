"""``sublayer inspect splitting`` measures known flows, and the layers of runs."""

from pathlib import Path

import pytest

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.model.build import build
from sublayer.model.model_folder import save_model
from tests.commands.results import Sublayer
from tests.wrapping import unwrapped


def test_splittings_of_known_flows_are_measured_and_drawn(
    sublayer: Sublayer, tmp_path: Path
) -> None:
    plot = tmp_path / "errors.svg"
    found = sublayer("inspect", "splitting", "--out", plot, "--json").answer()
    orders = {}
    for row in found["local_errors"]:
        method = (row["equation"], row["substeps"], row["splitting"])
        orders[method] = row["slopes"][-1]
    assert orders["linear", "exact", "Lie (Transformer)"] == pytest.approx(2, abs=0.1)
    assert orders["linear", "exact", "Strang (Macaron)"] == pytest.approx(3, abs=0.1)
    assert orders["linear", "Euler", "Strang (Macaron)"] == pytest.approx(2, abs=0.1)
    assert orders["linear, of operators that commute", "exact", "Lie (Transformer)"] is None
    assert "Strang (Macaron)" in plot.read_text()


def test_layers_of_a_run_are_measured_and_drawn(
    sublayer: Sublayer, trained: Path, tmp_path: Path
) -> None:
    asked = ("inspect", "splitting", trained, "--tokens", 64)
    plot = tmp_path / "layers.svg"
    found = sublayer(*asked, "--out", plot, "--json").found()
    for layer in found["runs"][0]["layers"]:
        assert layer["strang"] > 0
        assert layer["own"] == pytest.approx(layer["lie"])
    assert plot.is_file()
    assert " way stack layer Lie Strang as trained way " in unwrapped(sublayer(*asked).out)


@pytest.mark.parametrize("affine", [False, True])
def test_layers_behind_norms_are_measured_where_these_have_no_gains(
    sublayer: Sublayer, tmp_path: Path, affine: bool
) -> None:
    sizes = {"n_layers": 3, "d_model": 12, "n_heads": 2}
    config = ModelConfig(norm_order="post", norm_affine=affine, **sizes)
    model = build(resolve_model(config, vocab_size=256, context=16), seed=1)
    save_model(tmp_path / "post", model, {"tokenizer.json": ByteTokenizer().serialize()})
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat and the dog beside it.")
    found = sublayer("inspect", "splitting", tmp_path / "post", "--path", text, "--json")
    if affine:
        assert "gains, which move a token even where a sub-layer adds nothing" in found.refusal()
        return
    layers = found.answer()["runs"][0]["layers"]
    assert [layer["layer"] for layer in layers] == [2, 3]
    for layer in layers:
        assert layer["own"] == pytest.approx(layer["lie"])


def test_tokens_that_do_not_move_have_no_errors(sublayer: Sublayer, tmp_path: Path) -> None:
    config = ModelConfig(n_layers=1, d_model=12, n_heads=2)
    model = build(resolve_model(config, vocab_size=256, context=16), seed=1)
    for parameter in model.parameters():
        parameter.data.zero_()
    save_model(tmp_path / "zero", model, {"tokenizer.json": ByteTokenizer().serialize()})
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat.")
    asked = ("inspect", "splitting", tmp_path / "zero", "--path", text)
    (layer,) = sublayer(*asked, "--json").answer()["runs"][0]["layers"]
    assert (layer["lie"], layer["own"], layer["way"]) == (None, None, 0.0)
    assert sublayer(*asked).code == 0
