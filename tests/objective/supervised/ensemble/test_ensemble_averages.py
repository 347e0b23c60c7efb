"""Averages of probabilities and numbers, by hand."""

import pytest

from sublayer.objective.supervised.ensemble.averages import average_predictions, mean
from sublayer.tasks.example import Example
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS

ROW = Example("0", {"sentence": "w1"})


def test_probabilities_of_labels_are_averaged_and_the_highest_is_the_answer():
    given = [(0.9, 0.1), (0.3, 0.7), (0.35, 0.65)]
    members = [[Prediction(label=int(p[1] > p[0]), probabilities=p)] for p in given]
    [found] = average_predictions(TASKS["sst2"], [ROW], members)
    # Two of three would say 1: (0.9 + 0.3 + 0.35) / 3 says 0.
    assert found.label == 0
    assert found.probabilities == pytest.approx((1.55 / 3, 1.45 / 3), abs=1e-15)


def test_choices_that_an_example_does_not_have_are_no_part_of_the_average():
    example = Example("0", {"premise": "w1", "question": "w2"}, choices=("w3", "w4"))
    first = Prediction(label=0, probabilities=(0.6, 0.4, 0.0, 0.0))
    second = Prediction(label=1, probabilities=(0.1, 0.9))
    [found] = average_predictions(TASKS["copa"], [example], [[first], [second]])
    assert found.probabilities == pytest.approx((0.35, 0.65), abs=1e-15)
    assert found.label == 1


def test_numbers_are_averaged():
    members = [[Prediction(label=value)] for value in (1.0, 4.5, 2.0)]
    [found] = average_predictions(TASKS["stsb"], [ROW], members)
    assert found == Prediction(label=2.5)


def test_the_text_is_that_of_a_member_that_gives_the_answer():
    first = Prediction(label=1, probabilities=(0.4, 0.6), text="not_entailment")
    second = Prediction(label=0, probabilities=(0.9, 0.1), text="entailment")
    [found] = average_predictions(TASKS["rte"], [ROW], [[first], [second]])
    assert (found.label, found.text) == (0, "entailment")
    bare = Prediction(label=0, probabilities=(0.9, 0.1))
    [found] = average_predictions(TASKS["rte"], [ROW], [[first], [bare]])
    assert (found.label, found.text) == (0, "")


@pytest.mark.parametrize("n", [1, 2, 3, 7, 49])
def test_the_average_of_equal_numbers_is_that_number_to_the_bit(n):
    for value in (0.1, 1 / 3, 1e-17, -2.7182818284590451):
        assert mean([value] * n) == value
