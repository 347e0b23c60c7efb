"""Metrics of classes, against scikit-learn and T5's known values."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from sublayer.tasks.metrics.score import score
from sublayer.tasks.prediction import Prediction
from tests.tasks.metrics.examples import labelled, said


def _value(name, gold, predicted):
    return score(labelled(gold), said(predicted), [name]).value


def _cases(n_classes):
    generator = np.random.default_rng(n_classes)
    for n in (2, 3, 7, 40, 500):
        for p_right in (0.0, 0.3, 0.9):
            gold = generator.integers(n_classes, size=n)
            other = generator.integers(n_classes, size=n)
            predicted = np.where(generator.random(n) < p_right, gold, other)
            yield gold.tolist(), predicted.tolist()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_they_equal_scikit_learns(n_classes):
    for gold, predicted in _cases(n_classes):
        assert _value("accuracy", gold, predicted) == pytest.approx(accuracy_score(gold, predicted))
        macro = f1_score(gold, predicted, average="macro", zero_division=0)
        assert _value("macro_f1", gold, predicted) == pytest.approx(macro)
        if len({*gold}) > 1 and len({*predicted}) > 1:
            expected = matthews_corrcoef(gold, predicted)
            assert _value("matthews", gold, predicted) == pytest.approx(expected)
        if n_classes == 2:
            expected = f1_score(gold, predicted, zero_division=0)
            assert _value("f1", gold, predicted) == pytest.approx(expected)


def test_the_f1_of_a_label_that_there_is_not_counts_as_the_opposite():
    assert _value("f1", [0, 1, 1, 0], [0, 1, 2, 2]) == 0.5
    assert _value("f1", [0, 1, 1, 0], [0, 1, None, None]) == 0.5


def test_macro_f1_is_that_of_t5():
    assert _value("macro_f1", [0, 1, 1, 2], [0, 0, 2, 2]) == pytest.approx(4 / 9)
    # Class 1 is never predicted; what is no label is missed, and is no class of its own.
    assert _value("macro_f1", [0, 1, 1, 2], [0, None, None, 2]) == pytest.approx(2 / 3)


def test_what_is_no_label_is_wrong_and_counted():
    result = score(labelled([0, 1, 1]), [*said([0, None]), None], ["accuracy"])
    assert result.value == pytest.approx(1 / 3)
    assert result.n_outside == 2


def test_matthews_of_a_constant_prediction_is_0_and_says_why():
    result = score(labelled([0, 1, 1]), said([1, 1, 1]), ["matthews"])
    assert result.value == 0
    assert result.metrics["matthews"].reason == "all predictions are the same"
    assert result.standard_error is None
    result = score(labelled([1, 1, 1]), said([0, 1, 1]), ["matthews"])
    assert result.metrics["matthews"].reason == "all labels are the same"


def test_matthews_takes_what_is_no_label_for_a_class_of_its_own():
    gold, predicted = [0, 1, 1, 0, 1], [0, 1, None, 0, 0]
    expected = matthews_corrcoef(gold, [0, 1, -1, 0, 0])
    assert _value("matthews", gold, predicted) == pytest.approx(expected)


def test_right_choices_are_counted_as_classes_are():
    predictions = [Prediction(label=2, probabilities=(0.1, 0.1, 0.8)), Prediction(label=0)]
    assert score(labelled([2, 1]), predictions, ["accuracy"]).value == 0.5
