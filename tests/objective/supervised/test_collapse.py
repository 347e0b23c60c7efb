"""Runs that learned nothing are found by what they answer or lose, and healthy ones are not."""

import math

import numpy as np
import pytest

from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.objective.supervised.collapse import answer_loss, find_collapse, frequency_loss
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS
from tests.answerers import draw_examples, split_of

N = 40


def right(examples):
    """What a model answers that makes no mistake."""
    return [Prediction(label=example.label) for example in examples]


def with_labels(name, labels):
    examples = draw_examples(name, len(labels))
    return [
        Example(each.id, each.fields, label, each.choices)
        for each, label in zip(examples, labels, strict=True)
    ]


@pytest.mark.parametrize("name", ["mnli", "stsb", "copa"])
def test_a_model_that_is_right_has_not_collapsed(name):
    examples = draw_examples(name, N)
    assert find_collapse(TASKS[name], examples, right(examples), examples, 0.1) == ""
    assert find_collapse(TASKS[name], examples, right(examples), examples, None) == ""


@pytest.mark.parametrize(
    ("name", "label", "said"),
    [
        ("mnli", 2, "contradiction"),
        ("stsb", 2.5, "2.50"),
        ("copa", 0, "choice 1"),
        ("sst2", None, "none of the labels"),
        ("stsb", None, "no number"),
    ],
)
def test_one_answer_for_all_is_a_collapse(name, label, said):
    examples = draw_examples(name, N)
    same = [Prediction(label=label)] * N
    assert said in find_collapse(TASKS[name], examples, same, examples, 0.01)
    # One example answered otherwise, and it is none.
    other = 4.0 if name == "stsb" else 1 - (label or 0)
    assert (
        find_collapse(TASKS[name], examples, [*same[1:], Prediction(label=other)], examples, 0.01)
        == ""
    )


def test_numbers_that_hardly_differ_are_one():
    examples = draw_examples("stsb", N)
    rng = np.random.default_rng(0)
    near = [Prediction(label=2.4 + 1e-3 * rng.random()) for _ in range(N)]
    assert "2.40" in find_collapse(TASKS["stsb"], examples, near, examples, 0.01)
    apart = [Prediction(label=2.4 + 0.1 * rng.random()) for _ in range(N)]
    assert find_collapse(TASKS["stsb"], examples, apart, examples, 0.01) == ""


def test_one_answer_to_all_questions_is_a_collapse():
    task = TASKS["squad"]
    examples = [
        Example(str(n), {"context": "a b", "question": "c"}, answers=(Answer(text, n % 2),))
        for n, text in enumerate("aba")
    ]
    assert "'b'" in find_collapse(task, examples, [Prediction(text="b")] * 3, examples, 0.0)
    endless = [Prediction(text="the " * 99)] * 3
    assert f"'{'the ' * 10}...'" in find_collapse(task, examples, endless, examples, 0.0)
    texts = [Prediction(text=text) for text in ("a", "b", "b")]
    assert find_collapse(task, examples, texts, examples, 99.0) == ""


@pytest.mark.parametrize("name", ["sst2", "stsb"])
def test_one_answer_where_all_are_alike_is_none(name):
    label = 1 if name == "sst2" else 3.0
    examples = with_labels(name, [label] * 5)
    train = draw_examples(name, N)
    assert find_collapse(TASKS[name], examples, right(examples), train, 0.01) == ""
    assert find_collapse(TASKS[name], examples[:1], right(examples[:1]), train, 0.01) == ""


def test_the_loss_of_the_labels_frequencies_is_worked_out_by_hand():
    # Of four labels three are one.
    quarter = with_labels("sst2", [1, 1, 0, 1])
    assert frequency_loss(TASKS["sst2"], quarter) == pytest.approx(
        -(3 * math.log(3 / 4) + math.log(1 / 4)) / 4
    )
    # Half the variance of 0, 5, 5 and 0 on a scale from -1 to 1.
    assert frequency_loss(TASKS["stsb"], with_labels("stsb", [0.0, 5.0, 5.0, 0.0])) == 0.5
    choices = [
        Example("0", {}, 0, ("a", "b")),
        Example("1", {}, 0, ("a", "b", "c", "d")),
    ]
    assert frequency_loss(TASKS["copa"], choices) == pytest.approx(math.log(8) / 2)
    assert frequency_loss(TASKS["squad"], choices) is None
    assert frequency_loss(TASKS["sst2"], with_labels("sst2", [None])) is None
    assert frequency_loss(TASKS["sst2"], with_labels("sst2", [1, 1])) is None


def test_a_loss_no_lower_than_that_of_the_frequencies_is_a_collapse():
    examples = with_labels("sst2", [0, 1] * 10)
    answers = right(examples)
    assert "0.700" in find_collapse(TASKS["sst2"], examples, answers, examples, 0.7)
    assert find_collapse(TASKS["sst2"], examples, answers, examples, 0.69) == ""
    # A loss that is no number is below nothing.
    assert "nan" in find_collapse(TASKS["sst2"], examples, answers, examples, math.nan)


TEXT = SupervisedObjective(format="text", target_length=8)


def test_the_loss_of_a_written_label_is_that_of_the_label():
    examples = with_labels("sst2", [1, 1, 0, 1])
    split = split_of({"sst2": examples}, "text")
    # A word and the end, of which the end is certain.
    by_token = frequency_loss(TASKS["sst2"], examples) / 2
    assert answer_loss(split, TEXT, by_token) == frequency_loss(TASKS["sst2"], examples)
    assert answer_loss(split, TEXT, None) is None

    pairs = split_of({"sst2": draw_examples("sst2", 4)}, "pair")
    assert answer_loss(pairs, SupervisedObjective(), 0.4) == 0.4


@pytest.mark.parametrize("names", [("sst2", "rte"), ("stsb",), ("wnli",)])
def test_several_tasks_and_other_texts_have_no_loss_of_an_answer(names):
    split = split_of({name: draw_examples(name, 4) for name in names}, "text")
    assert answer_loss(split, TEXT, 0.4) is None
