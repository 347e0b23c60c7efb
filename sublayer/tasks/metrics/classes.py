"""Metrics of classes and choices: accuracy, F1, macro-averaged F1, Matthews correlation."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from sublayer.tasks.example import Example
from sublayer.tasks.metrics.metric import Numbers, Predictions, Sums, quotient
from sublayer.tasks.metrics.units import Units

_NONE = -1
"""The class of a prediction that is none of the labels."""
Labels = NDArray[np.int64]


def accuracy(examples: Sequence[Example], predictions: Predictions, units: Units) -> Sums:
    """Count the right answers; one that is none of the labels is wrong."""
    gold, predicted = _labels(examples, predictions)
    is_right = (gold == predicted).astype(np.float64)
    columns = units.sums(np.stack([is_right, np.ones_like(is_right)], axis=1))
    return Sums(columns, lambda sums: quotient(sums[:, 0], sums[:, 1]))


def accuracy_of(beginning: str) -> Callable[[Sequence[Example], Predictions, Units], Sums]:
    """Return the accuracy of the examples whose ids begin so, such as those of a school of RACE."""

    def contributions(examples: Sequence[Example], predictions: Predictions, units: Units) -> Sums:
        gold, predicted = _labels(examples, predictions)
        is_of = np.array([example.id.startswith(beginning) for example in examples], dtype=float)
        columns = units.sums(np.stack([is_of * (gold == predicted), is_of], axis=1))
        reason = "" if is_of.any() else f"no example is of {beginning}"
        return Sums(columns, lambda sums: quotient(sums[:, 0], sums[:, 1]), reason)

    return contributions


def f1(examples: Sequence[Example], predictions: Predictions, units: Units) -> Sums:
    """Compute the F1 of class 1; 0 where nothing is it, nor said to be.

    What is neither 0 nor 1 counts as the opposite of what is right. Source: T5's
    ``f1_score_with_invalid``.
    """
    gold, predicted = _labels(examples, predictions)
    is_valid = (predicted == 0) | (predicted == 1)
    is_gold = gold == 1
    is_predicted = np.where(is_valid, predicted == 1, ~is_gold)
    counts = _counts(is_gold, is_predicted)
    return Sums(units.sums(counts), lambda sums: _f1(sums[:, 0], sums[:, 1], sums[:, 2]))


def macro_f1(examples: Sequence[Example], predictions: Predictions, units: Units) -> Sums:
    """Compute the mean of each class's F1 against the others.

    The classes are those that are right or predicted somewhere in the sample, as in scikit-learn;
    a prediction that is none of them is missed by the right class, and is false for no other.
    """
    gold, predicted = _labels(examples, predictions)
    classes = np.unique(np.concatenate([gold, predicted]))
    classes = classes[classes != _NONE]
    counts = [_counts(gold == each, predicted == each) for each in classes]
    return Sums(units.sums(np.concatenate(counts, axis=1)), _mean_f1)


def matthews(examples: Sequence[Example], predictions: Predictions, units: Units) -> Sums:
    """Compute Matthews correlation, of two or more classes, from -1 to 1.

    0 where all examples are of one class, or all predictions. What is none of the labels is a
    class of its own, as in T5. Source: Gorodkin 2004, R_K.
    """
    gold, predicted = _labels(examples, predictions)
    classes = np.unique(np.concatenate([gold, predicted]))
    of_gold = gold[:, None] == classes
    of_predicted = predicted[:, None] == classes
    ones = np.ones((len(gold), 1))
    right = (gold == predicted)[:, None]
    columns = np.concatenate([ones, right, of_gold, of_predicted], axis=1)  # [N, 2 + 2 classes]
    reason = ""
    if len(np.unique(predicted)) == 1:
        reason = "all predictions are the same"
    elif len(np.unique(gold)) == 1:
        reason = "all labels are the same"
    return Sums(units.sums(columns), _correlation, reason)


def _labels(examples: Sequence[Example], predictions: Predictions) -> tuple[Labels, Labels]:
    gold = np.array([example.label for example in examples], dtype=np.int64)
    predicted = [
        _NONE if each is None or each.label is None else each.label for each in predictions
    ]
    return gold, np.array(predicted, dtype=np.int64)


def _counts(is_gold: NDArray[np.bool_], is_predicted: NDArray[np.bool_]) -> Numbers:
    """Return true positives, false positives and false negatives, [N, 3]."""
    parts = [is_gold & is_predicted, ~is_gold & is_predicted, is_gold & ~is_predicted]
    return np.stack(parts, axis=1).astype(np.float64)


def _f1(true: Numbers, false: Numbers, missed: Numbers) -> Numbers:
    return quotient(2 * true, 2 * true + false + missed)


def _mean_f1(sums: Numbers) -> Numbers:
    true, false, missed = np.moveaxis(sums.reshape(len(sums), -1, 3), 2, 0)  # each [R, classes]
    n_classes = np.count_nonzero(true + false + missed, axis=1).astype(np.float64)
    return quotient(_f1(true, false, missed).sum(1), n_classes)


def _correlation(sums: Numbers) -> Numbers:
    n, n_right = sums[:, 0], sums[:, 1]
    gold, predicted = np.split(sums[:, 2:], 2, axis=1)  # each [R, classes]
    covariance = n * n_right - (gold * predicted).sum(1)
    gold_variance = n**2 - (gold**2).sum(1)
    predicted_variance = n**2 - (predicted**2).sum(1)
    return quotient(covariance, np.sqrt(gold_variance) * np.sqrt(predicted_variance))
