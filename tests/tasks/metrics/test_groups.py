"""Metrics of examples that belong together."""

import pytest

from sublayer.tasks.metrics.score import score
from tests.tasks.metrics.examples import labelled, said


def test_multircs_metrics_by_hand():
    # Three questions: all right; one of two; all right.
    examples = labelled([0, 1, 1, 1, 0], ["q1", "q1", "q2", "q2", "q3"])
    predictions = said([0, 1, 1, 0, 0])
    result = score(examples, predictions, ["f1a", "group_exact_match"])
    assert result.metrics["f1a"].value == pytest.approx(4 / 5)
    assert result.metrics["group_exact_match"].value == pytest.approx(2 / 3)
    assert result.value == pytest.approx((4 / 5 + 2 / 3) / 2)


def test_known_values_of_t5():
    examples = labelled([0, 1, 1, 0], ["a", "a", "b", "b"])
    result = score(examples, said([0, 1, 1, 1]), ["group_exact_match"])
    assert result.value == 0.5
    assert score(examples, said([0, 1, 1, None]), ["group_exact_match"]).value == 0.5


def test_groups_may_be_scattered_and_single():
    examples = labelled([0, 1, 1, 0, 1], ["a", "b", "a", "", ""])
    assert score(examples, said([0, 1, 0, 0, 0]), ["group_exact_match"]).value == 0.5


def test_parity_asks_for_the_same_not_for_the_right():
    examples = labelled([1, 1, 0, 0, 1, 1, 0], ["1", "1", "2", "2", "3", "3", ""])
    predictions = said([0, 0, 0, 1, 1, 1, 0])
    result = score(examples, predictions, ["accuracy", "gender_parity"])
    assert result.metrics["gender_parity"].value == pytest.approx(2 / 3)
    assert result.metrics["accuracy"].value == pytest.approx(4 / 7)


def test_two_that_are_no_label_are_not_the_same():
    examples = labelled([1, 1], ["1", "1"])
    assert score(examples, said([None, None]), ["gender_parity"]).value == 0


def test_parity_without_pairs_has_no_value():
    result = score(labelled([1, 1]), said([1, 1]), ["gender_parity"])
    assert result.metrics["gender_parity"].reason == "no two examples are a pair"
