"""Tests of several differences together: how small the smallest p of them is by chance."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

N_DRAWS = 1 << 15
_SEED = 20190606
_TOLD_FROM = 2e-3
"""Draws tell little of a smaller p: Bonferroni's bound stands for it, up to what this one has."""


class Family:
    """Comparisons that are judged together, each with the p of its own t test.

    ``correlation`` is that of their estimates, ``[C, C]``; ``freedoms`` are of their tests. Of the
    smallest of their p values the distribution is drawn, once for equal ones (Dunnett 1955, with
    estimates of any correlation and tests of several degrees of freedom; the draws of all spreads
    move together).
    """

    def __init__(self, correlation: Numbers, freedoms: Sequence[float]) -> None:
        self.n = len(freedoms)
        self._smallest: Numbers | None = None
        if self.n > 1:
            self._smallest = _draw(correlation, freedoms)

    def adjusted(self, p: float) -> float:
        """Return the probability that the smallest p is at most ``p`` without any difference."""
        if self._smallest is None:
            return min(p, 1.0)
        bound = min(1.0, self.n * p)
        share = _share(self._smallest, max(p, _TOLD_FROM))
        return min(bound, share)

    def single(self, level: float) -> float:
        """Return the p of one comparison below which ``adjusted`` is at most ``level``."""
        if self._smallest is None:
            return level
        low, high = level / self.n, level
        for _ in range(60):
            middle = (low + high) / 2
            if self.adjusted(middle) <= level:
                low = middle
            else:
                high = middle
        return low


def _share(draws: Numbers, p: float) -> float:
    return float(np.searchsorted(draws, p, side="right")) / len(draws)


def _draw(correlation: Numbers, freedoms: Sequence[float]) -> Numbers:
    """Draw the smallest of the p values of tests without any difference, in order."""
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    root /= np.sqrt((root**2).sum(1, keepdims=True))
    n = len(freedoms)
    normal = _points(n + 1)[:, 1:] @ root.T
    smallest = np.ones(len(normal))
    for index, freedom in enumerate(freedoms):
        t = np.abs(normal[:, index]) / _spreads(n, round(freedom, 1))
        np.minimum(smallest, _p_values(t, freedom), out=smallest)
    smallest.sort()
    return smallest


@lru_cache(maxsize=8)
def _points(n: int) -> Numbers:
    """Return normal numbers, ``[draws, n]``, evenly spread (Sobol, scrambled)."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    uniform = qmc.Sobol(n, seed=_SEED).random(N_DRAWS)
    normal: Numbers = ndtri(uniform)
    return normal


@lru_cache(maxsize=64)
def _spreads(n: int, freedom: float) -> Numbers:
    """Return estimated over true standard errors, those of all tests moving together."""
    from scipy.special import chdtri, ndtr

    nodes = np.linspace(-5.5, 5.5, 400)
    spreads = np.sqrt(chdtri(freedom, 1.0 - ndtr(nodes)) / freedom)
    drawn: Numbers = np.interp(_points(n + 1)[:, 0], nodes, spreads)
    return drawn


def _p_values(t: Numbers, freedom: float) -> Numbers:
    """Return the two-sided p of t values, read off a table."""
    from scipy.special import stdtr

    nodes = np.concatenate([np.linspace(0.0, 6.0, 300), np.geomspace(6.1, 1e4, 200)])
    logs = np.log(np.maximum(2.0 * stdtr(freedom, -nodes), 1e-300))
    found: Numbers = np.exp(np.interp(t, nodes, logs))
    return found
