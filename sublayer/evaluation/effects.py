"""Effects of a test's units on a metric, by the infinitesimal jackknife."""

from dataclasses import dataclass

import numpy as np

from sublayer.evaluation.items import FromItems, ItemTable
from sublayer.statistics.covariance import (
    FEWEST_DOCUMENTS,
    FEWEST_UNITS,
    Effects,
    shares_of,
    units_of,
)

_STEP = 1e-3


@dataclass(frozen=True)
class TestUnits:
    """Effects of the units of a test on a metric."""

    effects: Effects
    step: float
    """Resolution of the metric: the largest change by one count, in its unit."""
    n_items: int
    n_documents: int | None
    """None if items belong to no documents."""
    shares: Effects | None = None
    """``[U]``, the share of the test in each unit; None: units are of equal size."""
    digest: str = ""
    """Checksum of the items."""


def item_effects(table: ItemTable, from_items: FromItems) -> TestUnits | None:
    """Compute the effect of each unit of a test on a metric, centred on 0.

    The derivative of the metric with respect to the weight of a unit (infinitesimal jackknife;
    Jaeckel 1972): the variance of the metric over tests of ``N`` units is ``sum(effects**2) * N /
    (N - 1)``. Units are documents, at least three, items that belong to none, or stretches of
    neighbouring items of one or two documents. None with fewer than ``FEWEST_UNITS`` items or
    stretches, or if the metric has no value.
    """
    documents = None if table.documents is None else np.asarray(table.documents)
    labels, n_units = units_of(table.n_items, documents)
    n_documents = None if documents is None else len(np.unique(documents))
    if n_units < FEWEST_UNITS and (n_documents or 0) < FEWEST_DOCUMENTS:
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
            # The derivative with respect to this sum, by a central difference.
            total = np.atleast_1d(np.array(sums[name], dtype=np.float64))
            centre = float(total[k])
            width = abs(centre) * _STEP
            if is_count:
                width = max(1.0, round(width))
            elif not width:
                continue
            low, high = centre - width, centre + width
            low = centre if low < 0.0 <= centre else low
            values = []
            for moved in (low, high):
                total[k] = moved
                shaped = total.reshape(np.shape(sums[name])).copy()
                values.append(from_items.value({**sums, name: shaped}))
            slope = (values[1] - values[0]) / (high - low)
            if is_count:
                step = max(step, abs(slope))
            if slope:
                effects += slope * np.bincount(labels, numbers[:, k], n_units)
    centred: Effects = effects - effects.mean()
    if not np.isfinite(centred).all():
        return None
    shares = shares_of(labels, documents)
    return TestUnits(centred, step, table.n_items, n_documents, shares, table.digest)
