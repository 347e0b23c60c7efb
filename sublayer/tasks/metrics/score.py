"""A task's score: the mean of its metrics, each with the error of so many examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sublayer.errors import DataError
from sublayer.tasks.example import Example
from sublayer.tasks.metrics.metric import Contributions, Numbers, Predictions
from sublayer.tasks.metrics.table import METRICS, parts_of_score
from sublayer.tasks.metrics.units import Units, find_units


@dataclass(frozen=True)
class MetricValue:
    """A metric of a set of examples."""

    value: float
    """From 0 to 1; a correlation from -1."""
    standard_error: float | None
    """Of drawing other examples; None where there is one alone, or no value."""
    reason: str = ""
    """Why the metric has no value and is 0; empty where it has one."""


@dataclass(frozen=True)
class Score:
    """The mean of a task's metrics, over a set of examples."""

    value: float
    standard_error: float | None
    metrics: Mapping[str, MetricValue]
    """By their names."""
    n_examples: int
    n_outside: int
    """Predictions that are none of the labels, or no number."""
    influences: Mapping[str, Numbers] = field(default_factory=dict, compare=False, repr=False)
    """How far each example, or group of them, moves a metric, as pseudo-values less their mean, by
    the metric's name; by "" the score. Zeros where a metric has no value."""


def score(examples: Sequence[Example], predictions: Predictions, metrics: Sequence[str]) -> Score:
    """Compute metrics of predictions, and the mean of those that are part of a score.

    The standard error of accuracy is that of a proportion, sqrt(p (1 - p) / n); of others, of
    means, and wherever examples have groups, it is the jackknife's over examples or groups. Raises
    DataError where there are no examples, or some that have no label.
    """
    check_labelled(examples)
    units = find_units(examples)
    contributions = {
        name: METRICS[name].contributions(examples, predictions, units) for name in metrics
    }
    values = {}
    influences = np.zeros((len(metrics), units.n))
    for row, (name, each) in enumerate(contributions.items()):
        if not each.reason and units.n > 1:
            influences[row] = each.influences()
        values[name] = MetricValue(
            each.value, _standard_error(name, each, influences[row], units), each.reason
        )
    of_score = parts_of_score(metrics)
    parts = [values[name] for name in of_score]
    errors = [each.standard_error for each in parts]
    mean = influences[[name in of_score for name in metrics]].mean(0)
    error = None if None in errors else _jackknife(mean)
    error = errors[0] if len(parts) == 1 else error
    return Score(
        value=float(np.mean([each.value for each in parts])),
        standard_error=error,
        metrics=values,
        n_examples=len(examples),
        n_outside=_n_outside(examples, predictions),
        influences={"": mean, **dict(zip(contributions, influences, strict=True))},
    )


def check_labelled(examples: Sequence[Example]) -> None:
    """Raise DataError where there are no examples, or some that have no label."""
    if not examples:
        raise DataError("there are no examples to score")
    n_unlabelled = sum(not example.is_labelled for example in examples)
    if n_unlabelled:
        raise DataError(
            f"{n_unlabelled:,} of {len(examples):,} examples have no label, as in a test split: "
            "score a split that has them"
        )


def _standard_error(
    name: str, contributions: Contributions, influences: Numbers, units: Units
) -> float | None:
    if contributions.reason or units.n == 1:
        return None
    if name == "accuracy" and units.are_examples:
        p_right = contributions.value
        return float(np.sqrt(p_right * (1 - p_right) / units.n))
    return _jackknife(influences)


def _jackknife(influences: Numbers) -> float:
    n = len(influences)
    return float(np.sqrt(((influences - influences.mean()) ** 2).sum() / (n * (n - 1))))


def _n_outside(examples: Sequence[Example], predictions: Predictions) -> int:
    pairs = zip(examples, predictions, strict=True)
    return sum(
        (example.label is not None or example.choices != ())
        and (prediction is None or prediction.label is None)
        for example, prediction in pairs
    )
