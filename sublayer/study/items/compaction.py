"""Compact the items of many runs: round them to a step, and add neighbours together."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FINE, COARSE = 2.0**-10, 2.0**-5
"""Steps that nats are rounded to; a window has hundreds of nats, beside which both are nothing."""


@dataclass(frozen=True)
class Compaction:
    """How items are compacted: the step of what is no integer, and how many are added together.

    Neighbours are added within their document, or, with ``across_documents``, wherever they stand.
    """

    step: float = FINE
    """In the unit of the column: nats, mostly."""
    added: int = 1
    across_documents: bool = False


@dataclass(frozen=True)
class Stack:
    """One table of several runs: columns ``[R, N]`` or ``[R, N, K]``, and documents ``[N]``.

    ``R`` runs scored the same ``N`` items, by ``K`` numbers each.
    """

    columns: Mapping[str, Array]
    documents: Array | None
    """The index of each item's document; None where items belong to none."""

    @property
    def n_items(self) -> int:
        """Return the number of items of each run."""
        return min(int(column.shape[1]) for column in self.columns.values())

    @property
    def longest(self) -> int:
        """Return the most items of a document; all where they belong to none."""
        if self.documents is None or not len(self.documents):
            return self.n_items
        counts = np.bincount(self.documents)
        return int(counts.max())


def add_neighbours(stack: Stack, how: Compaction) -> Stack:
    """Add ``how.added`` items together at a time, in order within each document.

    Nothing is left out: the last sum of a document may be of fewer. A sum of items of several
    documents is listed under the first of them.
    """
    if how.added == 1 or not stack.n_items:
        return stack
    order, ranks = _ranks(stack, how)
    is_first = ranks % how.added == 0
    firsts = np.flatnonzero(is_first)  # of each sum, in the order of documents
    columns = {}
    for name, column in stack.columns.items():
        wide = _wide(column)
        ordered = wide[:, order]
        columns[name] = np.add.reduceat(ordered, firsts, axis=1)
    if stack.documents is None:
        return Stack(columns, None)
    ordered_documents = stack.documents[order]
    return Stack(columns, ordered_documents[firsts])


def round_column(column: Array, step: float) -> Array:
    """Round each item of a column, ``[R, N]`` or ``[R, N, K]``, to a count of steps.

    The error of neighbours together is a step at most, as of one. The running sum is rounded, not
    the items, so that the sum of all is right to half a step.
    """
    exact = column.astype(np.float64)
    sums = np.cumsum(exact, axis=1)
    running = np.rint(sums / step)
    counts: Array = np.diff(running, axis=1, prepend=0.0).astype(np.int64)
    return counts


def _ranks(stack: Stack, how: Compaction) -> tuple[Array, Array]:
    """Return the items' order by document and their ranks: within each document, or over all."""
    indices = np.arange(stack.n_items)
    if stack.documents is None:
        return indices, indices
    order = np.argsort(stack.documents, kind="stable")
    if how.across_documents:
        return order, indices
    documents = stack.documents[order]
    document_starts = np.searchsorted(documents, documents, side="left")
    return order, indices - document_starts


def _wide(column: Array) -> Array:
    """Return a column in a type that holds its sums: columns are stored as narrow as they can."""
    is_whole = np.issubdtype(column.dtype, np.integer)
    return column.astype(np.int64 if is_whole else np.float64)
