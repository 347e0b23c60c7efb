"""Contradictions of model, objective and text are found when a recipe is loaded, by field."""

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError

TASK = {"objective.kind": "supervised", "data.tasks": "sst2", "data.path": "glue"}
TEXT = {**TASK, "objective.format": "text"}
TRAVERSAL = {**TASK, "objective.format": "traversal"}
WEIGHTS = {"sst2": 1.0, "cola": 2.0}
NO_HEAD = {"objective.language_weight": 0.5, "model.head": "none", "model.label_outputs": 2}
AS_DECODER = {"model.kind": "decoder", "model.pooler": "none", "model.sentence_classes": 0}
NEGATIVE = {"objective.sentence": "none", "objective.single_sentence": "negative"}
PARTS = {"train.batch_tokens": 4096, "data.batch_parts": 2}


@pytest.mark.parametrize(
    ("name", "settings", "fields"),
    [
        ("bert-base", TEXT, ["objective.format = text", "model.kind"]),
        ("gpt", {**TRAVERSAL, **NO_HEAD}, ["model.head = none", "objective.language_weight"]),
        ("gpt", TASK, ["objective.format = pair", "model.kind"]),
        ("t5-mini", TRAVERSAL, ["objective.format = traversal", "model.kind"]),
        ("bert-base", {**TASK, "data.tasks": ["sst2", "cola"]}, ["data.tasks = sst2, cola"]),
        ("t5-mini", {**TEXT, "data.size_limit": 9}, ["data.size_limit = 9", "data.tasks = sst2"]),
        ("t5-mini", {**TEXT, "data.tasks": WEIGHTS, "data.size_limit": 9}, ["data.size_limit = 9"]),
        ("bert-base", {"objective.kind": "supervised", "data.path": "glue"}, ["needs data.tasks"]),
        ("gpt", {"data.tasks": "sst2", "data.path": "glue"}, ["data.tasks", "objective.kind"]),
        ("bert-base", {**TASK, "data.context": 4}, ["data.context = 4", "give 5"]),
        ("gpt", {**TEXT, "data.context": 64}, ["objective.target_length = 64", "data.context"]),
        ("bert-base", {**TASK, "train.compile": True}, ["train.compile = true"]),
        ("gpt", {**TRAVERSAL, "data.tasks": "squad"}, ["data.tasks = squad", "objective.format"]),
        ("albert-small", AS_DECODER, ["objective.kind = masked", "model.kind = encoder"]),
        ("gpt", {"model.kind": "encoder"}, ["objective.kind = causal", "model.kind = decoder"]),
        ("gpt", {"data.sentences": "lines"}, ["data.sentences = lines", "objective.kind"]),
        ("albert-small", {"data.sentences": "none"}, ["objective.kind", "data.sentences = none"]),
        ("albert-small", {"data.context": 4}, ["data.context = 4", "give 5"]),
        ("albert-small", {"model.sentence_classes": 0}, ["objective.sentence", "give 2"]),
        ("albert-small", NEGATIVE, ["objective.single_sentence", "objective.sentence = none"]),
        ("albert-small", {"objective.pairs": "sentences"}, ["objective.pairs", "sentence = sop"]),
        ("macaron-bert-base-released", {"train.tokens": 1e9}, ["objective.pairs", "train.tokens"]),
        (
            "macaron-bert-base-released",
            {"data.corpus": {"wikipedia": 3, "bookcorpus": 1}},
            ["train.batch_tokens", "objective.pairs = sentences"],
        ),
        ("bert-base", PARTS, ["data.batch_parts = 2 has no effect"]),
        ("albert-small", {"objective.p_mask": 0.95}, ["objective.p_mask", "objective.p_random"]),
        ("albert-small", {"data.tokenizer": "bpe"}, ["data.tokenizer = bpe", "objective.kind"]),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_contradiction_is_refused_by_the_fields_that_make_it(name, settings, fields):
    with pytest.raises(ConfigError) as caught:
        load_recipe(name, settings)
    assert all(field in str(caught.value) for field in fields)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"data.context": 5},
        {"model.sentence_classes": 1},
        {"data.tokenizer": "moses-bpe"},
        {"objective.p_mask": 0.9},
        {"objective.sentence": "none", "model.sentence_classes": 0, "model.pooler": "none"},
        {"objective.single_sentence": "negative"},
        {"objective.pairs": "sentences", "objective.sentence": "nsp"},
    ],
    ids=str,
)
def test_consistent_settings_load(settings):
    load_recipe("albert-small", settings)
