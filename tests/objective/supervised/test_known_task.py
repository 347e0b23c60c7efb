"""A model's answers become those of a known task: labels by their words, numbers by their scale."""

from dataclasses import replace

import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import ConfigError
from sublayer.model.build import build
from sublayer.model.transformer import Transformer
from sublayer.objective.supervised.known_task import answer_known
from sublayer.objective.supervised.loss import unscaled
from sublayer.tasks.labels import label_places
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.task import Task

IMPORTED = Task("imported", "imported", "table", "classes", ("text",), ("accuracy",))
TOKENS = torch.arange(7)[None]


def model_of(task: Task, n_outputs: int | None = None) -> Transformer:
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
    model = model_of(replace(IMPORTED, labels=("CONTRADICTION", "Neutral", "entailment")))
    before = answers_of(model)
    answer_known(model, TASKS["mnli"])
    assert model.task.tasks == (TASKS["mnli"],)
    after = answers_of(model)
    assert list(after) == ["entailment", "neutral", "contradiction"]
    assert after == {label.lower(): logit for label, logit in before.items()}
    assert len(set(after.values())) == 3


@pytest.mark.parametrize(
    ("words", "places"),
    [
        (("entailment", "not_entailment"), (0, 1)),
        (("Not Entailment", "ENTAILMENT"), (1, 0)),
        (("not-entailment", "entailment "), (1, 0)),
    ],
)
def test_places_of_labels_are_those_of_their_words(
    words: tuple[str, ...], places: tuple[int, ...]
) -> None:
    assert label_places(words, TASKS["rte"]) == places


@pytest.mark.parametrize(
    "words",
    [
        ("LABEL_0", "LABEL_1"),
        ("entailment",),
        ("entailment", "neutral"),
        ("entailment", "Entailment"),
        ("entailment", "not_entailment", "neutral"),
    ],
)
def test_an_order_is_not_guessed(words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"labels are .*, those of RTE entailment, not_.*guessed"):
        label_places(words, TASKS["rte"])


def test_one_output_of_two_labels_is_turned_round() -> None:
    model = model_of(replace(IMPORTED, labels=("positive", "negative")), n_outputs=1)
    with torch.inference_mode():
        before = model(TOKENS)["label"]
        answer_known(model, TASKS["sst2"])
        assert torch.equal(model(TOKENS)["label"], -before)


def test_numbers_are_put_on_the_tasks_scale() -> None:
    model = model_of(replace(IMPORTED, kind="number", numbers=(-1.0, 1.0), is_bounded=False))
    with torch.inference_mode():
        number = model(TOKENS)["label"]
        answer_known(model, TASKS["stsb"])
        again = unscaled(TASKS["stsb"], model(TOKENS)["label"])
    torch.testing.assert_close(again, number, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["stsb", "copa", "squad"])
def test_another_kind_of_answer_is_refused(name: str) -> None:
    model = model_of(replace(IMPORTED, labels=("negative", "positive")))
    with pytest.raises(ConfigError, match="asks for .*, and the model answers imported, labels"):
        answer_known(model, TASKS[name])


def test_a_model_that_answers_nothing_is_refused() -> None:
    model = model_of(replace(IMPORTED, labels=("negative", "positive")))
    model.task = None
    with pytest.raises(ConfigError, match="no head that answers a task, such as SST-2"):
        answer_known(model, TASKS["sst2"])
