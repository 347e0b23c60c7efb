"""Heads that answer tasks, and answers of other models as those of a known task."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sublayer.config.layering.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.config.task_heads import n_outputs
from sublayer.data.tasks.marks import TRAVERSAL_NAMES
from sublayer.data.tokenizers.characters import CharacterTokenizer
from sublayer.data.tokenizers.extended import with_names
from sublayer.errors import ConfigError
from sublayer.model.build import build
from sublayer.model.transformer import Transformer
from sublayer.objective.supervised.family import token_rows
from sublayer.objective.supervised.known_task import answer_known
from sublayer.objective.supervised.loss import unscaled
from sublayer.objective.supervised.readout import answer_logits, text_states
from sublayer.tasks.labels import label_places
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.task import Task
from tests.answerers import assembler_of, draw_examples, model_of, objective_of, split_of

N = 7


def test_one_output_costs_what_the_logistic_loss_does() -> None:
    split = split_of({"mrpc": draw_examples("mrpc", N)}, "pair")
    model = model_of(split, label_outputs=1)
    batch = assembler_of(split).pack(np.arange(N))
    states = text_states(model, batch)
    logits = answer_logits(model, batch, states, 0.0, "classes")
    assert logits.shape == (N, 2) and not logits[:, 0].any()
    loss = objective_of(model, dropout=0.0)(batch)["task"]
    expected = F.binary_cross_entropy_with_logits(logits[:, 1], batch.labels.double())
    torch.testing.assert_close(loss, N * expected, rtol=1e-12, atol=0)


def test_tasks_of_two_labels_may_have_one_output() -> None:
    assert n_outputs(TASKS["mrpc"], logistic=True) == 1
    assert [n_outputs(TASKS[name]) for name in ("mrpc", "mnli", "stsb", "copa")] == [2, 3, 1, 1]


@pytest.mark.parametrize(("format_", "name"), [("pair", "mnli"), ("traversal", "copa")])
def test_a_head_at_zero_finds_all_answers_alike(format_: Any, name: str) -> None:
    split = split_of({name: draw_examples(name, N)}, format_)
    model = model_of(split)
    objective_of(model, zero_head=True)
    batch = assembler_of(split).pack(np.arange(N))
    logits = answer_logits(model, batch, text_states(model, batch), 0.0, TASKS[name].kind)
    assert not logits[logits.isfinite()].any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective.logistic": True, "data.tasks": "mnli"}, "two labels, which .* mnli is not"),
        ({"objective.zero_head": True, "data.tasks": "squad"}, "squad asks for spans"),
    ],
)
def test_a_setting_of_another_head_is_refused(settings: dict[str, Any], message: str) -> None:
    tasks = {"objective.kind": "supervised", "data.path": "glue", "data.context": 64}
    with pytest.raises(ConfigError, match=message):
        load_recipe("bert-base", {**tasks, **settings})


@pytest.mark.parametrize(
    ("rows", "multiple", "expected"),
    [
        (None, 1, None),  # the tokenizer says
        (9, 1, 12),
        (10, 5, 15),  # of which the marks fill one of two that padded
        (16, 4, 16),
        (8, 1, 8),  # too few for the text itself, which is refused elsewhere
    ],
)
def test_a_table_of_tokens_gets_rows_for_the_marks_of_a_traversal(
    rows: int | None, multiple: int, expected: int | None
) -> None:
    vocabulary = CharacterTokenizer("abcdefgh")
    assert vocabulary.vocab_size == 9
    model = ModelConfig(vocab_size=rows, vocab_multiple=multiple)
    assert token_rows(model, with_names(vocabulary, TRAVERSAL_NAMES)) == expected
    assert token_rows(model, vocabulary) == rows


IMPORTED = Task("imported", "imported", "table", "classes", ("text",), ("accuracy",))
TOKENS = torch.arange(7)[None]


def imported(task: Task, n_outputs: int | None = None) -> Transformer:
    fields = {"kind": "encoder", "head": "none", "n_layers": 1, "d_model": 8, "n_heads": 2}
    outputs = n_outputs or max(1, len(task.labels))
    config = ModelConfig.model_validate({**fields, "label_outputs": outputs})
    model = build(resolve_model(config, vocab_size=7, context=7), seed=0).eval()
    assert model.label_head is not None
    with torch.no_grad():
        model.label_head.bias.normal_(generator=torch.Generator().manual_seed(1))
    model.task = TaskSpec((task,), "pair", 7)
    return model


@torch.inference_mode()
def answers_of(model: Transformer) -> dict[str, float]:
    """Return the logits of a text by the words of the labels."""
    logits = model(TOKENS)["label"][0].tolist()
    return dict(zip(model.task.tasks[0].labels, logits, strict=True))


def test_labels_are_put_into_the_tasks_order_by_their_words() -> None:
    model = imported(replace(IMPORTED, labels=("CONTRADICTION", "Neutral", "entailment")))
    before = answers_of(model)
    answer_known(model, TASKS["mnli"])
    assert model.task.tasks == (TASKS["mnli"],)
    after = answers_of(model)
    assert list(after) == ["entailment", "neutral", "contradiction"]
    assert after == {label.lower(): logit for label, logit in before.items()}
    assert len(set(after.values())) == 3


def test_places_of_labels_are_those_of_their_words() -> None:
    assert label_places(("entailment", "not_entailment"), TASKS["rte"]) == (0, 1)
    assert label_places(("Not Entailment", "ENTAILMENT "), TASKS["rte"]) == (1, 0)
    assert label_places(("not-entailment", "entailment"), TASKS["rte"]) == (1, 0)


@pytest.mark.parametrize(
    "words",
    [
        ("entailment",),
        ("entailment", "neutral"),
        ("entailment", "Entailment"),
        ("entailment", "not_entailment", "neutral"),
    ],
)
def test_an_order_is_not_guessed(words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="those of RTE entailment"):
        label_places(words, TASKS["rte"])


def test_one_output_of_two_labels_is_turned_round() -> None:
    model = imported(replace(IMPORTED, labels=("positive", "negative")), n_outputs=1)
    with torch.inference_mode():
        before = model(TOKENS)["label"]
        answer_known(model, TASKS["sst2"])
        assert torch.equal(model(TOKENS)["label"], -before)


def test_numbers_are_put_on_the_tasks_scale() -> None:
    model = imported(replace(IMPORTED, kind="number", numbers=(-1.0, 1.0), is_bounded=False))
    with torch.inference_mode():
        number = model(TOKENS)["label"]
        answer_known(model, TASKS["stsb"])
        again = unscaled(TASKS["stsb"], model(TOKENS)["label"])
    torch.testing.assert_close(again, number, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["stsb", "copa"])
def test_another_kind_of_answer_and_none_are_refused(name: str) -> None:
    model = imported(replace(IMPORTED, labels=("negative", "positive")))
    with pytest.raises(ConfigError, match="the model answers imported"):
        answer_known(model, TASKS[name])
    model.task = None
    with pytest.raises(ConfigError, match="no head that answers a task"):
        answer_known(model, TASKS["sst2"])
