"""Per-item numbers of a test; every metric is a function of their sums."""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sublayer.config.objective import EvaluatedMetric

Numbers = NDArray[np.integer] | NDArray[np.floating]
Sums = Mapping[str, NDArray[np.float64] | np.float64]
"""The columns of a table added up over items: a number each, or ``[K]``."""

_CHUNK = 1 << 20
"""Integers that are digested at a time."""


@dataclass(frozen=True)
class ItemTable:
    """Numbers of items, a row for each, in the order of the split."""

    unit: str
    """The description of an item, for people."""
    digest: str
    """SHA-256 of the scored items, one by one: tests with one digest scored the same items."""
    columns: Mapping[str, Numbers]
    """``[N]`` or ``[N, K]`` by name, of which only sums over items mean something."""
    documents: NDArray[np.integer] | None
    """The documents that the items belong to, ``[N]``, by their places in the split; None where
    items belong to none."""

    @property
    def n_items(self) -> int:
        """Number of items."""
        return min(len(column) for column in self.columns.values())

    def sums(self, times: Numbers | None = None) -> Sums:
        """Sum the columns, items weighted by ``times``, ``[N]``, if given."""
        columns = self.columns.items()
        if times is None:
            return {name: column.sum(0, dtype=np.float64) for name, column in columns}
        weights = times.astype(np.float64)
        return {name: weights @ column.astype(np.float64) for name, column in columns}


@dataclass(frozen=True)
class Items:
    """Items of a test, in a table per measure."""

    split: str
    """The name of the split."""
    sha256: str
    """The checksum of its text."""
    tables: Mapping[str, ItemTable]


@dataclass(frozen=True)
class FromItems:
    """A metric as a function of a test's items: the table, and the function of its sums."""

    table: str
    """The name of a table in ``Items.tables``."""
    value: Callable[[Sums], float]
    """The metric of the table's sums, over whichever items they were taken."""

    def of(self, items: Items) -> float | None:
        """Compute the metric over all items; None where the test lacks its table."""
        table = items.tables.get(self.table)
        return None if table is None else self.value(table.sums())


def ratio(total: str, count: str) -> Callable[[Sums], float]:
    """Return the metric ``sum(total) / sum(count)``; NaN for a count of 0."""

    def value(sums: Sums) -> float:
        n = float(sums[count])
        return float(sums[total]) / n if n else math.nan

    return value


def quotient_of(measure: EvaluatedMetric) -> FromItems:
    """Return a quotient of sums as a metric of items; NaN for a count of 0."""
    value = ratio(*measure.columns)
    return FromItems(measure.table, lambda sums: value(sums) / measure.unit)


class Digest:
    """SHA-256 of a sequence of items, independent of their integer type.

    ``names`` are hashed first: items scored in two ways have two digests.
    """

    def __init__(self, *names: str) -> None:
        self._sha256 = hashlib.sha256()
        for name in names:
            self._sha256.update(f"{name}\n".encode())

    def add(self, ids: Iterable[int] | NDArray[np.integer]) -> None:
        """Add the integers of one or several items, and their number."""
        values = ids if isinstance(ids, np.ndarray) else np.array(list(ids), dtype=np.int64)
        self._sha256.update(f"{values.size}\n".encode())
        flat = values.reshape(-1)
        # In chunks, to limit the memory of the conversion.
        for start in range(0, flat.size, _CHUNK):
            self._sha256.update(flat[start : start + _CHUNK].astype("<i8").tobytes())

    def hexdigest(self) -> str:
        """Return the digest so far, in hexadecimal."""
        return self._sha256.hexdigest()
