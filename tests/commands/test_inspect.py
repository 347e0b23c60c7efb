"""``sublayer inspect layers`` measures what was asked for, and refuses the rest in a line."""

import math
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.loading import load
from sublayer.model.build import build
from sublayer.model.model_folder import save_model
from tests.commands.results import Sublayer
from tests.wrapping import unwrapped

VOCABULARY = {"tokenizer.json": ByteTokenizer().serialize()}


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """The folder of an untrained encoder on bytes, of four executed blocks that share weights."""
    config = ModelConfig(
        kind="encoder", n_layers=4, d_model=12, n_heads=2, share="all", norm_order="post"
    )
    model = build(resolve_model(config, vocab_size=256, context=16), seed=1)
    save_model(tmp_path / "encoder", model, VOCABULARY)
    return tmp_path / "encoder"


def inspected(sublayer: Sublayer, run: Path, *options: object) -> dict[str, Any]:
    """Return what was measured of a run, and of which text."""
    runs = sublayer("inspect", "layers", run, *options, "--json").answer()["runs"]
    assert len(runs) == 1
    measured: dict[str, Any] = runs[0]
    return measured


def block_states(run: Path, text: bytes) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what enters the first block of a model, and what leaves it, for each byte."""
    model = load(run)
    states = []

    def keep(_: torch.nn.Module, given: tuple[torch.Tensor], result: torch.Tensor) -> None:
        states.append((given[0], result))

    handles = [sublayer.register_forward_hook(keep) for sublayer in model.stack.block(0)]
    with torch.no_grad():
        model(torch.tensor([list(text)]))
    for handle in handles:
        handle.remove()
    first_given, _ = states[0]
    _, last_result = states[-1]
    return first_given[0].double(), last_result[0].double()


def test_a_text_is_read_as_one_would_by_hand(
    sublayer: Sublayer, trained: Path, tmp_path: Path
) -> None:
    text = b"The dog sat over the cat; it was wet, and green."[:32]
    path = tmp_path / "text.txt"
    path.write_bytes(text)
    run = inspected(sublayer, trained, "--path", path)
    assert run["windows"] == 1
    assert run["tokens"] == 32
    assert run["split"] is None
    before, after = block_states(trained, text)
    distance = (after - before).norm(dim=1).mean()
    cosine = torch.cosine_similarity(before, after, dim=1)
    angle = cosine.arccos().rad2deg().mean()
    (layer,) = run["layers"]
    # The same arithmetic in another order of float32.
    assert layer["distance"] == pytest.approx(float(distance), rel=1e-6)
    assert layer["cosine"] == pytest.approx(float(cosine.mean()), rel=1e-6)
    assert layer["angle_degrees"] == pytest.approx(float(angle), rel=1e-6)


def test_a_decoder_and_an_encoder_are_drawn_in_one_plot(
    sublayer: Sublayer, trained: Path, encoder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "layers.svg"
    text = trained.parent / "text.txt"
    words = ("inspect", "layers", trained, encoder, "--path", text, "--tokens", 96, "--out", out)
    shown = sublayer(*words).shown()
    read = f"{trained}: 96 tokens of {text}, in 3 windows of 32 block distance"
    assert unwrapped(shown).startswith(read)
    assert f"{encoder}: 96 tokens of {text}, in 6 windows of 16 block" in unwrapped(shown)
    assert shown.endswith(f"\n\ndrawn in {out}\n")
    blocks = re.findall(r"^ +(\d+) ", shown, re.MULTILINE)
    assert blocks == ["1", "1", "2", "3", "4"]
    drawn = ElementTree.parse(out).iter("{http://www.w3.org/2000/svg}text")
    texts = [each.text for each in drawn]
    assert texts[-2:] == ["run", "encoder"]
    before = out.read_bytes()
    assert "nothing is overwritten" in sublayer(*words).refusal()
    assert out.read_bytes() == before


def test_a_shared_block_is_run_beyond_the_models_number(
    sublayer: Sublayer, trained: Path, encoder: Path
) -> None:
    text = ("--path", trained.parent / "text.txt", "--tokens", 64)
    plain = inspected(sublayer, encoder, *text)
    further = inspected(sublayer, encoder, *text, "--beyond", 3)
    assert plain["n_layers"] == further["n_layers"] == 4
    assert further["layers"][:4] == plain["layers"]
    assert [layer["is_beyond"] for layer in further["layers"]] == [False] * 4 + [True] * 3
    words = ("inspect", "layers", trained, encoder, *text, "--beyond", 3)
    shown = sublayer(*words).shown()
    assert re.findall(r"^ +(\d+) ", shown, re.MULTILINE) == ["1", *"1234567"]
    said = "in 4 windows of 16; from block 5 on the shared one is run beyond the model's"
    assert unwrapped(shown).count("beyond") == unwrapped(shown).count(said) == 1


def test_the_batch_changes_nothing_and_the_tokens_are_a_limit(
    sublayer: Sublayer, trained: Path
) -> None:
    one = inspected(sublayer, trained, "--tokens", 130, "--batch", 1)
    other = inspected(sublayer, trained, "--tokens", 130, "--batch", 3)
    assert (one["tokens"], one["windows"]) == (128, 4)
    (layer,), (other_layer,) = one["layers"], other["layers"]
    assert layer["distance"] == pytest.approx(other_layer["distance"], rel=1e-6)


@pytest.fixture
def moved(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run, whose recipe names another text: ``text.txt`` beside it."""
    run, text = tmp_path / "run", tmp_path / "text.txt"
    shutil.copytree(trained, run)
    former_text = trained.parent / "text.txt"
    text.write_text(former_text.read_text().swapcase())
    recipe = run / "recipe.toml"
    settings = recipe.read_text()
    recipe.write_text(settings.replace(str(former_text), str(text)))
    return run


def test_runs_that_read_different_texts_are_told_apart(
    sublayer: Sublayer, trained: Path, moved: Path
) -> None:
    changed = sublayer("inspect", "layers", moved).refusal()
    assert "no longer what it was trained with" in changed
    (moved / "record.json").unlink()
    out = moved.parent / "layers.svg"
    _, shown, err = sublayer("inspect", "layers", trained, moved, "--out", out)
    assert err == ""
    assert "\n\nthe runs read different texts: give one to all by --path\n" in shown
    # Both folders are called run; the end of their paths tells them apart.
    for run in (trained, moved):
        assert str(run)[-60:] in out.read_text()
    text = moved.parent / "text.txt"
    shown = sublayer("inspect", "layers", trained, moved, "--path", text).out
    assert "different texts" not in shown


def test_numbers_that_are_not_there_are_null(
    sublayer: Sublayer, trained: Path, tmp_path: Path
) -> None:
    model = load(trained)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    zero, text = tmp_path / "zero", trained.parent / "text.txt"
    save_model(zero, model, VOCABULARY)
    (layer,) = inspected(sublayer, zero, "--path", text)["layers"]
    assert layer["distance"] == 0.0
    assert layer["norm_in"] == 0.0
    assert layer["angle_degrees"] is None
    assert f"{math.nan}°" in sublayer("inspect", "layers", zero, "--path", text).out
