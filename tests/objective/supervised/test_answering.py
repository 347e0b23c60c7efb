"""Answers to rows of users are those to the same examples of a split, in any form of the rows."""

from dataclasses import replace

import pytest
import torch

from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.evaluation.split_work import ALONE
from sublayer.objective.supervised.answering import Answerer
from sublayer.objective.supervised.predicting import predict_rows
from sublayer.objective.supervised.scores import answer_split
from tests.answerers import draw_examples, model_of, rule_of, split_of

CASES = [
    ("sst2", "pair"),
    ("rte", "pair"),
    ("stsb", "pair"),
    ("copa", "pair"),
    ("rte", "traversal"),
    ("rte", "text"),
]


def model_and_examples(task, format_, **settings):
    examples = draw_examples(task, 9)
    split = split_of({task: examples}, format_, trains=False)
    return model_of(split, **settings), examples, split


@pytest.mark.parametrize(("task", "format_"), CASES)
def test_answers_are_those_of_a_split(task, format_):
    model, examples, split = model_and_examples(task, format_)
    expected, _ = answer_split(model, split, rule_of(split), model.task, ALONE)
    bare = [replace(each, label=None, is_labelled=False) for each in examples]
    found = Answerer(model, batch=2).answer(bare)
    # Numbers to the rounding of float64: a product of another number of rows may round otherwise.
    assert [each.label for each in found] == pytest.approx(
        [each.label for each in expected], abs=1e-12
    )
    for ours, theirs in zip(found, expected, strict=True):
        assert [p for p in ours.probabilities if p] == pytest.approx(
            [p for p in theirs.probabilities if p], abs=1e-12
        )


def test_answers_are_written_in_the_precision_of_the_weights_under_autocast_too():
    examples = draw_examples("rte", 9)
    split = split_of({"rte": examples}, "text", trains=False)
    model = model_of(split, dtype=torch.float32, d_model=32)
    expected, _ = answer_split(model, split, rule_of(split), model.task, ALONE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, _ = answer_split(model, split, rule_of(split), model.task, ALONE)
    assert found == expected


@pytest.mark.parametrize("task", ["sst2", "copa"])
def test_texts_tuples_and_mappings_are_the_same_rows(task):
    model, examples, _ = model_and_examples(task, "pair")
    mappings = [
        {**each.fields, **({"choices": list(each.choices)} if each.choices else {})}
        for each in examples
    ]
    tuples = [(*each.fields.values(), *each.choices) for each in examples]
    lists = [
        [*each.fields.values(), *([each.choices] if each.choices else [])] for each in examples
    ]
    found = predict_rows(model, mappings)
    assert predict_rows(model, tuples) == found
    assert predict_rows(model, lists) == found
    if task == "sst2":
        assert predict_rows(model, [text for (text,) in tuples]) == found
    assert len(found) == len(examples)


def test_ranked_answers_have_probabilities_and_written_ones_their_text():
    model, _, _ = model_and_examples("rte", "text")
    row = {"sentence1": "w1 w2", "sentence2": "w3"}
    [written] = predict_rows(model, [row])
    assert written.written is not None
    assert written.probabilities == {}
    model.task = replace(model.task, answer="rank")
    [ranked] = predict_rows(model, [row])
    assert ranked.written is None
    assert sum(ranked.probabilities.values()) == pytest.approx(1)
    assert ranked.label in ("entailment", "not_entailment")


def test_a_row_with_an_empty_text_is_not_answered_and_no_other_is_moved():
    model, _, _ = model_and_examples("rte", "pair")
    rows = [("w1", "w2"), ("w1", " "), ("w3", "w4")]
    first, empty, last = predict_rows(model, rows)
    assert not empty.is_answered
    assert (empty.label, empty.probabilities) == (None, {})
    assert [first, last] == predict_rows(model, [rows[0], rows[2]])


@pytest.mark.parametrize(
    ("task", "row", "message"),
    [
        ("rte", "w1", "row 0 has 1 of"),
        ("rte", ("w1", "w2", "w3"), "row 0 has 3 of"),
        ("rte", {"sentence1": "w1"}, "row 0 has no column 'sentence2'"),
        ("copa", ("w1", "w2", "w3"), "two choices or more"),
        ("rte", ("w1", 5), "row 0: sentence2 is int, not a text"),
    ],
)
def test_rows_that_lack_fields_are_refused(task, row, message):
    model, _, _ = model_and_examples(task, "pair")
    with pytest.raises(DataError, match=message):
        predict_rows(model, [row])
    with pytest.raises(DataError, match="rows is one text"):
        predict_rows(model, "w1 w2")


def test_of_several_tasks_one_is_named():
    examples = {name: draw_examples(name, 3) for name in ("sst2", "rte")}
    model = model_of(split_of(examples, "text", trains=False))
    with pytest.raises(ConfigError, match="several tasks, sst2, rte"):
        predict_rows(model, ["w1"])
    assert len(predict_rows(model, ["w1"], task="sst2")) == 1
    with pytest.raises(ConfigError, match="does not answer cola, but sst2, rte"):
        predict_rows(model, ["w1"], task="cola")


def test_a_diagnostic_set_is_answered_by_the_model_of_its_task():
    model, _, _ = model_and_examples("mnli", "pair")
    assert Answerer(model, "ax").task.name == "ax"
    with pytest.raises(ConfigError, match="does not answer axb"):
        Answerer(model, "axb")


def test_a_model_without_a_task_or_a_tokenizer_is_refused():
    model, _, _ = model_and_examples("rte", "pair")
    with pytest.raises(ConfigError, match=r"not loaded by sublayer\.load"):
        model.predict([("w1", "w2")])
    tokenizer, model.tokenizer = model.tokenizer, None
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        Answerer(model)
    model.tokenizer, model.task = tokenizer, None
    with pytest.raises(ConfigError, match="answers no task: fine-tune it first"):
        Answerer(model)
