"""Variance of contrasts over test items, in addition to the variance over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sublayer.statistics.covariance import Spreads, VariancePosterior, known_spread
from sublayer.statistics.scores import Contrast, RunScores

Effects = NDArray[np.float64]
"""``[U]`` in the metric's unit: its derivative with respect to the weight of each test unit."""

FEWEST_DOCUMENTS = 3
"""Fewest documents that are the test units, so that a verdict generalizes to other documents."""
FEWEST_UNITS = 10
"""Fewest units of a test of fewer documents for an estimate of the variance over its units."""


def units_of(n_items: int, documents: NDArray[np.int64] | None) -> tuple[NDArray[np.int64], int]:
    """Return the unit of each item, ``[N]``, and the number of units.

    Units are documents if there are three or more, and single items if these belong to none; one
    or two documents are cut into ten or more stretches of up to ``N ** (2/3)`` neighbours.
    """
    if documents is None:
        return np.arange(n_items), n_items
    names, labels = np.unique(documents, return_inverse=True)
    labels = labels.reshape(-1).astype(np.int64)
    if len(names) >= FEWEST_DOCUMENTS:
        return labels, len(names)
    length = max(1, min(round(n_items ** (2 / 3)), n_items // FEWEST_UNITS))
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], labels[order], side="left")
    stretches = (np.arange(n_items) - starts) // length  # of each item within its document
    _, numbers = np.unique(np.stack([labels[order], stretches]), axis=1, return_inverse=True)
    units = np.empty(n_items, dtype=np.int64)
    units[order] = numbers.reshape(-1)
    return units, int(units.max()) + 1


def shares_of(
    units: NDArray[np.int64],
    documents: NDArray[np.int64] | None,
    weights: Effects | NDArray[np.int64] | None = None,
) -> Effects | None:
    """Return the share of a test in each unit, ``[U]``; None if they are equal, or nearly.

    None also if units are not documents. ``units`` are the items' units, ``[N]``, by
    :func:`units_of` of ``documents``. Items have ``weights``, by default equal ones.
    """
    if documents is None or len(np.unique(documents)) < FEWEST_DOCUMENTS:
        return None
    sizes: Effects = np.bincount(units, weights).astype(np.float64)
    return None if np.allclose(sizes, sizes[0], rtol=1e-9) else sizes / sizes.sum()


@dataclass(frozen=True)
class ItemSpread:
    """The variance of a contrast's mean over test units shared by all seeds.

    Seeds and units are crossed random effects. The variance of a mean over ``S`` seeds and ``U``
    units is ``seeds / S + units / U + interaction / (S U)``; the last part is in the variance
    between seeds already.
    """

    whole: VariancePosterior
    """Variance of the mean over seeds: ``units / U + interaction / (S U)``."""
    both: float
    """The interaction's part, which further seeds reduce: ``interaction / (S U)``."""

    @property
    def alone(self) -> float:
        """The part that further seeds do not reduce: ``units / U``."""
        return max(self.whole.variance - self.both, 0.0)


class ItemSpreads(Spreads):
    """Estimates the variance of contrasts over units, most of them with ``baseline``.

    As over seeds, all arms inform the covariance of their effects on units.
    """

    _factors: Effects | float = 1.0

    def __init__(self, scores: RunScores, baseline: str) -> None:
        super().__init__(scores, baseline)
        if scores.shares is not None:
            self._factors, self._freedom = unequal_units(scores.shares)

    def spread(self, contrast: Contrast) -> ItemSpread | None:
        """Return the spread of a contrast; None if a run's items are unknown.

        With a single seed all variance over units counts: ``both`` is 0.
        """
        scores = self._scores
        if scores.effects is None:
            return None
        shared = scores.common(contrast.weights)
        stacks = []
        for arm, weight in contrast.weights.items():
            mask = shared if shared.any() else ~np.isnan(scores.row(arm))
            stacks.append(weight * scores.effects[scores.arms.index(arm)][mask])
        if any(not len(stack) or np.isnan(stack).any() for stack in stacks):
            return None
        n_units = scores.effects.shape[2]
        table = self._table(shared)
        if table is not None:
            whole = table.spread(contrast)
            if (scores.n_documents or FEWEST_DOCUMENTS) < FEWEST_DOCUMENTS:
                inflation = 1.0 + _neighbour_correlation(sum(stacks).mean(0))
                whole = replace(whole, scales=whole.scales * inflation)
            return ItemSpread(whole, _both([sum(stacks)]))
        means = np.sum([stack.mean(0) for stack in stacks], axis=0)
        squares = float((((means - means.mean()) * self._factors) ** 2).sum())
        variance = squares * n_units / (n_units - 1)
        freedom = n_units - 1.0 if self._freedom is None else self._freedom
        return ItemSpread(known_spread(0.0, variance, freedom, n_units), _both(stacks))

    def _values(self, shared: NDArray[np.bool_]) -> Effects | None:
        if self._scores.effects is None or not shared.any():
            return None
        means = self._scores.effects[:, shared].mean(1)  # [A, U]
        values: Effects = means * self._factors * means.shape[1]
        return values


def unequal_units(shares: Effects) -> tuple[Effects, float]:
    """Return factors that scale effects of units, ``[U]``, and their degrees of freedom.

    Large units dominate the mean, so their effects around it are too small: they are scaled so that
    the variance over units is unbiased for units that differ only in their ``shares`` of the test
    (Bell and McCaffrey 2002). Its degrees of freedom are the effective number of units (Kish 1965)
    less one, at least 1. Equal units have factors 1 and ``U - 1`` degrees of freedom.
    """
    squares = float(shares @ shares)
    factors = np.sqrt((1.0 - 1.0 / len(shares)) / (1.0 - 2.0 * shares + squares))
    return factors, max(1.0, 1.0 / squares - 1.0)


def _neighbour_correlation(effects: Effects) -> float:
    """Return the correlation of neighbouring stretches of a document, not below 0 (Bartlett)."""
    squares = float(effects @ effects)
    return max(0.0, float(effects[1:] @ effects[:-1]) / squares) if squares else 0.0


def _both(stacks: Sequence[Effects]) -> float:
    """Return the interaction's part of the variance of the mean of effects, ``[S, U]`` per arm."""
    both = 0.0
    for stack in stacks:
        n_seeds, n_units = stack.shape
        if n_seeds > 1:
            squares = float(((stack - stack.mean(0)) ** 2).sum()) * n_units / (n_units - 1)
            both += squares / (n_seeds - 1) / n_seeds
    return both
