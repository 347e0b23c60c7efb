"""The head that answers: at zero, with one output for two labels."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sublayer.config.layering.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.task_heads import n_outputs
from sublayer.data.tasks.marks import TRAVERSAL_NAMES
from sublayer.data.tokenizers.characters import CharacterTokenizer
from sublayer.data.tokenizers.extended import with_names
from sublayer.errors import ConfigError
from sublayer.objective.supervised.family import token_rows
from sublayer.objective.supervised.readout import answer_logits, text_states
from sublayer.tasks.registry import TASKS
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
        ({"objective.logistic": True, "data.tasks": "stsb"}, "two labels, which .* stsb is not"),
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
        (12, 4, 12),
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
