"""A model is scored by its objective's measures, which follow from what every item scored."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sublayer.config.data import DataConfig
from sublayer.config.layering.layers import load_recipe
from sublayer.config.objectives.kinds import OBJECTIVES
from sublayer.config.resolve_model import resolve_model
from sublayer.data.parallel.batches import TranslationBatches, side_lengths
from sublayer.evaluation.likelihood import score
from sublayer.evaluation.split_work import ALONE
from sublayer.model.build import build, compose
from sublayer.model.model_folder import save_model
from sublayer.objective.causal.items import _spread, window_items
from sublayer.objective.families import FAMILIES, family_of
from sublayer.objective.masked.items import HIDDEN, EncoderItems
from sublayer.objective.masked.scored_batches import Scoring
from sublayer.objective.masked.scores import encoder_scores
from sublayer.objective.translation.scores import nats_of_pairs, translation_nats
from sublayer.runs.run import from_recipe
from sublayer.runs.session import prepare_data
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec
from tests.data.test_parallel import random_split
from tests.evaluation.test_likelihood import model_of, split_of
from tests.objective.test_masked import CONTEXT, SPLIT, encoder_for, objective_of
from tests.objective.test_span import make_objective

VOCAB_SIZE = 99


def test_what_a_study_compares_is_what_a_run_is_scored_by():
    for kind, family in FAMILIES.items():
        if kind == "translation":  # a study translates the test split, too long on the way
            continue
        data = DataConfig(tasks="sst2" if kind == "supervised" else None)
        given = OBJECTIVES[kind]().evaluations(data)  # type: ignore[call-arg]
        assert {metric.name for metric in family.metrics} <= set(given)


ANSWERING = {"objective.kind": "supervised", "data.tasks": "sst2", "model.head": "none"}
ANSWERING |= {"model.label_outputs": 2, "model.sentence_classes": 0, "model.d_embed": 4}
TRAINED = {
    "causal": ("gpt", {"objective.auxiliary": "layers", "objective.targets": 2}),
    "masked": ("albert-small", {"model.d_embed": 4, "objective.sentence": "none"}),
    "translation": ("multi30k-tiny", {"optimizer.warmup_steps": 1}),
    "span": ("t5-mini", {}),
    "supervised": ("albert-small", ANSWERING),
}
"""A recipe of each kind of objective, with all that training alone may need."""


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_saved_model_holds_what_its_config_asks_for_and_no_more(kind, tmp_path):
    name, settings = TRAINED[kind]
    tiny = {"model.n_layers": 2, "model.d_model": 8, "model.n_heads": 2, "data.context": 16}
    recipe = load_recipe(name, {**tiny, "train.steps": 3, **settings}).recipe
    model = build(resolve_model(recipe.model, vocab_size=VOCAB_SIZE, context=16), seed=0)
    if kind == "supervised":
        model.task = TaskSpec((TASKS["sst2"],), "pair", 16)
    objective = FAMILIES[kind].build(model, recipe.objective, 0)
    save_model(tmp_path / "model", objective.model, {})
    saved = load_file(tmp_path / "model" / "model.safetensors")
    with torch.device("meta"):
        asked = compose(objective.model.config).state_dict()
    shapes = [{name: value.shape for name, value in each.items()} for each in (saved, asked)]
    assert shapes[0] == shapes[1]
    # What training alone needs is not saved.
    owned, alone = {f"model.{name}" for name in saved}, objective.training_only()
    assert owned | alone.keys() == dict(objective.named_parameters()).keys()
    assert (len(alone) > 0) == (kind == "causal")


SMALL = {"model.n_layers": 1, "model.d_model": 8, "model.n_heads": 2, "data.context": 16}
SPLIT_LINES = {"data.sentences": "lines", "data.documents": "blank-line", "model.d_embed": 4}
SPLIT_LINES |= {"data.context": 64, "data.split": "60/10/30"}
RECIPES = {
    "causal": ("gpt", SMALL),
    "masked": ("albert-small", {**SMALL, **SPLIT_LINES, "data.vocab_size": 60}),
    "translation": ("multi30k-tiny", {**SMALL, "data.moses_hyphens": True, "model.d_ff": 8}),
    "span": ("t5-mini", {**SMALL, "data.vocab_size": 150, "data.split": "60/10/30"}),
}


def write_texts(folder: Path) -> dict[str, dict[str, Any]]:
    """Write what each kind of objective is tested on, and return the settings that name it."""
    lines = [f"the {i % 7} cats sat on {i % 5} mats." for i in range(300)]
    documents = ["\n".join(lines[start : start + 6]) for start in range(0, 300, 6)]
    (folder / "text.txt").write_text("\n\n".join(documents))
    (folder / "a.en").write_text("\n".join(lines))
    (folder / "a.de").write_text("\n".join(line.replace("the", "die") for line in lines))
    text = {"data.path": str(folder / "text.txt")}
    pairs = {"data.source_path": str(folder / "a.en"), "data.target_path": str(folder / "a.de")}
    return {"causal": text, "masked": text, "translation": pairs, "span": text}


# Those whose tests keep items.
@pytest.mark.parametrize("kind", [kind for kind, row in FAMILIES.items() if row.tables()])
def test_the_metrics_of_a_test_follow_from_its_items(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    name, settings = RECIPES[kind]
    given = {**settings, **write_texts(tmp_path)[kind], "train.steps": 3000}
    recipe = load_recipe(name, given).recipe
    model, family = from_recipe(name, given), family_of(recipe.objective)
    found = family.score(model, prepare_data(recipe).test, recipe, "test", ALONE)
    for metric in family.metrics:
        assert metric.from_items is not None, f"{metric.name} follows from no items"
        value = metric.from_items.of(found.items)
        assert value == pytest.approx(found.scores[metric.name], rel=1e-9), metric.name
    for table in found.items.tables.values():
        assert table.n_items > 4 and len(table.digest) == 64


def test_windows_have_the_nats_the_text_and_the_document_of_what_they_score():
    split, uniform = split_of(np.arange(40) % 251, document_starts=(0, 7, 29)), model_of()
    with torch.no_grad():
        uniform.embedding.weight.zero_()
    likelihood = score(uniform, split, context=8, stride=4, batch_sequences=3)
    table = window_items(split, likelihood, context=8, stride=4).tables["windows"]
    # The first window scores 8 tokens, 1 to 8, each later one 4, the last the 3 that are left.
    tokens = [8, *[4] * 7, 3]
    assert "half the context" in table.unit and table.columns["tokens"].tolist() == tokens
    assert table.columns["nats"] == pytest.approx(np.array(tokens) * math.log(256), rel=1e-12)
    # They score from 1, 9, 13, 17, ... on; documents begin at 7 and 29.
    assert table.documents.tolist() == [0, *[1] * 5, 2, 2, 2]
    for name in ("bytes", "characters", "words", "tokens"):
        assert int(table.columns[name].sum()) == getattr(likelihood, name)


def test_bytes_that_a_lossy_tokenizer_read_are_spread_over_the_windows():
    given = (([4, 0, 4], 8, [1, 1, 1]), ([4, 0, 4], 12, [1, 1, 1]), ([0, 0], 9, [2, 1]))
    found = [_spread(np.array(read), n, np.array(tokens)).tolist() for read, n, tokens in given]
    assert found == [[4, 0, 4], [6, 0, 6], [6, 3]]
    assert _spread(np.array([3, 3, 3]), 10, np.array([1, 1, 1])).sum() == 10


def test_an_example_scores_the_same_alone_and_among_others():
    encoder, found = encoder_for(), []
    for size in (1, 7, 500):
        gathered = EncoderItems(SPLIT)
        scoring = Scoring(CONTEXT, size)
        scores = encoder_scores(encoder, SPLIT, objective_of(), scoring, items=gathered)
        found.append(gathered.items().tables)
    alone, *others = found
    for tables in others:
        nats = tables[HIDDEN].columns["nats"]
        assert nats == pytest.approx(alone[HIDDEN].columns["nats"], rel=1e-9)
        for name, table in tables.items():
            assert table.digest == alone[name].digest
            assert np.array_equal(table.documents, alone[name].documents)
            for column in set(table.columns) - {"nats"}:
                assert np.array_equal(table.columns[column], alone[name].columns[column])
    hidden = alone[HIDDEN].columns
    assert int(hidden["tokens"].sum()) == scores["mlm_tokens"]
    assert hidden["correct"].sum() / hidden["tokens"].sum() == scores["mlm_accuracy"]
    for task in ("nsp", "sop"):
        judged = alone[f"{task}_pairs"].columns
        assert int(judged["pairs"].sum()) == scores[f"{task}_pairs"]
        assert judged["correct"].sum() / judged["pairs"].sum() == scores[f"{task}_accuracy"]
        assert set(judged["correct"].tolist()) == {0, 1}


def test_a_pair_costs_what_its_target_costs_alone():
    objective, split = make_objective(), random_split(30)
    batches = TranslationBatches(split, context=24, batch_tokens=120, seed=1)
    found = nats_of_pairs(objective.model, batches)
    mean = translation_nats(objective.model, batches)
    assert found.nats.sum() / found.tokens.sum() == pytest.approx(mean, rel=1e-12)
    lengths = side_lengths(split)
    is_kept = lengths.max(1) <= 24
    assert found.tokens.tolist() == np.where(is_kept, lengths[:, 1], 0).tolist()
    for number, pair in enumerate(np.flatnonzero(is_kept)):
        alone = batches.pairs(np.array([number]))
        with torch.no_grad():
            nats = float(objective(alone)["nll"])
        assert found.nats[pair] == pytest.approx(nats, rel=1e-9)
        assert found.tokens[pair] == alone.n_predicted
    assert not found.nats[~is_kept].any() and is_kept.sum() == 30 - batches.n_left_out < 30
    others = TranslationBatches(split, context=24, batch_tokens=60, seed=2)
    assert nats_of_pairs(objective.model, others).nats == pytest.approx(found.nats, rel=1e-9)
