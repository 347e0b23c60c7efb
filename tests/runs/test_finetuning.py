"""Fine-tuning: seeds beside their baselines, collapses, and questions about passages."""

import json

import pytest

from sublayer.config.layering.finetune import load_finetune
from sublayer.runs.finetuning import (
    SCORES,
    finetune_seeds,
)
from tests.task_files import write_sst2, write_stsb

SIZES = {"train": 120, "dev": 40}
SMALL = {
    "data.tokenizer": "wordpiece",
    "data.vocab_size": 110,
    "data.context": 32,
    "model.n_layers": 1,
    "model.d_model": 32,
    "model.n_heads": 2,
    "model.d_ff": 64,
    "model.d_embed": 32,
    "train.epochs": 8,
    "train.batch_sequences": 16,
    "train.precision": "float32",
    "train.threads": 1,
    "optimizer.kind": "adamw",
    "optimizer.lr": 0.01,
}


@pytest.fixture(scope="module")
def glue(tmp_path_factory):
    folder = tmp_path_factory.mktemp("glue")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
        write_stsb(write_sst2(folder, SIZES), SIZES)
        yield folder


def finetuned(glue, out, task="sst2", n_seeds=None, resume=False, **settings):
    told = {**SMALL, **{name.replace("__", "."): value for name, value in settings.items()}}
    loaded = load_finetune("albert-small", [task], str(glue), told).loaded
    return finetune_seeds(loaded, out, n_seeds, resume=resume, device="cpu")


@pytest.mark.parametrize(("task", "least"), [("sst2", 0.9), ("stsb", 0.8)])
def test_a_healthy_run_has_not_collapsed_and_one_of_a_far_too_high_rate_has(
    glue, tmp_path, task, least
):
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
    assert results[0].record["data"]["checksums"] == results[1].record["data"]["checksums"]
    paths = [each.folder / "model" / "model.safetensors" for each in results]
    weights = [path.read_bytes() for path in paths]
    assert weights[0] != weights[1]
    scores = [json.loads((each.folder / SCORES).read_text()) for each in results]
    assert scores[0]["tasks"][0]["baselines"] == scores[1]["tasks"][0]["baselines"]
    # The same command again trains nothing anew, and finds the same.
    again = finetuned(glue, tmp_path / "runs", n_seeds=2, train__epochs=1)
    assert [each.score for each in again] == [each.score for each in results]
    assert [path.read_bytes() for path in paths] == weights
