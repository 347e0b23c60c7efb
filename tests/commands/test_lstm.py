"""An LSTM by the commands: trained, scored, continued, inspected, and what is refused of it."""

from pathlib import Path

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.runs.run import train_run
from sublayer.training.progress import SilentProgress
from tests.commands.conftest import TEXT
from tests.commands.results import Sublayer


@pytest.fixture(scope="session")
def lstm(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Path:
    """The folder of a run of an LSTM on bytes."""
    folder = tmp_path_factory.mktemp("lstm")
    (folder / "text.txt").write_text(TEXT * 300)
    settings = {
        "model.kind": "lstm",
        "model.n_layers": 2,
        "model.d_model": 24,
        "model.d_embed": 16,
        "model.init": "xavier",
        "data.path": str(folder / "text.txt"),
        "data.context": 32,
        "optimizer.lr": 1e-2,
        "train.steps": 30,
        "train.batch_sequences": 4,
        "train.precision": "float32",
        "train.threads": 1,
    }
    loaded = load_recipe("gpt", settings)
    train_run(loaded, folder / "run", progress=SilentProgress())
    return folder / "run"


def test_it_has_learned_and_is_scored_as_a_decoder_is(sublayer: Sublayer, lstm: Path) -> None:
    found = sublayer("evaluate", lstm, "--split", "test", "--json").found()
    assert found["bits_per_byte"] < 6.0
    assert (found["context"], found["stride"]) == (32, 16)


def test_it_goes_on_beyond_its_context_from_a_prompt_beyond_it(
    sublayer: Sublayer, lstm: Path
) -> None:
    words = ("generate", lstm, "--prompt", "The cat sat on the mat. " * 3, "--tokens", 70)
    code, first, said = sublayer(*words, "--seed", 1)
    assert code == 0
    assert "70 tokens" in said
    assert sublayer(*words, "--seed", 1).out == first


@pytest.mark.parametrize("window", ["exact", "rolling"])
def test_a_window_is_refused(sublayer: Sublayer, lstm: Path, window: str) -> None:
    refusal = sublayer("generate", lstm, "--prompt", "a", "--window", window).refusal()
    assert f"--window {window} says what a decoder sees" in refusal
    assert "leave it out" in refusal


def test_its_layers_are_inspected_and_neither_split_nor_followed(
    sublayer: Sublayer, lstm: Path
) -> None:
    found = sublayer("inspect", "layers", lstm, "--json").found()
    assert len(found["runs"][0]["layers"]) == 2
    refusal = sublayer("inspect", "splitting", lstm).refusal()
    assert "is an LSTM, whose layers replace their input" in refusal
    refusal = sublayer("inspect", "paths", lstm).refusal()
    assert "is an LSTM, which has no sub-layers that add a step" in refusal


def test_it_is_exported_to_nothing(sublayer: Sublayer, lstm: Path, tmp_path: Path) -> None:
    refusal = sublayer("export", lstm, tmp_path / "out").refusal()
    assert "no class can represent model.kind = lstm" in refusal
    assert not (tmp_path / "out").exists()


def test_its_diagram_is_a_layer_without_a_way_around_it(sublayer: Sublayer) -> None:
    words = ("recipes", "gpt1-lstm", "--diagram")
    drawn = sublayer(*words).shown()
    assert "LSTM" in drawn and "2,048 units" in drawn
    assert "⊕" not in drawn
    [column] = sublayer(*words, "--json").found()["columns"]
    assert [part["title"] for part in column["block"]["parts"]] == ["LSTM"]


def test_fields_say_which_of_them_are_not_of_lstms(sublayer: Sublayer) -> None:
    assert "model.kind is not lstm" in " ".join(sublayer("fields", "model.n_heads").shown().split())


@pytest.mark.slow
def test_a_decoder_and_an_lstm_are_arms_of_one_comparison(
    sublayer: Sublayer, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text(TEXT * 300)
    settings = (
        f"data.path={tmp_path / 'text.txt'}",
        *("model.n_layers=1", "model.d_model=16", "model.n_heads=2", "data.context=16"),
        *("train.steps=4", "train.batch_sequences=2", "train.threads=1"),
        "train.precision=float32",
    )
    words = ("compare", "gpt", *settings, "--vary", "model.kind=decoder,lstm", "--match", "none")
    found = sublayer(*words, "--seeds", 3, "--out", tmp_path / "out", "--json").found()
    assert "lstm" in str(found)
