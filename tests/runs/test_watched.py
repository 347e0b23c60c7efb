"""A run on all of a text: the last checkpoint is its model, and other texts are watched."""

import json
from pathlib import Path
from typing import Any

import pytest

from sublayer.api.training import compare
from sublayer.commands.shared.text_options import own_split
from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError
from sublayer.loading import load
from sublayer.runs.folder import RunFolder
from sublayer.runs.run import train_run
from sublayer.training.metrics import read_metrics
from sublayer.training.progress import SilentProgress

SETTINGS: dict[str, Any] = {
    "model.d_model": 16,
    "model.n_heads": 2,
    "model.n_layers": 1,
    "data.context": 16,
    "data.split": "100/0/0",
    "train.best_by": "last",
    "train.batch_sequences": 2,
    "train.steps": 4,
    "train.evaluate_steps": 2,
    "train.threads": 1,
    "train.precision": "float32",
}


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "book.txt").write_text("The cat sat on the mat, and slept. " * 40)
    (tmp_path / "letters.txt").write_text("Another text, of which nothing is learned. " * 4)
    return {
        **SETTINGS,
        "data.path": str(tmp_path / "book.txt"),
        "data.watch": {"letters": str(tmp_path / "letters.txt")},
    }


def test_what_is_watched_is_written_at_each_evaluation_and_the_last_model_is_kept(
    tmp_path: Path, texts: dict[str, Any], capfd: pytest.CaptureFixture[str]
):
    run = tmp_path / "run"
    record = train_run(load_recipe("gpt", texts), run, progress=SilentProgress())
    lines = [line for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "valid"]
    assert [line["step"] for line in lines] == [2, 4]
    assert all("letters/loss" in line and "loss" not in line for line in lines)
    assert record["valid"]["step"] == 4
    assert record["valid"]["letters/loss"] == lines[-1]["letters/loss"]
    assert record["data"]["watched"]["letters"]["documents"] == 1
    assert "valid" not in record["data"]
    assert "step 2/4  letters: loss" in capfd.readouterr().err
    last = (run / "checkpoints" / "step-4").glob("model/model.safetensors")
    if found := next(last, None):
        assert found.read_bytes() == (run / "model" / "model.safetensors").read_bytes()
    assert RunFolder(run).record() == json.loads((run / "record.json").read_text())
    assert load(run).tokenizer is not None
    recipe = RunFolder(run).recipe()
    with pytest.raises(ConfigError, match="trained on all of its text, so it has no test split"):
        own_split(run, recipe, load(run), "test")


def test_the_same_settings_are_resumed_and_begin_another_run(tmp_path: Path, texts: dict[str, Any]):
    run = tmp_path / "run"
    first = train_run(load_recipe("gpt", texts), run, progress=SilentProgress())
    assert train_run(load_recipe("gpt", texts), run, resume=True) == first
    assert load_recipe(run).recipe.data.watch == texts["data.watch"]


def test_nothing_has_to_be_evaluated(tmp_path: Path, texts: dict[str, Any]):
    record = train_run(
        load_recipe("gpt", {**texts, "data.watch": []}), tmp_path / "run", progress=SilentProgress()
    )
    assert record["valid"] == {"step": 4}


def test_the_best_loss_needs_a_validation_split(texts: dict[str, Any]):
    with pytest.raises(ConfigError, match=r"best_by = loss needs a validation split.* = last"):
        load_recipe("gpt", {**texts, "train.best_by": "loss"})


def test_a_comparison_needs_a_test_split_and_tuning_a_validation_split(
    tmp_path: Path, texts: dict[str, Any]
):
    out = tmp_path / "study"
    with pytest.raises(ConfigError, match="holds out no test split"):
        compare("gpt", texts, vary=["model.ffn=gelu,relu"], out=out)
    with pytest.raises(ConfigError, match="--tune chooses by a validation split"):
        compare(
            "gpt",
            {**texts, "data.split": "90/0/10"},
            vary=["model.ffn=gelu,relu"],
            tune=["optimizer.lr=1e-3,1e-2"],
            out=out,
        )
