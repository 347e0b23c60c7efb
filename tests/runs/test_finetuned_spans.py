"""A run that answers questions about passages: what it learns, what it keeps, what it is worth."""

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
from sublayer.objective.supervised.report import render_reports
from sublayer.objective.supervised.scores import answer_split
from sublayer.objective.supervised.scoring import trained_examples
from sublayer.runs.data_warnings import list_data_warnings
from sublayer.runs.finetuning import SeedResult, finetune_seed
from sublayer.runs.session import prepare_data
from sublayer.tasks.metrics.score import score
from sublayer.tasks.metrics.thresholds import best_thresholds

pytestmark = pytest.mark.slow

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


def _finetune(folder: Path, name: str) -> tuple[SeedResult, Data]:
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
        "train.steps": 200,
        "train.batch_sequences": 32,
        "train.precision": "float32",
        "train.threads": 1,
        "optimizer.lr": 0.01,
    }
    loaded = load_finetune("albert-small", [name], str(folder), settings).loaded
    data = prepare_data(loaded.recipe)
    baselines = BaselineScores(lambda: trained_examples(data))
    return finetune_seed(loaded, folder / "run", data, baselines, resume=False, device="cpu"), data


@pytest.fixture(scope="module", params=["squad", "squad2"])
def finetuned(request, tmp_path_factory) -> tuple[SeedResult, Data]:
    return _finetune(tmp_path_factory.mktemp(request.param), request.param)


def test_a_rule_of_single_words_is_learned(finetuned):
    [report] = finetuned[0].reports
    assert report.score.value > 0.9
    assert not report.collapse


def test_questions_with_and_without_an_answer_are_scored_apart(finetuned):
    [report] = finetuned[0].reports
    said = report.to_json()
    if report.task.name == "squad":
        assert "answerable" not in said and "unanswerable" not in said
        return
    kinds = said["answerable"], said["unanswerable"]
    assert [each["n"] for each in kinds] == [20, 10]
    together = sum(each["n"] * each["exact"] for each in kinds) / 30
    assert together == pytest.approx(said["metrics"]["exact_match_v2"]["value"])
    assert "SQuAD 2.0: 10 questions without one: EM " in render_reports([said])


def test_files_of_tasks_are_not_judged_as_a_text(finetuned):
    result, data = finetuned
    recipe = load_recipe(result.folder / "recipe.toml", {}).recipe
    [note] = list_data_warnings(recipe, data, example_batches(recipe, data.train))
    assert "windows of their passages" in note


def test_the_threshold_that_what_is_held_out_chooses_is_kept_and_used(finetuned):
    result, data = finetuned
    model = load(result.folder)
    spec = model.task
    if result.reports[0].task.name == "squad":
        assert spec.threshold is None
        return
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
    metrics = result.reports[0].task.metrics
    own = score(test.parts[0].examples, decided, metrics)
    assert own.value == pytest.approx(result.score)
