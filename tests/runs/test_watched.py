"""Runs whose evaluations ask zero-shot probes, and watch other texts than they learn."""

import json
from pathlib import Path
from typing import Any

import pytest

from sublayer import cli
from sublayer.api.training import compare
from sublayer.commands.shared.text_options import own_split
from sublayer.config.layering.layers import load_recipe
from sublayer.config.probes import PROBES as NAMES
from sublayer.errors import ConfigError
from sublayer.evaluation.probes.table import PROBES
from sublayer.loading import load
from sublayer.runs.folder import RunFolder
from sublayer.runs.run import train_run
from sublayer.training.metrics import METRICS, read_metrics
from sublayer.training.progress import SilentProgress
from tests.evaluation.probes.test_probes import write_tasks

SMALL: dict[str, Any] = {
    "model.n_layers": 1,
    "model.d_model": 16,
    "model.n_heads": 2,
    "data.context": 32,
    "train.steps": 6,
    "train.evaluate_steps": 2,
    "train.batch_sequences": 2,
    "train.evaluate_tokens": 256,
    "train.threads": 1,
    "train.precision": "float32",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probed")
    write_tasks(folder / "tasks")
    (folder / "text.txt").write_text("\n".join(f"line {n} of a small text" for n in range(300)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
        yield folder


def train(place, name, *more):
    words = [f"data.path={place / 'text.txt'}", *(f"{key}={SMALL[key]}" for key in SMALL), *more]
    return cli.main(["train", "gpt", *words, "--out", str(place / name)])


def asked(place, *names):
    inner = ", ".join(f'{name} = "{place / "tasks"}"' for name in names)
    return f"train.probes={{ {inner} }}"


def test_every_evaluation_asks_and_nothing_else_changes(place, capsys):
    assert tuple(PROBES) == NAMES
    assert train(place, "plain") == 0
    assert train(place, "probed", asked(place, "sst2", "winograd")) == 0
    assert "probes: SST-2 " in capsys.readouterr().err
    lines = [each for each in read_metrics(place / "probed" / METRICS) if each["kind"] == "valid"]
    assert [each["step"] for each in lines] == [2, 4, 6]
    assert all(0.0 <= each["probes/sst2"] <= 1.0 for each in lines)
    record = json.loads((place / "probed" / "record.json").read_text())
    assert record["probes"]["sst2"]["examples"] == 4
    assert record["probes"]["sst2"]["chance_error"] == pytest.approx(0.25)
    assert "probes/winograd" in record["valid"]
    weights = [
        (place / name / "model" / "model.safetensors").read_bytes() for name in ("plain", "probed")
    ]
    assert weights[0] == weights[1]


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "book.txt").write_text("The cat sat on the mat, and slept. " * 40)
    (tmp_path / "letters.txt").write_text("Another text, of which nothing is learned. " * 4)
    return {
        **SMALL,
        "data.split": "100/0/0",
        "train.best_by": "last",
        "data.path": str(tmp_path / "book.txt"),
        "data.watch": {"letters": str(tmp_path / "letters.txt")},
    }


def test_watched_texts_are_scored_at_each_evaluation_and_the_last_model_is_kept(
    tmp_path: Path, texts: dict[str, Any], capfd: pytest.CaptureFixture[str]
):
    run = tmp_path / "run"
    record = train_run(load_recipe("gpt", texts), run, progress=SilentProgress())
    lines = [line for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "valid"]
    assert [line["step"] for line in lines] == [2, 4, 6]
    assert all("letters/loss" in line and "loss" not in line for line in lines)
    assert record["valid"]["step"] == 6
    assert record["valid"]["letters/loss"] == lines[-1]["letters/loss"]
    assert record["data"]["watched"]["letters"]["documents"] == 1
    assert "valid" not in record["data"]
    assert "step 2/6  letters: loss" in capfd.readouterr().err
    assert RunFolder(run).record() == json.loads((run / "record.json").read_text())
    assert load(run).tokenizer is not None
    recipe = RunFolder(run).recipe()
    with pytest.raises(ConfigError, match="no test split"):
        own_split(run, recipe, load(run), "test")
    assert train_run(load_recipe("gpt", texts), run, resume=True) == record
    assert load_recipe(run).recipe.data.watch == texts["data.watch"]


def test_a_comparison_needs_a_test_split_and_tuning_a_validation_split(
    tmp_path: Path, texts: dict[str, Any]
):
    out = tmp_path / "study"
    with pytest.raises(ConfigError, match="holds out no test split"):
        compare("gpt", texts, vary=["model.ffn=gelu,relu"], out=out)
    tuned = {"vary": ["model.ffn=gelu,relu"], "tune": ["optimizer.lr=1e-3,1e-2"], "out": out}
    with pytest.raises(ConfigError, match="--tune chooses by a validation split"):
        compare("gpt", {**texts, "data.split": "90/0/10"}, **tuned)
