"""Contradictions of model, objective and text are found when a recipe is loaded, by both fields."""

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError

TASK = {"objective.kind": "supervised", "data.tasks": "sst2", "data.path": "glue"}


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "bert-base",
            {**TASK, "objective.format": "text"},
            "objective.format = text is read by a model.kind = encoder-decoder or decoder or lstm, "
            "not encoder: give objective.format=pair",
        ),
        (
            "gpt",
            {
                **TASK,
                "objective.format": "traversal",
                "objective.language_weight": 0.5,
                "model.head": "none",
                "model.label_outputs": 2,
            },
            "model.head = none predicts no tokens, which objective.language_weight asks for: set "
            "objective.language_weight=0, or start from a model with a head",
        ),
        (
            "gpt",
            TASK,
            "objective.format = pair is read by a model.kind = encoder, not decoder: give "
            "objective.format=traversal",
        ),
        (
            "t5-mini",
            {**TASK, "objective.format": "traversal"},
            "objective.format = traversal is read by a model.kind = decoder or lstm, not "
            "encoder-decoder: give objective.format=text",
        ),
        (
            "bert-base",
            {**TASK, "data.tasks": ["sst2", "cola"]},
            "data.tasks = sst2, cola is a mixture, which objective.format = pair has no one head "
            "for: name one task, or give objective.format=text",
        ),
        (
            "t5-mini",
            {**TASK, "objective.format": "text", "data.size_limit": 9},
            "data.size_limit = 9 is for a mixture, and data.tasks = sst2 is one task: leave it out",
        ),
        (
            "t5-mini",
            {
                **TASK,
                "objective.format": "text",
                "data.tasks": {"sst2": 1.0, "cola": 2.0},
                "data.size_limit": 9,
            },
            "data.size_limit = 9 limits what tasks are drawn by, their sizes, which the weights of "
            "data.tasks take the place of: leave out one of the two",
        ),
        (
            "bert-base",
            {"objective.kind": "supervised", "data.path": "glue"},
            "objective.kind = supervised needs data.tasks: name a task, such as sst2 (`sublayer "
            "tasks` lists them)",
        ),
        (
            "gpt",
            {"data.tasks": "sst2", "data.path": "glue"},
            "data.tasks = 'sst2' has no effect with objective.kind = 'causal': it counts only "
            "where objective.kind is supervised",
        ),
        (
            "bert-base",
            {**TASK, "data.context": 4},
            "data.context = 4 has no room for texts between their marks: give 5 or more",
        ),
        (
            "gpt",
            {**TASK, "objective.format": "text", "data.context": 64},
            "objective.target_length = 64 leaves no room for an input in data.context = "
            "64: make it smaller",
        ),
        (
            "bert-base",
            {**TASK, "train.compile": True},
            "train.compile = true would compile anew for every length of an example: leave it out",
        ),
        (
            "gpt",
            {"objective.kind": "masked"},
            "objective.kind = masked trains a model.kind = encoder, not decoder",
        ),
        (
            "albert-small",
            {"model.kind": "decoder", "model.pooler": "none", "model.sentence_classes": 0},
            "objective.kind = masked trains a model.kind = encoder, not decoder",
        ),
        (
            "gpt",
            {"model.kind": "encoder"},
            "objective.kind = causal trains a model.kind = decoder or lstm, not encoder",
        ),
        (
            "gpt",
            {"data.sentences": "lines"},
            "data.sentences = lines contradicts objective.kind = causal, which reads the text as "
            "it is: leave it out",
        ),
        (
            "albert-small",
            {"data.sentences": "none"},
            "objective.kind = masked reads sentences, and data.sentences = none: give lines, prose "
            "or spacy",
        ),
        (
            "albert-small",
            {"data.context": 4},
            "data.context = 4 has no room for a pair of texts, which objective.kind = masked "
            "reads: give 5 or more",
        ),
        (
            "albert-small",
            {"model.sentence_classes": 0},
            "objective.sentence = sop needs a head: model.sentence_classes = 0 has none, give 2",
        ),
        (
            "albert-small",
            {"objective.sentence": "none", "objective.single_sentence": "negative"},
            "objective.single_sentence = negative makes labels, which objective.sentence = none "
            "has no use for",
        ),
        (
            "gpt",
            {
                "objective.kind": "supervised",
                "objective.format": "traversal",
                "data.tasks": "squad",
            },
            "data.tasks = squad asks for a part of a passage, of which objective.format = "
            "traversal, whose tokens see only what is before them, knows no end: give "
            "objective.format=text, or start from an encoder",
        ),
        (
            "albert-small",
            {"objective.pairs": "sentences"},
            "objective.pairs = sentences pairs what follows and what does not, not "
            "objective.sentence = sop",
        ),
        (
            "macaron-bert-base-released",
            {"train.tokens": 1e9},
            "objective.pairs = sentences makes examples far shorter than data.context, by which "
            "train.tokens and train.epochs are counted: give train.steps",
        ),
        (
            "macaron-bert-base-released",
            {"data.corpus": {"wikipedia": 3, "bookcorpus": 1}},
            "train.batch_tokens fills steps with pairs of one length, which the weights of "
            "data.path or data.corpus contradict with objective.pairs = sentences: give "
            "train.batch_sequences",
        ),
        (
            "bert-base",
            {"train.batch_tokens": 4096, "data.batch_parts": 2},
            "data.batch_parts = 2 has no effect",
        ),
        (
            "albert-small",
            {"objective.p_mask": 0.95},
            "objective.p_mask = 0.95 and objective.p_random = 0.1 exceed 1 together",
        ),
        *(
            (
                "albert-small",
                {"data.tokenizer": tokenizer},
                f"data.tokenizer = {tokenizer} has no [MASK], which objective.kind = masked needs: "
                "give unigram, wordpiece or moses-bpe, or a file whose vocabulary has it",
            )
            for tokenizer in ("bpe", "characters")
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_contradiction_is_one_line(name, settings, message):
    with pytest.raises(ConfigError) as caught:
        load_recipe(name, settings)
    assert str(caught.value).split(" (from ")[0].startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"data.context": 5},
        {"model.sentence_classes": 1},
        {"data.tokenizer": "wordpiece"},
        {"data.tokenizer": "moses-bpe"},
        {"objective.p_mask": 0.9},
        {"objective.sentence": "none", "model.sentence_classes": 0, "model.pooler": "none"},
        {"objective.sentence": "none"},
        {"objective.single_sentence": "negative"},
        {"objective.pairs": "sentences", "objective.sentence": "nsp"},
    ],
    ids=str,
)
def test_what_goes_together_loads(settings):
    load_recipe("albert-small", settings)
