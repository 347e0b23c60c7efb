"""How much each stretch of a test moves a metric, from what its items scored."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sublayer.evaluation.items import FromItems, ItemTable, Sums
from sublayer.statistics.items import Effects

FEWEST_DOCUMENTS = 20
"""From which on documents are the units; of fewer, neighbouring items are added up instead."""
FEWEST_UNITS = 10
"""Of a test, of which it is said what another text would give."""
_STEP = 1e-3


@dataclass(frozen=True)
class TestUnits:
    """How a metric moves with its test."""

    effects: Effects
    step: float
    """How far one count more or less moves it at most, in its unit: its resolution."""


def item_effects(table: ItemTable, from_items: FromItems) -> TestUnits | None:
    """Compute how much the metric of a table moves with each unit of its test, around 0.

    That is the derivative of the metric with respect to the number of times that a unit counts
    (the infinitesimal jackknife, Jaeckel 1972): the variance of the metric over tests of as many
    units is ``sum(effects**2) * N / (N - 1)``. Units are documents, items where they belong to
    none, and stretches of neighbouring items where there are few documents: neighbours are alike.
    None where there are fewer than ``FEWEST_UNITS``, or the metric is of nothing.
    """
    labels, n_units = units_of(table)
    if n_units < FEWEST_UNITS:
        return None
    sums = table.sums()
    value = from_items.value(sums)
    if not np.isfinite(value):
        return None
    effects = np.zeros(n_units)
    step = 0.0
    for name, column in table.columns.items():
        numbers = column.reshape(len(column), -1).astype(np.float64)  # [N, K]
        is_count = np.issubdtype(column.dtype, np.integer)
        for k in range(numbers.shape[1]):
            slope = _slope(from_items, sums, name, k, is_count=is_count)
            if is_count:
                step = max(step, abs(slope))
            if slope:
                effects += slope * np.bincount(labels, numbers[:, k], n_units)
    centred: Effects = effects - effects.mean()
    return TestUnits(centred, step) if np.isfinite(centred).all() else None


def units_of(table: ItemTable) -> tuple[NDArray[np.int64], int]:
    """Return the unit of each item, ``[N]``, and how many units there are."""
    n_items = table.n_items
    if table.documents is None:
        return np.arange(n_items), n_items
    documents, labels = np.unique(table.documents, return_inverse=True)
    if len(documents) >= FEWEST_DOCUMENTS:
        return labels.astype(np.int64), len(documents)
    length = max(1, round(n_items ** (1 / 3)))
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], labels[order], side="left")
    stretches = (np.arange(n_items) - starts) // length  # of each item within its document
    _, numbers = np.unique(np.stack([labels[order], stretches]), axis=1, return_inverse=True)
    units = np.empty(n_items, dtype=np.int64)
    units[order] = numbers.reshape(-1)
    return units, int(numbers.max()) + 1


def _slope(from_items: FromItems, sums: Sums, name: str, k: int, *, is_count: bool) -> float:
    """Compute the derivative of a metric with respect to one sum, from values to either side."""
    whole = np.atleast_1d(np.asarray(sums[name], dtype=np.float64))
    step = abs(float(whole[k])) * _STEP
    if is_count:
        step = max(1.0, round(step))
    elif not step:
        return 0.0
    values = []
    places = []
    for sign in (-1.0, 1.0):
        moved = whole.copy()
        moved[k] = whole[k] + sign * step
        if moved[k] < 0.0 <= whole[k]:
            moved[k] = whole[k]
        shaped = moved.reshape(np.shape(sums[name]))
        values.append(from_items.value({**sums, name: shaped}))
        places.append(float(moved[k]))
    return (values[1] - values[0]) / (places[1] - places[0])
