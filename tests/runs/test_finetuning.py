"""Seeds of fine-tuning: scored beside the baselines, and those that collapse are found."""

import json

import pytest

from sublayer.config.layering.finetune import load_finetune
from sublayer.loading import load
from sublayer.runs.finetuning import SCORES, finetune_seeds, last_loss
from sublayer.training.metrics import METRICS, read_metrics
from tests.task_files import write_copa, write_rte, write_sst2, write_stsb

pytestmark = pytest.mark.slow

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
    "train.epochs": 12,
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
        for write in (write_sst2, write_stsb, write_copa, write_rte):
            write(folder, SIZES)
        yield folder


def finetuned(glue, out, task="sst2", n_seeds=None, resume=False, **settings):
    told = {**SMALL, **{name.replace("__", "."): value for name, value in settings.items()}}
    loaded = load_finetune("albert-small", [task], str(glue), told).loaded
    return finetune_seeds(loaded, out, n_seeds, resume=resume, device="cpu")


@pytest.mark.parametrize("task", ["sst2", "copa"])
def test_a_healthy_run_has_not_collapsed(glue, tmp_path, task):
    [result] = finetuned(glue, tmp_path / "run", task)
    [report] = result.reports
    assert report.score.value > 0.9
    assert not result.has_collapsed
    assert report.baselines["majority"].value == 0.5
    assert report.split == "dev" and report.score.n_examples == 40


def test_numbers_are_learned(glue, tmp_path):
    [result] = finetuned(glue, tmp_path / "run", "stsb")
    assert not result.has_collapsed
    assert result.score > 0.8


@pytest.mark.parametrize("task", ["sst2", "stsb", "copa"])
def test_a_rate_a_thousand_times_too_high_collapses(glue, tmp_path, task):
    [result] = finetuned(glue, tmp_path / "run", task, optimizer__lr=10.0, train__epochs=3)
    assert result.has_collapsed
    [report] = result.reports
    assert "to all examples" in report.collapse or "is not below" in report.collapse
    [kept] = json.loads((tmp_path / "run" / SCORES).read_text())["tasks"]
    assert kept["collapse"] == report.collapse


def test_a_model_that_writes_and_has_learned_only_how_often_each_label_is_right_has_collapsed(
    glue, tmp_path
):
    told = {**SMALL, "data.tokenizer": "unigram", "data.context": 48, "model.d_embed": None}
    told |= {"data.sentinels": 0, "objective.target_length": 24}
    losses = []
    for name, lr, n_epochs in (("healthy", 0.01, 15), ("collapsed", 10.0, 3)):
        settings = {**told, "optimizer.lr": lr, "train.epochs": n_epochs}
        loaded = load_finetune("t5-mini", ["sst2"], str(glue), settings).loaded
        [result] = finetune_seeds(loaded, tmp_path / name, None, resume=False, device="cpu")
        assert result.has_collapsed == (name == "collapsed")
        losses.append(last_loss(tmp_path / name))
    assert losses[0] < losses[1]


def test_seeds_share_what_is_held_out_and_are_scored_on_one_development_set(glue, tmp_path, capsys):
    results = finetuned(glue, tmp_path / "runs", n_seeds=2, train__epochs=1)
    # What the recipe says of its pre-training is no news, for one seed as for several.
    assert "of recipe albert-small has no effect" not in "".join(capsys.readouterr())
    assert [each.seed for each in results] == [0, 1]
    sums = [each.record["data"]["checksums"] for each in results]
    assert sums[0] == sums[1]
    weights = [each.folder / "model" / "model.safetensors" for each in results]
    assert weights[0].read_bytes() != weights[1].read_bytes()
    scores = [json.loads((each.folder / SCORES).read_text()) for each in results]
    assert scores[0]["tasks"][0]["baselines"] == scores[1]["tasks"][0]["baselines"]
    # The same command again trains nothing anew, and finds the same.
    again = finetuned(glue, tmp_path / "runs", n_seeds=2, train__epochs=1)
    assert [each.score for each in again] == [each.score for each in results]
    assert [path.read_bytes() for path in weights] == [
        (each.folder / "model" / "model.safetensors").read_bytes() for each in again
    ]


def test_the_development_set_is_scored_once_and_by_the_checkpoint_that_was_selected(glue, tmp_path):
    [result] = finetuned(glue, tmp_path / "run", train__epochs=4, train__evaluate_steps=5)
    lines = [line for line in read_metrics(tmp_path / "run" / METRICS) if line["kind"] == "valid"]
    # What selects is a twelfth of what is scored: 12 rows that are held out.
    assert {round(12 * line["score"], 6) % 1 for line in lines} == {0.0}
    best = max(lines, key=lambda line: line["score"])
    assert result.record["valid"]["score"] == best["score"]
    assert load(tmp_path / "run").task.tasks[0].name == "sst2"
