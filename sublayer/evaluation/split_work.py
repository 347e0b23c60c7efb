"""Evaluation split among processes: each computes its part, and all receive every result, in order.

Sums are taken in the order of the parts, whoever computed them, so that scores do not depend on
the number of processes where the parts do not.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float64]
"""A part's result: numbers, ``[K]``, as many as the part gives; ids are whole ones."""


@runtime_checkable
class Processes(Protocol):
    """The processes that share an evaluation."""

    def own(self, n: int) -> range:
        """Return which of ``n`` parts are this process's."""

    def gather(self, rows: Sequence[Row], n: int) -> list[Row]:
        """Return the rows of all ``n`` parts, in order; ``rows`` are those of this process.

        Every process must call it, and all receive the same.
        """


class _OneProcess:
    def own(self, n: int) -> range:
        return range(n)

    def gather(self, rows: Sequence[Row], n: int) -> list[Row]:
        return list(rows)


ALONE: Processes = _OneProcess()


def compute_each(work: Callable[[int], Sequence[float]], n: int, processes: Processes) -> list[Row]:
    """Compute ``work(0)`` to ``work(n - 1)``, split among processes; return all rows in order.

    Numbers are kept as float64, in which integers are exact up to 2**53.
    """
    rows = [np.array(work(index), dtype=np.float64) for index in processes.own(n)]
    return processes.gather(rows, n)


def add_up(rows: Sequence[Row], column: int = 0) -> float:
    """Add a column of the rows, one after another, in their order: the same sum to the last bit."""
    total = 0.0
    for row in rows:
        total += float(row[column])
    return total


def numbered_ids(rows: Sequence[Row]) -> dict[int, NDArray[np.int64]]:
    """Read rows of texts as ids, by the number of each text: number, how many ids, and these."""
    found = {}
    for row in rows:
        place = 0
        while place < len(row):
            number, n_ids = int(row[place]), int(row[place + 1])
            found[number] = row[place + 2 : place + 2 + n_ids].astype(np.int64)
            place += 2 + n_ids
    return found
