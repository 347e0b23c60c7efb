"""A ninth feed-forward network is a row and a function: squared ReLU (So et al. 2021)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from sublayer.config.architecture.feedforward import ACTIVATIONS, FFNS, Ffn
from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters
from sublayer.interop.huggingface.exchange import export_huggingface
from sublayer.loading import load
from sublayer.model.kernels.activation import FUNCTIONS
from sublayer.runs.run import train_run
from sublayer.training.progress import SilentProgress
from tests.choices import allow_choices


@pytest.fixture(autouse=True)
def ninth(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    known = tuple(FFNS)
    monkeypatch.setitem(FFNS, "squared-relu", Ffn("squared-relu", is_gated=False))
    monkeypatch.setitem(ACTIVATIONS, "squared-relu", "input")
    monkeypatch.setitem(FUNCTIONS, "squared-relu", lambda x: torch.relu(x).square())
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    allow_choices("ffn", *known, "squared-relu")
    yield
    allow_choices("ffn", *known)


TINY = {
    "model.ffn": "squared-relu",
    "model.n_layers": 1,
    "model.d_model": 16,
    "model.n_heads": 2,
    "data.context": 32,
    "train.steps": 3,
    "train.batch_sequences": 2,
    "train.precision": "float32",
    "train.threads": 1,
}


@pytest.mark.slow
def test_it_trains_and_its_parameters_are_counted(tmp_path: Path) -> None:
    record = train_run(load_recipe("gpt", TINY), tmp_path / "run", progress=SilentProgress())
    model = load(tmp_path / "run")
    built = sum(parameter.numel() for parameter in model.parameters())
    assert record["parameters"]["total"] == count_parameters(model.config).total == built


def test_a_block_names_it_and_an_error_lists_it() -> None:
    block = {**TINY, "model.block": ["ffn:squared-relu*0.5", "attention"]}
    del block["model.ffn"]
    assert load_recipe("gpt", block).recipe.model.block == ("ffn:squared-relu*0.5", "attention")
    with pytest.raises(ConfigError, match="squared-relu"):
        load_recipe("gpt", {"model.ffn": "cubed-relu"})


@pytest.mark.slow
def test_what_no_other_system_has_is_not_exported(tmp_path: Path) -> None:
    loaded = load_recipe("gpt", {**TINY, "model.positions": "learned"})
    train_run(loaded, tmp_path / "run", progress=SilentProgress())
    with pytest.raises(ConfigError, match=r"model\.ffn = squared-relu"):
        export_huggingface(load(tmp_path / "run"), tmp_path / "exported")
