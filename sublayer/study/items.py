"""The items of a study's runs, and the derivative of a metric with respect to units of its test.

Each run keeps its items in a file of its own (`sublayer/runs/items.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sublayer.evaluation.items import FromItems, Items, ItemTable, Sums
from sublayer.runs.items import read_items
from sublayer.statistics.items import (
    FEWEST_DOCUMENTS,
    FEWEST_UNITS,
    Effects,
    shares_of,
    units_of,
)

if TYPE_CHECKING:
    from sublayer.study.arm_runs import Runs

_STEP = 1e-3


@dataclass(frozen=True)
class RunItems:
    """The items of one run."""

    arm: str
    seed: int
    items: Items
    added: Mapping[str, int] = field(default_factory=dict)
    """By table, how many neighbours were added together at a time, in files of earlier versions."""


def collect_items(runs: "Runs") -> list[RunItems]:
    """Read the items of each run's test; runs that failed or kept none are left out.

    Raises CheckpointError where items are damaged.
    """
    kept = []
    for (arm, _), stage_runs in runs.items():
        for seed, outcome in stage_runs.seeded():
            items = None if outcome.test is None else read_items(outcome.path)
            if items is not None:
                kept.append(RunItems(arm, seed, items))
    return kept


@dataclass(frozen=True)
class TestUnits:
    """The effects of a test's units on a metric."""

    effects: Effects
    step: float
    """How far one count more or less moves it at most, in its unit: its resolution."""
    n_items: int
    n_documents: int | None
    """None where items belong to no documents."""
    shares: Effects | None = None
    """``[U]``, the share of the test in each unit; None: units are of equal size."""


def item_effects(table: ItemTable, from_items: FromItems) -> TestUnits | None:
    """Compute how much the metric of a table moves with each unit of its test, around 0.

    That is the derivative of the metric with respect to the weight of a unit (the infinitesimal
    jackknife, Jaeckel 1972): the variance of the metric over tests of as many units is
    ``sum(effects**2) * N / (N - 1)``. Units are documents, three at least, items where they belong
    to none, and stretches of neighbouring items of one or two documents. None where there are
    fewer than ``FEWEST_UNITS`` items or stretches, or the metric has no value.
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
            slope = _slope(from_items, sums, name, k, is_count=is_count)
            if is_count:
                step = max(step, abs(slope))
            if slope:
                effects += slope * np.bincount(labels, numbers[:, k], n_units)
    centred: Effects = effects - effects.mean()
    if not np.isfinite(centred).all():
        return None
    shares = shares_of(labels, documents)
    return TestUnits(centred, step, table.n_items, n_documents, shares)


def _slope(from_items: FromItems, sums: Sums, name: str, k: int, *, is_count: bool) -> float:
    """Compute the derivative of a metric with respect to one sum, from values to either side."""
    total = np.atleast_1d(np.asarray(sums[name], dtype=np.float64))
    step = abs(float(total[k])) * _STEP
    if is_count:
        step = max(1.0, round(step))
    elif not step:
        return 0.0
    values = []
    positions = []
    for sign in (-1.0, 1.0):
        moved = total.copy()
        moved[k] = total[k] + sign * step
        if moved[k] < 0.0 <= total[k]:
            moved[k] = total[k]
        shaped = moved.reshape(np.shape(sums[name]))
        values.append(from_items.value({**sums, name: shaped}))
        positions.append(float(moved[k]))
    return (values[1] - values[0]) / (positions[1] - positions[0])
