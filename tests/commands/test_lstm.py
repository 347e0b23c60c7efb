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


def test_it_goes_on_beyond_its_context_from_a_prompt_beyond_it(
    sublayer: Sublayer, lstm: Path
) -> None:
    words = ("generate", lstm, "--prompt", "The cat sat on the mat. " * 3, "--tokens", 70)
    code, first, said = sublayer(*words, "--seed", 1)
    assert code == 0
    assert "70 tokens" in said
    assert sublayer(*words, "--seed", 1).out == first


def test_its_layers_are_inspected_and_neither_split_nor_followed(
    sublayer: Sublayer, lstm: Path
) -> None:
    found = sublayer("inspect", "layers", lstm, "--json").found()
    assert len(found["runs"][0]["layers"]) == 2
    refusal = sublayer("inspect", "splitting", lstm).refusal()
    assert "is an LSTM, whose layers replace their input" in refusal
    refusal = sublayer("inspect", "paths", lstm).refusal()
    assert "is an LSTM, which has no sub-layers that add a step" in refusal
