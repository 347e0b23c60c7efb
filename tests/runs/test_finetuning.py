"""Fine-tuning: seeds beside their baselines, collapses, and questions about passages."""

import json
from pathlib import Path

import numpy as np
import pytest

from sublayer.config.layering.finetune import load_finetune
from sublayer.config.layering.layers import load_recipe
from sublayer.data.prepare import Data
from sublayer.data.tasks.task_split import of_tasks
from sublayer.evaluation.split_work import ALONE
from sublayer.loading import load
from sublayer.objective.supervised.baselines import BaselineScores
from sublayer.objective.supervised.batches import example_batches, rule_of_model
from sublayer.objective.supervised.scores import answer_split
from sublayer.objective.supervised.scoring import trained_examples
from sublayer.runs.data_warnings import list_data_warnings
from sublayer.runs.finetuning import (
    SCORES,
    SeedResult,
    finetune_seed,
    finetune_seeds,
    last_loss,
)
from sublayer.runs.session import prepare_data
from sublayer.tasks.metrics.score import score
from sublayer.tasks.metrics.thresholds import best_thresholds
from sublayer.training.metrics import METRICS, read_metrics
from tests.breadth import rows
from tests.task_files import write_copa, write_rte, write_sst2, write_stsb

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
        for write in (write_sst2, write_stsb, write_copa, write_rte):
            write(folder, SIZES)
        yield folder


def finetuned(glue, out, task="sst2", n_seeds=None, resume=False, **settings):
    told = {**SMALL, **{name.replace("__", "."): value for name, value in settings.items()}}
    loaded = load_finetune("albert-small", [task], str(glue), told).loaded
    return finetune_seeds(loaded, out, n_seeds, resume=resume, device="cpu")


@pytest.mark.parametrize(("task", "least"), rows([("sst2", 0.9), ("copa", 0.9), ("stsb", 0.8)], 2))
def test_a_healthy_run_has_not_collapsed(glue, tmp_path, task, least):
    [result] = finetuned(glue, tmp_path / "run", task)
    [report] = result.reports
    assert report.score.value > least
    assert not result.has_collapsed
    assert task == "stsb" or report.baselines["majority"].value == 0.5
    assert report.split == "dev" and report.score.n_examples == 40


@pytest.mark.parametrize("task", rows(["stsb", "sst2", "copa"], 1))
def test_a_rate_a_thousand_times_too_high_collapses(glue, tmp_path, task):
    [result] = finetuned(glue, tmp_path / "run", task, optimizer__lr=10.0, train__epochs=2)
    assert result.has_collapsed
    [report] = result.reports
    assert "to all examples" in report.collapse or "is not below" in report.collapse
    [kept] = json.loads((tmp_path / "run" / SCORES).read_text())["tasks"]
    assert kept["collapse"] == report.collapse


@pytest.mark.all
def test_a_model_that_writes_labels_by_their_frequencies_has_collapsed(glue, tmp_path):
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


def test_seeds_share_the_held_out_rows_and_one_development_set(glue, tmp_path, capsys):
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


_KEYS = [f"k{n}" for n in range(4)]
_OTHERS = [f"w{n}" for n in range(9)]


def _content(n_articles: int, seed: int, *, is_second: bool) -> dict:
    """Passages of words of which one, in most, is a key: the answer."""
    generator = np.random.default_rng(seed)
    articles = []
    for article in range(n_articles):
        words = generator.choice(_OTHERS, size=int(generator.integers(8, 20))).tolist()
        place = int(generator.integers(len(words)))
        answers = []
        if not is_second or article % 3:
            words[place] = str(generator.choice(_KEYS))
            start = len(" ".join([*words[:place], ""]))
            answers = [{"text": words[place], "answer_start": start}]
        asked = {"id": f"{seed}-{article}", "question": "which", "answers": answers}
        if is_second:
            asked["is_impossible"] = not answers
        paragraph = {"context": " ".join(words), "qas": [asked]}
        articles.append({"title": f"{seed}-{article}", "paragraphs": [paragraph]})
    return {"version": "v2.0" if is_second else "1.1", "data": articles}


def _finetune_spans(folder: Path, name: str) -> tuple[SeedResult, Data]:
    version = "v2.0" if name == "squad2" else "v1.1"
    for split, n_articles, seed in (("train", 150, 1), ("dev", 30, 2)):
        content = _content(n_articles, seed, is_second=name == "squad2")
        (folder / f"{split}-{version}.json").write_text(json.dumps(content))
    vocabulary = folder / "vocab.txt"
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "which", *_KEYS, *_OTHERS]
    vocabulary.write_text("\n".join(names))
    settings = {
        "data.tokenizer": str(vocabulary),
        "data.context": 18,
        "objective.doc_stride": 4,
        "model.n_layers": 1,
        "model.d_model": 24,
        "model.n_heads": 2,
        "model.d_ff": 48,
        "model.d_embed": 24,
        "train.steps": 150,
        "train.batch_sequences": 32,
        "train.precision": "float32",
        "train.threads": 1,
        "optimizer.lr": 0.01,
    }
    loaded = load_finetune("albert-small", [name], str(folder), settings).loaded
    data = prepare_data(loaded.recipe)
    baselines = BaselineScores(lambda: trained_examples(data))
    return finetune_seed(loaded, folder / "run", data, baselines, resume=False, device="cpu"), data


@pytest.fixture(scope="module")
def answering(tmp_path_factory) -> tuple[SeedResult, Data]:
    return _finetune_spans(tmp_path_factory.mktemp("squad2"), "squad2")


def test_questions_are_answered_and_those_without_an_answer_scored_apart(answering):
    result, data = answering
    [report] = result.reports
    assert report.score.value > 0.9
    assert not report.collapse
    said = report.to_json()
    kinds = said["answerable"], said["unanswerable"]
    assert [each["n"] for each in kinds] == [20, 10]
    together = sum(each["n"] * each["exact"] for each in kinds) / 30
    assert together == pytest.approx(said["metrics"]["exact_match_v2"]["value"])
    # Files of tasks are not judged as a text.
    recipe = load_recipe(result.folder / "recipe.toml", {}).recipe
    [note] = list_data_warnings(recipe, data, example_batches(recipe, data.train))
    assert "windows of their passages" in note


def test_the_threshold_that_the_held_out_rows_choose_is_kept_and_used(answering):
    result, data = answering
    model = load(result.folder)
    spec = model.task
    rule = rule_of_model(
        model, load_recipe(result.folder / "recipe.toml", {}).recipe, of_tasks(data.valid)
    )
    given, _ = answer_split(model, of_tasks(data.valid), rule, spec.with_threshold(np.inf), ALONE)
    examples = of_tasks(data.valid).parts[0].examples
    assert all(each.text for each in given)
    assert spec.threshold == pytest.approx(best_thresholds(examples, given).f1.threshold, abs=1e-4)
    test = of_tasks(data.test)
    decided, _ = answer_split(model, test, rule, spec, ALONE)
    assert 0 < sum(not each.text for each in decided) < len(decided)
    own = score(test.parts[0].examples, decided, result.reports[0].task.metrics)
    assert own.value == pytest.approx(result.score)
