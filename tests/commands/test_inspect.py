"""``sublayer inspect`` measures what was asked for, of one run or several, and refuses the rest in a line."""

import json
import math
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.data.characters import ByteTokenizer
from sublayer.load import load
from sublayer.model.build import build
from sublayer.model.saved import save_model

Sublayer = Callable[..., tuple[int, str, str]]


def answer(result: tuple[int, str, str]) -> dict[str, Any]:
    code, out, err = result
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    found: dict[str, Any] = json.loads(out)
    return found


def refusal(result: tuple[int, str, str]) -> str:
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    return err


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """The folder of an untrained encoder on bytes, of four executed blocks that share weights."""
    config = ModelConfig(kind="encoder", n_layers=4, d_model=12, n_heads=2, share="all", norm_order="post")
    model = build(resolve_model(config, vocab_size=256, context=16), seed=1)
    save_model(tmp_path / "encoder", model, {"tokenizer.json": ByteTokenizer().serialize()})
    return tmp_path / "encoder"


def test_the_numbers_are_those_of_the_validation_split(sublayer: Sublayer, trained: Path) -> None:
    found = answer(sublayer("inspect", "layers", trained, "--json"))
    assert (found["what"], found["out"]) == ("layers", None)
    (run,) = found["runs"]
    record = json.loads((trained / "record.json").read_text())
    assert run["sha256"] == record["data"]["checksums"]["valid"]
    n_windows = record["data"]["valid"]["tokens"] // 32
    assert (run["split"], run["context"], run["windows"], run["tokens"]) == ("valid", 32, n_windows, 32 * n_windows)
    (layer,) = run["layers"]
    assert layer["layer"] == 1
    for name in ("distance", "angle_degrees", "cosine", "norm_in", "norm_out"):
        lower, median, upper = layer[f"{name}_quartiles"]
        assert lower < median < upper
        assert lower < layer[name] < upper


def test_a_text_is_read_as_one_would_by_hand(sublayer: Sublayer, trained: Path, tmp_path: Path) -> None:
    text = b"The dog sat over the cat; it was wet, and green."[:32]
    (tmp_path / "text.txt").write_bytes(text)
    (run,) = answer(sublayer("inspect", "layers", trained, "--path", tmp_path / "text.txt", "--json"))["runs"]
    assert (run["windows"], run["tokens"], run["split"]) == (1, 32, None)
    model, states = load(trained), []
    handles = [
        each.register_forward_hook(lambda _, given, result: states.append((given[0], result)))
        for each in model.stack.block(0)
    ]
    with torch.no_grad():
        model(torch.tensor([list(text)]))
    for handle in handles:
        handle.remove()
    before, after = states[0][0][0].double(), states[-1][1][0].double()
    (layer,) = run["layers"]
    # The same arithmetic in another order of float32.
    assert layer["distance"] == pytest.approx(float((after - before).norm(dim=1).mean()), rel=1e-6)
    cosine = torch.cosine_similarity(before, after, dim=1)
    assert layer["cosine"] == pytest.approx(float(cosine.mean()), rel=1e-6)
    assert layer["angle_degrees"] == pytest.approx(float(cosine.arccos().rad2deg().mean()), rel=1e-6)


def test_a_decoder_and_an_encoder_are_drawn_in_one_plot(
    sublayer: Sublayer, trained: Path, encoder: Path, tmp_path: Path
) -> None:
    out, text = tmp_path / "new" / "layers.svg", trained.parent / "text.txt"
    words = ("inspect", "layers", trained, encoder, "--path", text, "--tokens", 96, "--out", out)
    code, shown, err = sublayer(*words)
    assert (code, err) == (0, "")
    assert shown.startswith(f"{trained}: 96 tokens of {text}, in 3 windows of 32\nblock  distance")
    assert f"\n\n{encoder}: 96 tokens of {text}, in 6 windows of 16\nblock" in shown
    assert shown.endswith(f"\n\ndrawn in {out}\n")
    assert [line.split()[0] for line in shown.splitlines() if line.lstrip()[:1].isdigit()] == ["1", "1", "2", "3", "4"]
    texts = [each.text for each in ElementTree.parse(out).iter("{http://www.w3.org/2000/svg}text")]
    assert texts[-2:] == ["run", "encoder"]
    before = out.read_bytes()
    assert "nothing is overwritten" in refusal(sublayer(*words))
    assert out.read_bytes() == before


def test_without_out_nothing_is_written(
    sublayer: Sublayer, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sublayer("inspect", "layers", trained)[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_the_batch_changes_nothing_and_the_tokens_are_a_limit(sublayer: Sublayer, trained: Path) -> None:
    one, other = (
        answer(sublayer("inspect", "layers", trained, "--tokens", 130, "--batch", size, "--json"))["runs"][0]
        for size in (1, 3)
    )
    assert (one["tokens"], one["windows"]) == (128, 4)
    assert one["layers"][0]["distance"] == pytest.approx(other["layers"][0]["distance"], rel=1e-6)


def test_runs_that_read_different_texts_are_told_apart(sublayer: Sublayer, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    text = (trained.parent / "text.txt").read_text()
    (tmp_path / "text.txt").write_text(text.swapcase())
    recipe = tmp_path / "run" / "recipe.toml"
    recipe.write_text(recipe.read_text().replace(str(trained.parent / "text.txt"), str(tmp_path / "text.txt")))
    assert "no longer what it was trained with" in refusal(sublayer("inspect", "layers", tmp_path / "run"))
    (tmp_path / "run" / "record.json").unlink()
    out = tmp_path / "layers.svg"
    _, shown, err = sublayer("inspect", "layers", trained, tmp_path / "run", "--out", out)
    assert err == ""
    assert "\n\nthe runs read different texts: give one to all by --path\n" in shown
    # Both folders are called run; the end of their paths tells them apart.
    assert all(str(run)[-60:] in out.read_text() for run in (trained, tmp_path / "run"))
    _, shown, _ = sublayer("inspect", "layers", trained, tmp_path / "run", "--path", tmp_path / "text.txt")
    assert "different texts" not in shown


def test_numbers_that_are_not_there_are_null(sublayer: Sublayer, trained: Path, tmp_path: Path) -> None:
    model = load(trained)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    save_model(tmp_path / "zero", model, {"tokenizer.json": ByteTokenizer().serialize()})
    words = ("inspect", "layers", tmp_path / "zero", "--path", trained.parent / "text.txt")
    (layer,) = answer(sublayer(*words, "--json"))["runs"][0]["layers"]
    assert (layer["distance"], layer["norm_in"], layer["angle_degrees"]) == (0.0, 0.0, None)
    assert f"{math.nan}°" in sublayer(*words)[1]


def test_what_cannot_be_inspected_is_refused_in_a_line(sublayer: Sublayer, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("x" * 31)
    (tmp_path / "taken.svg").write_text("kept")
    for words, message in (
        (("splits", trained), "'splits' is not"),
        (("layers",), "inspect layers needs a run"),
        (("layers", tmp_path / "nothing"), "does not exist"),
        (("layers", trained, trained), f"{trained} is given twice: name each model once"),
        (("layers", trained, trained / "model"), "is given twice"),
        (("layers", trained, "--path", tmp_path / "nothing"), "no such file or folder"),
        (("layers", trained, "--path", tmp_path / "short.txt"), "gives 31 tokens, fewer than a window of 32"),
        (("layers", trained, "--out", tmp_path / "taken.svg"), "taken.svg exists, and nothing is overwritten"),
        (("layers", trained, "--out", tmp_path / "plot.png"), "is not an .svg file"),
        (("layers", trained, "--tokens", 0), "--tokens"),
        (("layers", trained, "--device", "nosuch"), "device 'nosuch' is not there"),
    ):
        assert message in refusal(sublayer("inspect", *words))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["short.txt", "taken.svg"]
    assert (tmp_path / "taken.svg").read_text() == "kept"


def test_a_model_that_belongs_to_no_run_needs_a_text(sublayer: Sublayer, encoder: Path) -> None:
    assert "so it has no split of its own: give another text (--path)" in refusal(
        sublayer("inspect", "layers", encoder)
    )


def test_splittings_are_measured_and_drawn(sublayer: Sublayer, trained: Path, tmp_path: Path) -> None:
    code, out, err = sublayer("inspect", "splitting", "--out", tmp_path / "errors.svg", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    orders = {(row["equation"], row["substeps"], row["splitting"]): row["slopes"][-1] for row in found["local_errors"]}
    assert orders["linear", "exact", "Lie (Transformer)"] == pytest.approx(2, abs=0.1)
    assert orders["linear", "exact", "Strang (Macaron)"] == pytest.approx(3, abs=0.1)
    assert orders["linear", "Euler", "Strang (Macaron)"] == pytest.approx(2, abs=0.1)
    assert orders["linear, of operators that commute", "exact", "Lie (Transformer)"] is None
    assert "Strang (Macaron)" in (tmp_path / "errors.svg").read_text()
    asked = ("inspect", "splitting", trained, "--tokens", 64)
    code, out, err = sublayer(*asked, "--out", tmp_path / "layers.svg", "--json")
    assert code == 0, err
    layers = json.loads(out)["runs"][0]["layers"]
    assert all(each["strang"] > 0 and each["own"] == pytest.approx(each["lie"]) for each in layers)
    assert sublayer(*asked)[1].splitlines()[1].split() == ["stack", "layer", "Lie", "Strang", "as", "trained", "way"]
