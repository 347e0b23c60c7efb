"""transformers' own pipeline answers as the model does that was exported."""

from pathlib import Path
from typing import Any

import pytest
import torch

from sublayer.interop.huggingface.exchange import export_huggingface
from sublayer.tasks.example import Example
from sublayer.tasks.registry import TASKS
from tests.interop.answering import answered, model_for

FIRST = ["the dog ran over the mat", "It is the BEST of them all!", "nothing, and wrong", "a"]
SECOND = ["the cat", "everyone who saw it smiled", "not so", "a film that the cat would"]
# Longer than the context.
LONG = "the field and the cat and the mat and the dog, all of them wrong, " * 3


def pipeline_of(folder: Path) -> Any:
    from transformers import pipeline

    return pipeline("text-classification", model=str(folder), device="cpu")


@pytest.mark.parametrize("name", ["bert", "albert", "gpt2"])
def test_one_text_has_the_same_label_and_probability(tmp_path: Path, name: str) -> None:
    task = TASKS["sst2"]
    model = model_for(name, task)
    export_huggingface(model, tmp_path / "exported")
    expected = answered(model, [Example("0", {"sentence": text}) for text in FIRST])
    found = pipeline_of(tmp_path / "exported")(FIRST, top_k=None)
    check(found, expected, task.labels)


@pytest.mark.parametrize("name", ["bert", "albert", "gpt2"])
def test_two_texts_have_the_same_label_and_probability(tmp_path: Path, name: str) -> None:
    task = TASKS["mnli"]
    model = model_for(name, task)
    export_huggingface(model, tmp_path / "exported")
    pairs = list(zip(FIRST, SECOND, strict=True))
    examples = [Example("0", {"premise": first, "hypothesis": second}) for first, second in pairs]
    inputs = [{"text": first, "text_pair": second} for first, second in pairs]
    found = pipeline_of(tmp_path / "exported")(inputs, top_k=None)
    check(found, answered(model, examples), task.labels)


@pytest.mark.parametrize("name", ["bert", "albert", "gpt2"])
def test_a_text_longer_than_the_context_is_cut_alike(tmp_path: Path, name: str) -> None:
    task = TASKS["sst2"]
    model = model_for(name, task)
    export_huggingface(model, tmp_path / "exported")
    expected = answered(model, [Example("0", {"sentence": LONG})])
    found = pipeline_of(tmp_path / "exported")([LONG], top_k=None, truncation=True)
    check(found, expected, task.labels)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_rows_that_are_padded_have_the_same_labels(tmp_path: Path, name: str) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = model_for(name, TASKS["sst2"])
    export_huggingface(model, tmp_path / "exported")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "exported")
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "exported").eval()
    with torch.inference_mode():
        logits = theirs(**tokenizer(FIRST, padding=True, return_tensors="pt")).logits
    expected = answered(model, [Example("0", {"sentence": text}) for text in FIRST])
    torch.testing.assert_close(logits.softmax(-1), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "albert"])
def test_choices_have_the_same_probabilities(tmp_path: Path, name: str) -> None:
    from transformers import AutoModelForMultipleChoice, AutoTokenizer

    model = model_for(name, TASKS["copa"])
    export_huggingface(model, tmp_path / "exported")
    fields = {"premise": "the dog ran", "question": "cause"}
    example = Example("0", fields, choices=("the cat sat", "nothing was wrong"))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "exported")
    theirs = AutoModelForMultipleChoice.from_pretrained(tmp_path / "exported").eval()
    asked = "the dog ran What was the CAUSE of this?"
    rows = tokenizer([asked] * 2, list(example.choices), padding=True, return_tensors="pt")
    with torch.inference_mode():
        logits = theirs(**{key: each[None] for key, each in rows.items()}).logits
    torch.testing.assert_close(logits.softmax(-1), answered(model, [example]), rtol=0, atol=1e-5)


def check(
    found: list[list[dict[str, Any]]], expected: torch.Tensor, labels: tuple[str, ...]
) -> None:
    assert len(expected) == 1 or expected.std(0).max() > 1e-3
    for answers, probabilities in zip(found, expected.tolist(), strict=True):
        said = {answer["label"]: answer["score"] for answer in answers}
        assert said.keys() == set(labels)
        for label, probability in zip(labels, probabilities, strict=True):
            assert said[label] == pytest.approx(probability, abs=1e-5)
        assert answers[0]["label"] == labels[probabilities.index(max(probabilities))]
