"""Simultaneous tests of contrasts: p and half-width from the posterior of their variance."""

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from sublayer.statistics.contrasts import Parts
from sublayer.statistics.covariance import ItemSpread, VariancePosterior

Numbers = NDArray[np.float64]

CHOICE_FREEDOM = 4.0
"""Degrees of freedom of the variance due to hyperparameter selection: few trials estimate it."""
NODES = np.linspace(-7.5, 7.5, 61)
NODE_WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()
"""Nodes and weights of a standard normal variable: the trapezoidal rule."""
_MOST_NODES = 120
_FINE = 2048
"""Steps of log variance into which nodes are merged first."""
_SIZES = np.geomspace(0.25, 64.0, 12)
"""Sizes of a difference at which p is evaluated first, in standard errors."""
_LOG_DRAWS = 13
_DRAWN_FROM = 2e-3
"""Tail probability below which draws are few: Bonferroni's bound, scaled, serves there."""


@dataclass(frozen=True)
class Uncertainty:
    """Variance of a contrast: over seeds, test items and hyperparameter selection, independent.

    The three posteriors are convolved, as Behrens and Fisher do with two.
    """

    seeds: VariancePosterior
    items: ItemSpread | None = None
    choice: float = 0.0
    """The variance due to hyperparameter selection."""

    @property
    def variance(self) -> float:
        """The variance of the mean, all sources together."""
        return self.seeds.variance + self.apart

    @property
    def apart(self) -> float:
        """The variance that further seeds do not reduce."""
        return self.choice + (self.items.alone if self.items else 0.0)

    @property
    def error(self) -> float:
        """The standard error."""
        return math.sqrt(self.variance)

    def freedom_with(self, times: float) -> float:
        """Return the degrees of freedom with ``times`` as many seeds, for power only.

        Source: Satterthwaite 1946.
        """
        seeds = self.seeds.variance / times
        doubt = seeds**2 / max(self.seeds.freedom * times, 1.0) + self.choice**2 / CHOICE_FREEDOM
        if self.items is not None:
            doubt += self.items.alone**2 / self.items.whole.freedom
        total = seeds + self.apart
        return total**2 / doubt if doubt else self.seeds.freedom

    @property
    def parts(self) -> Parts:
        """The standard errors by source."""
        tuning = math.sqrt(self.choice)
        if self.items is None:
            return Parts(math.sqrt(self.seeds.variance), None, tuning)
        of_seeds = max(self.seeds.variance - self.items.both, 0.0)
        return Parts(math.sqrt(of_seeds), math.sqrt(self.items.alone), tuning)

    def calibrated(self, level: float, largest: "Largest") -> "Uncertainty":
        """Return the uncertainty with intervals at ``level`` that include its spreads' caution."""
        items = self.items
        if items is not None:
            items = replace(items, whole=_calibrated(items.whole, level, largest))
        return replace(self, seeds=_calibrated(self.seeds, level, largest), items=items)

    def p(self, difference: float, largest: "Largest") -> float:
        """Return the two-sided p of a difference, corrected for the comparisons of ``largest``."""
        if not difference:
            return 1.0
        return float(self._tails(np.array([abs(difference)]), largest)[0])

    def half_width(self, level: float, largest: "Largest") -> float:
        """Return the difference with a corrected p of ``level``, to a millionth."""
        if not self.error:
            return 0.0
        sizes = self.error * _SIZES
        tails = self._tails(sizes, largest)
        while tails[-1] > level:
            sizes = sizes * (_SIZES[-1] / _SIZES[0])
            tails = self._tails(sizes, largest)
        if tails[0] <= level:
            return float(sizes[0])
        # Secants of log p over log size; p is evaluated on either side of each.
        for _ in range(60):
            index = max(1, int(np.searchsorted(-tails, -level)))
            (low, high), (p_low, p_high) = (
                sizes[index - 1 : index + 1],
                tails[index - 1 : index + 1],
            )
            width = math.log(high / low)
            if width < 1e-6:
                break
            share = math.log(p_low / level) / math.log(p_low / max(p_high, 1e-300))
            offset = max(4e-7, min(width**2 / 2.0, width / 4.0))
            middle = min(max(share * width, 1.5 * offset), width - 1.5 * offset)
            tried = low * np.exp([middle - offset, middle + offset])
            sizes = np.array([low, *tried, high])
            tails = np.array([p_low, *self._tails(tried, largest), p_high])
        return float(high)

    def _tails(self, sizes: Numbers, largest: "Largest") -> Numbers:
        """Return the corrected p of differences of the given sizes, ``[N]``."""
        is_single = len(self.seeds.scales) == 1 and not self.choice and self.items is None
        if largest.n == 1 and is_single:
            from scipy.special import stdtr

            with np.errstate(divide="ignore"):
                t = -sizes[:, None] / np.sqrt(self.seeds.scales)
            tails = 2.0 * stdtr(self.seeds.freedoms, t) @ self.seeds.weights
        else:
            variances, weights = self._nodes
            with np.errstate(divide="ignore"):
                tails = largest.tail(sizes[:, None] / np.sqrt(variances)) @ weights
        p_values: Numbers = np.minimum(tails, 1.0)
        return p_values

    @cached_property
    def _nodes(self) -> tuple[Numbers, Numbers]:
        """Variances ``[N]`` and their weights."""
        variances, weights = _nodes_of(self.seeds)
        if self.items is not None:
            whole, items_weights = _nodes_of(self.items.whole)
            alone = np.maximum(whole - self.items.both, 0.0)
            variances, weights = _sums(variances, weights, alone, items_weights)
        if self.choice:
            choice = self.choice * inverse_chi2(CHOICE_FREEDOM)
            variances, weights = _sums(variances, weights, choice, NODE_WEIGHTS)
        return variances, weights


def _calibrated(spread: VariancePosterior, level: float, largest: "Largest") -> VariancePosterior:
    """Return a spread scaled so that p is ``level`` where it was ``level / caution``."""
    if spread.caution == 1.0 or not spread.scales.any():
        return spread
    alone = Uncertainty(spread)
    aimed = alone.half_width(min(level / spread.caution, 0.5), largest)
    times = (aimed / alone.half_width(level, largest)) ** 2
    return replace(spread, scales=times * spread.scales, caution=1.0)


def _nodes_of(spread: VariancePosterior) -> tuple[Numbers, Numbers]:
    """Return nodes of the variance of a mean, ``[N]``, and their weights."""
    factors = np.stack([inverse_chi2(freedom) for freedom in spread.freedoms])  # [M, Z]
    variances = (spread.scales[:, None] * factors).reshape(-1)
    return _thinned(variances, (spread.weights[:, None] * NODE_WEIGHTS).reshape(-1))


def _sums(
    variances: Numbers, weights: Numbers, added: Numbers, added_weights: Numbers
) -> tuple[Numbers, Numbers]:
    sums = (variances[:, None] + added).reshape(-1)
    return _thinned(sums, (weights[:, None] * added_weights).reshape(-1))


def _thinned(variances: Numbers, weights: Numbers) -> tuple[Numbers, Numbers]:
    """Merge neighbouring nodes into at most ``_MOST_NODES``, close ones first in both tails."""
    from scipy.special import ndtri

    if len(variances) <= _MOST_NODES:
        return variances, weights
    middle = float(np.median(variances[variances > 0.0])) if variances.any() else 1.0
    logs = np.log(np.clip(variances / middle, 1e-12, 1e12))
    fine = (logs - logs.min()) * ((_FINE - 1) / max(float(np.ptp(logs)), 1e-12))
    variances, weights = _merged(variances, weights, fine.astype(np.int64))
    middles = np.cumsum(weights) - weights / 2.0
    places = ndtri(np.clip(middles, 1e-12, 1.0 - 1e-12))
    bins = np.digitize(places, np.linspace(-6.0, 6.0, _MOST_NODES - 1))
    return _merged(variances, weights, bins)


def _merged(
    variances: Numbers, weights: Numbers, bins: NDArray[np.int64]
) -> tuple[Numbers, Numbers]:
    """Return the mean variance and the weight of each non-empty bin, in order."""
    sums: Numbers = np.bincount(bins, weights).astype(np.float64)
    means: Numbers = np.bincount(bins, weights * variances).astype(np.float64)
    is_used = sums > 0.0
    return means[is_used] / sums[is_used], sums[is_used]


@lru_cache(maxsize=256)
def inverse_chi2(freedom: float) -> Numbers:
    """Return the ratio of true to estimated variance, of ``freedom`` degrees, at the nodes."""
    from scipy.special import chdtri, ndtr

    factors: Numbers = freedom / np.maximum(chdtri(freedom, ndtr(-NODES)), 1e-300)
    return factors


class Largest:
    """Distribution of the largest of ``n`` standard normal contrasts, in absolute value.

    ``correlation`` is of ``C`` of them, ``[C, C]``; the others, up to ``n``, are uncorrelated
    (Dunnett 1955, for any correlation). One contrast is normal; for more, the distribution is that
    of evenly spread draws, and Bonferroni's bound in the far tail. None: unknown, as where each
    contrast has a variance of its own from few runs; Bonferroni's bound throughout.
    """

    def __init__(self, correlation: Numbers | None, n: int) -> None:
        self.n = n
        self._is_bound = correlation is None
        if n > 1 and correlation is not None:
            whole = np.eye(n)
            n_judged = len(correlation)
            whole[:n_judged, :n_judged] = correlation
            self._grid, self._tails = _table(whole)

    def tail(self, x: Numbers) -> Numbers:
        """Return the probability that the largest is at least ``x``."""
        from scipy.special import ndtr

        if self.n == 1 or self._is_bound:
            # Not cut off at 1: it is averaged over variances.
            sum_of_each: Numbers = 2.0 * self.n * ndtr(-x)
            return sum_of_each
        bound = np.minimum(1.0, 2.0 * self.n * ndtr(-x))
        drawn = np.interp(x, self._grid, self._tails)
        edge = self._grid[-1]
        at_edge = float(np.minimum(1.0, 2.0 * self.n * ndtr(-edge)))
        scaled = bound * min(1.0, float(self._tails[-1]) / at_edge)
        p_values: Numbers = np.where(x <= edge, np.minimum(drawn, bound), scaled)
        return p_values


def _table(correlation: Numbers) -> tuple[Numbers, Numbers]:
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    root /= np.sqrt((root**2).sum(1, keepdims=True))
    largest = np.abs(_points(len(values)) @ root.T).max(1)
    largest.sort()
    edge = largest[round(len(largest) * (1.0 - _DRAWN_FROM))]
    grid = np.linspace(0.0, edge, 400)
    tails = 1.0 - np.searchsorted(largest, grid, side="left") / len(largest)
    return grid, tails


@lru_cache(maxsize=8)
def _points(n: int) -> Numbers:
    """Return normal numbers, ``[draws, n]``, evenly spread: a lattice of generalised golden ratios
    (Roberts 2018)."""
    from scipy.special import ndtri

    ratio = 2.0
    for _ in range(64):
        ratio = (1.0 + ratio) ** (1.0 / (n + 1))
    steps = ratio ** -np.arange(1.0, n + 1.0)
    uniform = (0.5 + np.arange(1, 2**_LOG_DRAWS + 1)[:, None] * steps) % 1.0
    normal: Numbers = ndtri(np.clip(uniform, 1e-12, 1.0 - 1e-12))
    return normal


def correlation_of(covariance: Numbers) -> Numbers:
    """Return the correlation matrix of a covariance; 0 where a variance is 0."""
    scale = np.sqrt(np.maximum(np.diag(covariance), np.finfo(float).tiny))
    correlation: Numbers = np.clip(covariance / np.outer(scale, scale), -1.0, 1.0)
    np.fill_diagonal(correlation, 1.0)
    return correlation
