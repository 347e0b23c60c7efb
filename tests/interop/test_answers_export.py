"""Models that answer tasks go out with equal logits and their labels, or are refused in words."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.huggingface.exchange import (
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.loading import load
from sublayer.tasks.example import Example
from sublayer.tasks.registry import TASKS
from tests.interop.answering import CONTEXT, answered, model_for

CLASSES = {
    ("bert", "mnli"): "BertForSequenceClassification",
    ("albert", "sst2"): "AlbertForSequenceClassification",
    ("bert", "stsb"): "BertForSequenceClassification",
    ("bert", "race"): "BertForMultipleChoice",
    ("albert", "copa"): "AlbertForMultipleChoice",
    ("bert", "squad"): "BertForQuestionAnswering",
    ("albert", "squad"): "AlbertForQuestionAnswering",
    ("gpt2", "mnli"): "GPT2ForSequenceClassification",
    ("gpt1", "mnli"): "OpenAIGPTForSequenceClassification",
    ("gpt1", "race"): "OpenAIGPTDoubleHeadsModel",
    ("t5", "sst2"): "T5ForConditionalGeneration",
}
each_class = pytest.mark.parametrize(("name", "task"), CLASSES)


def config_in(folder: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return fields


@each_class
def test_an_export_is_of_the_class_that_answers_and_comes_back_with_its_task(
    tmp_path: Path, name: str, task: str
) -> None:
    import transformers

    model = model_for(name, TASKS[task]).double()
    certificate = export_huggingface(model, tmp_path / "exported")
    title = CLASSES[name, task]
    assert config_in(tmp_path / "exported")["architectures"] == [title]
    assert certificate["largest_difference"]["float64"] < 1e-9
    assert getattr(transformers, title).from_pretrained(tmp_path / "exported")
    import_huggingface(tmp_path / "exported", tmp_path / "again")
    again = load(tmp_path / "again")
    assert again.task == model.task
    text = b"the cat ran over the field"
    assert again.tokenizer.encode(text).tolist() == model.tokenizer.encode(text).tolist()
    assert again.tokenizer.added_ids == model.tokenizer.added_ids


def test_the_labels_and_their_kind_are_said(tmp_path: Path) -> None:
    export_huggingface(model_for("bert", TASKS["mnli"]), tmp_path / "labels")
    fields = config_in(tmp_path / "labels")
    words = ["entailment", "neutral", "contradiction"]
    assert fields["id2label"] == {str(index): word for index, word in enumerate(words)}
    assert fields["label2id"] == {word: index for index, word in enumerate(words)}
    assert fields["problem_type"] == "single_label_classification"
    settings = json.loads((tmp_path / "labels" / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == CONTEXT


def test_a_number_is_the_classs_output_itself(tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = model_for("bert", TASKS["stsb"])
    export_huggingface(model, tmp_path / "number")
    assert config_in(tmp_path / "number")["problem_type"] == "regression"
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "number").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "number")
    inputs = tokenizer("a cat", "a dog", return_tensors="pt")
    example = Example("0", {"sentence1": "a cat", "sentence2": "a dog"})
    expected = answered(model, [example])
    with torch.inference_mode():
        torch.testing.assert_close(theirs(**inputs).logits, expected, rtol=0, atol=1e-5)
    again = read_huggingface(tmp_path / "number")
    torch.testing.assert_close(answered(again, [example]), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "albert", "gpt2", "gpt1"])
def test_a_model_without_a_task_is_exported_with_labels_by_number(
    tmp_path: Path, name: str
) -> None:
    model = model_for(name, TASKS["mnli"])
    model.task = None
    export_huggingface(model, tmp_path / "exported")
    assert config_in(tmp_path / "exported")["id2label"]["2"] == "LABEL_2"
    assert not (tmp_path / "exported" / "task.json").exists()


def test_heads_that_do_not_answer_are_left_out_and_named(tmp_path: Path) -> None:
    model = model_for("gpt2", TASKS["sst2"], head="linear")
    certificate = export_huggingface(model, tmp_path / "exported")
    assert certificate["left_out"] == "vocabulary head"
    assert read_huggingface(tmp_path / "exported").config.head == "none"


@pytest.mark.parametrize("fields", [{"norm_affine": False}, {"share": "all"}, {"n_layers": 1}])
def test_a_bias_is_written_by_way_of_the_last_blocks_norm(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    from transformers import OpenAIGPTForSequenceClassification

    model = model_for("gpt1", TASKS["mnli"], **fields).double()
    assert model.label_head is not None
    assert model.label_head.bias.any()
    certificate = export_huggingface(model, tmp_path / "exported")
    assert certificate["largest_difference"]["float64"] < 1e-9
    theirs = OpenAIGPTForSequenceClassification.from_pretrained(
        tmp_path / "exported", dtype=torch.float64
    ).eval()
    # The padding, which the last token that counts stands before.
    pad = theirs.config.pad_token_id
    ids = torch.tensor([[4, 9, 7, 8, 5], [6, 3, pad, pad, pad]])
    with torch.inference_mode():
        expected = model(ids, ids != pad)["label"]
        torch.testing.assert_close(theirs(ids).logits, expected, rtol=0, atol=1e-9)


def test_choices_and_texts_go_out_together(tmp_path: Path) -> None:
    from transformers import OpenAIGPTDoubleHeadsModel

    model = model_for("gpt1", TASKS["race"], softmax="all").double()
    certificate = export_huggingface(model, tmp_path / "exported")
    assert certificate["left_out"].startswith("positions as classes")
    theirs = OpenAIGPTDoubleHeadsModel.from_pretrained(tmp_path / "exported", dtype=torch.float64)
    ids = torch.tensor([[4, 9, 7, 8, 5], [6, 3, 2, 2, 2]])
    ends = torch.tensor([4, 1])
    is_read = torch.arange(5) <= ends[:, None]
    with torch.inference_mode():
        found = theirs.eval()(ids[None], mc_token_ids=ends[None])
        ours = model(ids, is_read)
    torch.testing.assert_close(found.mc_logits, ours["label"].T, rtol=0, atol=1e-9)
    tokens = ours.logits[..., : model.config.vocab_size]
    torch.testing.assert_close(found.logits[0][is_read], tokens[is_read], rtol=0, atol=1e-9)


def test_a_model_without_offsets_is_exported_with_its_bias(tmp_path: Path) -> None:
    model = model_for("gpt2", TASKS["mnli"], norm_affine=False, final_norm="plain").double()
    assert model.label_head is not None and model.label_head.bias.any()
    certificate = export_huggingface(model, tmp_path / "exported")
    assert certificate["largest_difference"]["float64"] < 1e-12


@pytest.mark.parametrize("name", ["bert", "gpt2", "gpt1"])
def test_one_output_of_two_labels_becomes_one_of_each(tmp_path: Path, name: str) -> None:
    model = model_for(name, TASKS["sst2"], label_outputs=1).double()
    certificate = export_huggingface(model, tmp_path / "exported")
    assert certificate["largest_difference"]["float64"] < 1e-9
    again = read_huggingface(tmp_path / "exported")
    assert again.config.label_outputs == 2
    example = Example("0", {"sentence": "the cat ran"})
    expected = answered(model, [example])
    assert expected.shape == (1, 2)
    torch.testing.assert_close(answered(again, [example]), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "task", "fields", "message"),
    [
        ("gpt2", "qqp", {}, "QQP is answered from both orders .* reads one row"),
        ("gpt2", "copa", {}, "COPA is answered from a row for each choice"),
        ("gpt1", "qqp", {}, "QQP is .*, and OpenAIGPTForSequenceClassification reads one row"),
        (
            "gpt1",
            "copa",
            {"head": "none"},
            "cannot represent model.head = none: .*; fine-tuned with objective.language_weight",
        ),
        ("gpt1", "squad", {}, "GPT-1's class cannot represent .*span_head = independent"),
        ("gpt2", "squad", {}, "GPT-2's class cannot represent .*span_head = independent"),
        (
            "bert",
            "mnli",
            {"pooler": "none"},
            "can represent model.pooler = none: .*; fine-tuned with model.pooler=tanh it can be",
        ),
        ("bert", "squad", {"span_head": "joint"}, "can represent model.span_head = joint:"),
        (
            "bert",
            "mnli",
            {"norm": "rms"},
            "can represent model.norm = rms: the model cannot be exported$",
        ),
    ],
)
def test_what_no_class_answers_is_refused_in_words(
    tmp_path: Path, name: str, task: str, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        export_huggingface(model_for(name, TASKS[task], **fields), tmp_path / "exported")
    assert not list(tmp_path.iterdir())


def exported(place: Path) -> Path:
    export_huggingface(model_for("bert", TASKS["mnli"]), place)
    return place


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "traversal"}, "task.json is of format traversal, which no encoder reads"),
        ({"format": "text"}, "task.json is of format text, which no encoder reads"),
        ({"context": CONTEXT + 1}, "contradicts config.json .65 tokens, more than 64"),
        ({"context": "x"}, "task.json: context is not a whole number"),
        ({"doc_stride": -3}, "task.json: doc_stride is not a whole number"),
        ({"version": [1] * 99}, "task.json is of version"),
        ({"tasks": []}, "task.json does not describe a task"),
        ({"tasks": 3}, "task.json does not describe a task"),
        ({"tasks": [{"name": "x"}]}, "task.json does not describe a task"),
        ({"threshold": "x"}, "task.json: threshold is no number"),
        ({"answer": "guess"}, "task.json does not say how an answer is read off"),
    ],
)
def test_a_damaged_task_is_refused_in_a_line(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = exported(tmp_path / "exported") / "task.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(CheckpointError, match=message) as caught:
        import_huggingface(tmp_path / "exported", tmp_path / "again")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ["neutral", "entailment", "contradiction"]}, "labels neutral, .* leave"),
        ({"labels": []}, "does not describe a task"),
        ({"labels": ["a", "a", "b"]}, "of its labels two are one"),
        ({"labels": [1, 2, 3]}, "its labels are no texts"),
        ({"kind": "choice", "labels": []}, "its kind is not that of MNLI"),
        (
            {"kind": "choice", "labels": [], "name": "table", "suite": "table"},
            "choice, not classes",
        ),
        ({"kind": "x"}, "is no kind of task"),
        ({"numbers": [1, 1]}, "not the lowest and the highest"),
        ({"numbers": 3}, "not the lowest and the highest|does not describe"),
        ({"fields": []}, "it lacks fields"),
        ({"name": 3}, "its name is no text"),
    ],
)
def test_a_task_that_contradicts_its_model_is_refused_in_a_line(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = exported(tmp_path / "exported") / "task.json"
    spec = json.loads(path.read_text())
    spec["tasks"][0] |= changes
    path.write_text(json.dumps(spec))
    with pytest.raises(CheckpointError, match=message):
        import_huggingface(tmp_path / "exported", tmp_path / "again")


def test_a_task_of_a_model_that_predicts_tokens_alone_is_refused(tmp_path: Path) -> None:
    model = model_for("t5", TASKS["sst2"])
    model.task = dataclasses.replace(model.task, format="pair")
    export_huggingface(model, tmp_path / "exported")
    with pytest.raises(CheckpointError, match="of format pair, which no encoder-decoder reads"):
        read_huggingface(tmp_path / "exported")
