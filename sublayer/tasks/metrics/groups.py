"""Metrics of examples that belong together: all of a group right, and gender parity."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from sublayer.tasks.example import Example
from sublayer.tasks.metrics.metric import Predictions, Sums, quotient
from sublayer.tasks.metrics.units import Units


def group_exact_match(examples: Sequence[Example], predictions: Predictions, units: Units) -> Sums:
    """Compute the share of groups whose predictions are all right: MultiRC's EM, of questions.

    An example of no group is one by itself.
    """
    columns = np.tile([1.0, 1.0], (units.n, 1))
    pairs = zip(examples, predictions, units.of_examples, strict=True)
    for example, prediction, unit in pairs:
        if prediction is None or prediction.label != example.label:
            columns[unit, 0] = 0
    return Sums(columns, lambda sums: quotient(sums[:, 0], sums[:, 1]))


def gender_parity(examples: Sequence[Example], predictions: Predictions, units: Units) -> Sums:
    """Compute the share of pairs whose two predictions are the same, right or wrong.

    What is none of the labels is the same as nothing. An example of no pair is left out. Source:
    Rudinger et al. 2018, as SuperGLUE has it.
    """
    labels = defaultdict(list)
    for prediction, unit in zip(predictions, units.of_examples, strict=True):
        labels[unit].append(None if prediction is None else prediction.label)
    columns = np.zeros((units.n, 2))
    for unit, of_unit in labels.items():
        if len(of_unit) > 1:
            columns[unit] = len({*of_unit}) == 1 and None not in of_unit, 1
    reason = "" if columns.any() else "no two examples are a pair"
    return Sums(columns, lambda sums: quotient(sums[:, 0], sums[:, 1]), reason)
