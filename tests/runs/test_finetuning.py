"""Runs of tasks beside their baselines, and runs whose evaluations watch more than their text."""

import json

import pytest

from sublayer import cli
from sublayer.api.training import compare
from sublayer.commands.shared.text_options import own_split
from sublayer.config.layering.finetune import load_finetune
from sublayer.config.layering.layers import load_recipe
from sublayer.config.probes import PROBES as NAMES
from sublayer.errors import ConfigError
from sublayer.evaluation.probes.table import PROBES
from sublayer.loading import load
from sublayer.runs.finetuning import SCORES, finetune_seeds
from sublayer.runs.folder import RunFolder
from sublayer.runs.run import train_run
from sublayer.training.metrics import METRICS, read_metrics
from sublayer.training.progress import SilentProgress
from tests.evaluation.test_likelihood import write_tasks
from tests.task_files import write_sst2, write_stsb

SMALL = {"data.tokenizer": "wordpiece", "data.vocab_size": 110, "data.context": 32}
SMALL |= {"model.n_layers": 1, "model.d_model": 32, "model.n_heads": 2, "model.d_ff": 64}
SMALL |= {"model.d_embed": 32, "optimizer.kind": "adamw", "optimizer.lr": 0.01}
SMALL |= {"train.epochs": 8, "train.batch_sequences": 16}
SMALL |= {"train.precision": "float32", "train.threads": 1}


@pytest.fixture(scope="module")
def glue(tmp_path_factory):
    folder = tmp_path_factory.mktemp("glue")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
        sizes = {"train": 120, "dev": 40}
        write_stsb(write_sst2(folder, sizes), sizes)
        yield folder


def finetuned(glue, out, task="sst2", n_seeds=None, **settings):
    told = {**SMALL, **{name.replace("__", "."): value for name, value in settings.items()}}
    loaded = load_finetune("albert-small", [task], str(glue), told).loaded
    return finetune_seeds(loaded, out, n_seeds, resume=False, device="cpu")


@pytest.mark.parametrize("task, least", [("sst2", 0.9), ("stsb", 0.8)])
def test_a_run_of_a_far_too_high_rate_has_collapsed(glue, tmp_path, task, least):
    [result] = finetuned(glue, tmp_path / "run", task)
    [report] = result.reports
    assert report.score.value > least and not result.has_collapsed
    assert (report.split, report.score.n_examples) == ("dev", 40)
    [result] = finetuned(glue, tmp_path / "high", task, optimizer__lr=10.0, train__epochs=2)
    [report] = result.reports
    assert "to all examples" in report.collapse or "is not below" in report.collapse
    [kept] = json.loads((tmp_path / "high" / SCORES).read_text())["tasks"]
    assert result.has_collapsed and kept["collapse"] == report.collapse


def test_seeds_share_the_held_out_rows_and_one_development_set(glue, tmp_path):
    results = finetuned(glue, tmp_path / "runs", n_seeds=2, train__epochs=1)
    assert [each.seed for each in results] == [0, 1]
    one, other = (each.record["data"]["checksums"] for each in results)
    paths = [each.folder / "model" / "model.safetensors" for each in results]
    weights = [path.read_bytes() for path in paths]
    assert one == other and weights[0] != weights[1]
    scores = [json.loads((each.folder / SCORES).read_text()) for each in results]
    assert scores[0]["tasks"][0]["baselines"] == scores[1]["tasks"][0]["baselines"]
    # The same command again trains nothing anew, and finds the same.
    again = finetuned(glue, tmp_path / "runs", n_seeds=2, train__epochs=1)
    assert [each.score for each in again] == [each.score for each in results]
    assert [path.read_bytes() for path in paths] == weights


WATCHED = {"model.n_layers": 1, "model.d_model": 16, "model.n_heads": 2, "data.context": 32}
WATCHED |= {"train.steps": 6, "train.evaluate_steps": 2, "train.evaluate_tokens": 256}
WATCHED |= {"train.batch_sequences": 2, "train.threads": 1, "train.precision": "float32"}


def test_every_evaluation_asks_and_nothing_else_changes(tmp_path, monkeypatch, capsys):
    assert tuple(PROBES) == NAMES
    place = tmp_path
    monkeypatch.setenv("SUBLAYER_CACHE", str(place / "cache"))
    write_tasks(place / "tasks")
    (place / "text.txt").write_text("\n".join(f"line {n} of a small text" for n in range(300)))
    tasks = ", ".join(f'{name} = "{place / "tasks"}"' for name in ("sst2", "winograd"))
    words = [f"data.path={place / 'text.txt'}", *(f"{key}={WATCHED[key]}" for key in WATCHED)]
    for name, more in (("plain", []), ("probed", [f"train.probes={{ {tasks} }}"])):
        assert cli.main(["train", "gpt", *words, *more, "--out", str(place / name)]) == 0
    assert "probes: SST-2 " in capsys.readouterr().err
    lines = [each for each in read_metrics(place / "probed" / METRICS) if each["kind"] == "valid"]
    assert [each["step"] for each in lines] == [2, 4, 6]
    assert all(0.0 <= each["probes/sst2"] <= 1.0 for each in lines)
    record = json.loads((place / "probed" / "record.json").read_text())
    probe = record["probes"]["sst2"]
    assert (probe["examples"], probe["chance_error"]) == (4, pytest.approx(0.25))
    assert "probes/winograd" in record["valid"]
    plain, probed = (place / name / "model/model.safetensors" for name in ("plain", "probed"))
    assert plain.read_bytes() == probed.read_bytes()


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "book.txt").write_text("The cat sat on the mat, and slept. " * 40)
    (tmp_path / "letters.txt").write_text("Another text, of which nothing is learned. " * 4)
    watched = {"data.watch": {"letters": str(tmp_path / "letters.txt")}, "data.split": "100/0/0"}
    own = {"data.path": str(tmp_path / "book.txt"), "train.best_by": "last"}
    return {**WATCHED, **watched, **own}


def test_watched_texts_are_scored_and_the_last_model_is_kept(tmp_path, texts, capfd):
    run = tmp_path / "run"
    record = train_run(load_recipe("gpt", texts), run, progress=SilentProgress())
    lines = [line for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "valid"]
    assert [line["step"] for line in lines] == [2, 4, 6]
    assert all("letters/loss" in line and "loss" not in line for line in lines)
    valid, data = record["valid"], record["data"]
    assert (valid["step"], valid["letters/loss"]) == (6, lines[-1]["letters/loss"])
    assert data["watched"]["letters"]["documents"] == 1 and "valid" not in data
    assert "step 2/6  letters: loss" in capfd.readouterr().err
    assert RunFolder(run).record() == json.loads((run / "record.json").read_text())
    with pytest.raises(ConfigError, match="no test split"):
        own_split(run, RunFolder(run).recipe(), load(run), "test")
    assert train_run(load_recipe("gpt", texts), run, resume=True) == record
    assert load_recipe(run).recipe.data.watch == texts["data.watch"]


def test_a_comparison_needs_a_test_split_and_tuning_a_validation_split(tmp_path, texts):
    asked = {"vary": ["model.ffn=gelu,relu"], "out": tmp_path / "study"}
    with pytest.raises(ConfigError, match="holds out no test split"):
        compare("gpt", texts, **asked)
    asked["tune"] = ["optimizer.lr=1e-3,1e-2"]
    with pytest.raises(ConfigError, match="--tune chooses by a validation split"):
        compare("gpt", {**texts, "data.split": "90/0/10"}, **asked)
