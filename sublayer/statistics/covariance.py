"""Variance of contrasts over seeds: arms share seeds, and few seeds do not tell how they covary.

The run of arm ``a`` with seed ``s`` scores ``mean[a] + e[a, s]``; columns of ``e`` are independent
and normal, with a covariance matrix over arms. Two arms need no more than the paired t test. For
more, structures of that matrix are averaged by their posterior probability (Bayesian averaging,
Hoeting et al. 1999): seeds that all arms share little or much of, one arm that spreads more or less
than the others, and a free matrix (inverse Wishart) around several centres. Given a structure, the
variance of each contrast is a scaled inverse chi-squared, so that its test is Student's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sublayer.statistics.scores import Contrast, Scores, weights_of

Numbers = NDArray[np.float64]

_SMALLEST = 1e-5
"""Posterior probability below which a structure is left out."""
_SCALES = np.exp(np.linspace(math.log(1e-3), math.log(1e2), 24))
"""Scales of the free matrix, relative to that which fits best, over which it is averaged."""


@dataclass(frozen=True)
class Spread:
    """Posterior of the variance of a contrast's mean: a mixture of scaled inverse chi-squareds."""

    mean: float
    """The contrast, in the metric's unit."""
    n: int
    """Seeds, or units of the test."""
    weights: Numbers
    """``[M]``, of the components; they add up to 1."""
    scales: Numbers
    """``[M]``: the variance of the mean, as each component estimates it."""
    freedoms: Numbers
    """``[M]``: degrees of freedom of each estimate."""

    @property
    def variance(self) -> float:
        """The variance of the mean: the geometric mean over components."""
        if not self.scales.any():
            return 0.0
        return float(np.exp(self.weights @ np.log(np.maximum(self.scales, np.finfo(float).tiny))))

    @property
    def freedom(self) -> float:
        """Degrees of freedom of a single component that is as uncertain, by log variance."""
        logs = np.log(np.maximum(self.scales, np.finfo(float).tiny))
        spread = float(self.weights @ (logs - self.weights @ logs) ** 2)
        return 1.0 / (float(self.weights @ (1.0 / self.freedoms)) + spread / 2.0)


def known_spread(mean: float, variance: float, freedom: float, n: int) -> Spread:
    """Return the spread of a mean whose variance has a single estimate."""
    return Spread(mean, n, np.ones(1), np.array([variance]), np.array([freedom]))


class SeedSpreads:
    """Estimates the variance over seeds of contrasts, most of them with ``baseline``.

    ``floor`` is the metric's resolution.
    """

    def __init__(self, scores: Scores, baseline: str, floor: float = 0.0) -> None:
        self._scores = scores
        self._baseline = baseline
        self._floor = floor
        self._tables: dict[tuple[int, ...], Covariance] = {}

    def spread(self, contrast: Contrast) -> Spread | None:
        """Return the spread of a contrast; None with fewer than two seeds of its arms.

        Seeds that all of its arms have are blocks; other arms that have them too inform the
        covariance. Arms without two common seeds are compared as independent samples (Welch).
        """
        shared = self._scores.common(contrast.weights)
        if shared.sum() < 2:
            return self._welch(contrast)
        return self._table(shared).spread(contrast)

    def mean_covariance(self, contrasts: Sequence[Contrast]) -> Numbers:
        """Return the posterior mean covariance of the means of contrasts, ``[C, C]``.

        Contrasts of different seeds are taken as those of the seeds of the first, scaled.
        """
        covariance = np.zeros((len(contrasts), len(contrasts)))
        for row, one in enumerate(contrasts):
            for column, other in enumerate(contrasts[: row + 1]):
                both = {**one.weights, **other.weights}
                shared = self._scores.common(both)
                value = 0.0
                if shared.sum() > 1:
                    value = self._table(shared).between(one, other)
                covariance[row, column] = covariance[column, row] = value
        return covariance

    def unshared_variance(self, arm: str, others: Sequence[str]) -> float:
        """Estimate the variance of an arm's runs, less the part of a seed that arms share.

        Half the variance of its difference from each other arm, averaged; that of the arm itself
        where it has no seed in common. 0 with fewer than two runs.
        """
        halves = []
        own = self._scores.row(arm)
        for other in others:
            if other == arm:
                continue
            difference = own - self._scores.row(other)
            difference = difference[~np.isnan(difference)]
            if len(difference) > 1:
                halves.append(float(difference.var(ddof=1)) / 2.0)
        if halves:
            return float(np.mean(halves))
        values = self._scores.scores_of(arm)
        return float(values.var(ddof=1)) if len(values) > 1 else 0.0

    def _table(self, shared: NDArray[np.bool_]) -> "Covariance":
        key = tuple(int(index) for index in np.flatnonzero(shared))
        if key not in self._tables:
            values = self._scores.values[:, shared]
            is_whole = ~np.isnan(values).any(1)
            rows = [int(row) for row in np.flatnonzero(is_whole)]
            rows.sort(key=lambda row: self._scores.arms[row] != self._baseline)
            arms = [self._scores.arms[row] for row in rows]
            self._tables[key] = Covariance(arms, values[rows], self._floor)
        return self._tables[key]

    def _welch(self, contrast: Contrast) -> Spread | None:
        mean = variance = doubt = 0.0
        smallest = len(self._scores.seeds)
        for arm, weight in contrast.weights.items():
            values = self._scores.scores_of(arm)
            if len(values) < 2:
                return None
            smallest = min(smallest, len(values))
            mean += weight * math.fsum(values) / len(values)
            part = weight**2 * max(float(values.var(ddof=1)), self._floor**2 / 2) / len(values)
            variance += part
            doubt += part**2 / (len(values) - 1)
        freedom = variance**2 / doubt if doubt else float(smallest - 1)
        return known_spread(mean, variance, freedom, smallest)


class Covariance:
    """Posterior of the covariance of arms, from ``values`` ``[A, S]`` without gaps; baseline first.

    Columns are independent draws: seeds, or units of a test. No arm spreads less than ``floor``.
    With ``freedom``, columns are residuals that estimate with so many degrees of freedom.
    """

    def __init__(
        self, arms: Sequence[str], values: Numbers, floor: float, freedom: float | None = None
    ) -> None:
        self.arms = list(arms)
        self._values = values
        n_arms, n_seeds = values.shape
        self._freedom = n_seeds - 1.0 if freedom is None else freedom
        residuals = values - values.mean(1, keepdims=True) if freedom is None else values
        self._residuals = residuals
        squares = residuals @ residuals.T * (self._freedom / (n_seeds - 1))
        least = self._freedom * max(floor**2 / 2, np.finfo(float).tiny * 1e30)
        squares[np.diag_indices(n_arms)] = np.maximum(np.diag(squares), least)
        self._squares = squares
        self._floor = floor

    def spread(self, contrast: Contrast) -> Spread:
        """Return the spread of a contrast's mean over columns; of two arms the paired t test's."""
        (row,) = weights_of([contrast], self.arms)
        values = row @ self._values
        mean, n = math.fsum(values) / len(values), len(values)
        if len(self.arms) == 2:
            residuals = row @ self._residuals
            variance = max(float(residuals @ residuals) / (n - 1), self._floor**2)
            return known_spread(mean, variance / n, self._freedom, n)
        weights, covariances, freedoms = self._posterior
        scales = np.einsum("a,kab,b->k", row, covariances, row) / n
        return Spread(mean, n, weights, scales, freedoms)

    def between(self, one: Contrast, other: Contrast) -> float:
        """Return the posterior mean covariance of the means of two contrasts."""
        first, second = weights_of([one, other], self.arms)
        n = self._values.shape[1]
        if len(self.arms) == 2:
            return float(first @ self._squares @ second / self._freedom / n)
        weights, covariances, _ = self._posterior
        return float(weights @ np.einsum("a,kab,b->k", first, covariances, second) / n)

    @cached_property
    def _posterior(self) -> tuple[Numbers, Numbers, Numbers]:
        """Weights ``[M]``, covariances ``[M, A, A]`` and degrees of freedom of components."""
        n_arms, n = len(self.arms), self._freedom
        fixed, free = _structures(n_arms)
        # Of structures up to a scale, which has Jeffreys' prior.
        traces = np.einsum("kab,ab->k", fixed.inverses, self._squares)
        half = n_arms * n / 2
        logs = fixed.logs - n / 2 * fixed.determinants + math.lgamma(half)
        logs = logs - half * np.log(traces)
        covariances = [fixed.matrices * (traces / (n_arms * n))[:, None, None]]
        freedoms = [np.full(len(logs), float(n_arms * n))]
        likelihoods = [logs]
        # Of the free matrix around each of its centres, over a grid of scales.
        nu = n_arms + 1.0
        fits = np.einsum("kab,ab->k", free.inverses, self._squares) / (n_arms * n)
        scales = fits[:, None] * _SCALES * (nu - n_arms + 1)  # [F, G]
        prior = scales[:, :, None, None] * free.matrices[:, None]  # [F, G, A, A]
        posterior = prior + self._squares
        constant = _log_gamma(n_arms, (nu + n) / 2) - _log_gamma(n_arms, nu / 2)
        constant += math.log(math.log(_SCALES[1] / _SCALES[0]))
        logs = free.logs[:, None] + constant
        logs = logs + nu / 2 * (free.determinants[:, None] + n_arms * np.log(scales))
        logs = logs - (nu + n) / 2 * np.linalg.slogdet(posterior)[1]
        freedom = nu + n - n_arms + 1
        # What the prior adds to degrees of freedom it adds to squares at few columns alone.
        inflation = 1.0 + (freedom - n) / n * (1.0 - 2.0 / max(n, 2)) ** 3
        covariances.append((posterior * inflation / freedom).reshape(-1, n_arms, n_arms))
        freedoms.append(np.full(logs.size, freedom))
        likelihoods.append(logs.reshape(-1))
        joined = np.concatenate(likelihoods)
        weights = np.exp(joined - joined.max())
        weights /= weights.sum()
        kept = weights > _SMALLEST
        weights = weights[kept] / weights[kept].sum()
        return weights, np.concatenate(covariances)[kept], np.concatenate(freedoms)[kept]


_BASELINE, _OTHER, _PAIR = "baseline", "other", "two others"
_PRIOR: tuple[tuple[float, float, str, float], ...] = (
    (0.0060, 0.0, _BASELINE, 4.0), (0.0095, 0.0, _BASELINE, 10.0), (0.0145, 0.0, _OTHER, 4.0),
    (0.0180, 0.0, _OTHER, 10.0), (0.0153, 1.0, _BASELINE, 10.0), (0.0089, 1.0, _OTHER, 10.0),
    (0.0122, 4.0, _BASELINE, 10.0), (0.0009, 20.0, _BASELINE, 1.0), (0.0125, 20.0, _OTHER, 0.25),
    (0.0058, 1e4, _BASELINE, 10.0), (0.0250, 0.0, _PAIR, 8.0), (0.0120, 1.0, _PAIR, 8.0),
    (0.0050, 0.0, _BASELINE, 0.1),
)  # fmt: skip
"""Structures up to a scale: prior probability, the variance of what all arms share of a seed (that
of an arm's own part is 1), and the arms whose own part spreads so many times as far.

Most probabilities, and those of ``_FREE``, were fitted once, in simulations of 3, 4 and 8 arms with
3 and 5 seeds: the greatest power with at most 5 % false verdicts for any of 29 covariance matrices.
``benchmarks/verdict_errors.py`` holds them against others."""
_FREE: tuple[tuple[float, float, float], ...] = (
    (0.1589, 0.0, 1.0), (0.0069, 0.0, 4.0), (0.5265, 1e3, 1.0), (0.2008, 1e3, 4.0),
    (0.0500, 1e6, 1.0), (0.0200, 1e6, 4.0),
)  # fmt: skip
"""Centres of the free matrix: prior probability, the shared variance, the baseline's own spread."""


@dataclass(frozen=True)
class _Structures:
    matrices: Numbers
    """``[K, A, A]``, up to a scale."""
    inverses: Numbers
    determinants: Numbers
    """``[K]``, their logarithms."""
    logs: Numbers
    """``[K]``, of the prior probabilities."""


@lru_cache(maxsize=64)
def _structures(n_arms: int) -> tuple[_Structures, _Structures]:
    """Return the structures known up to a scale, and the centres of the free matrix.

    The baseline is the first arm.
    """
    fixed: list[tuple[Numbers, float]] = []
    for probability, shared, which, factor in _PRIOR:
        size = 2 if which == _PAIR else 1
        places = [(0,)] if which == _BASELINE else list(combinations(range(1, n_arms), size))
        for arms in places:
            fixed.append((_matrix(n_arms, shared, arms, factor), probability / len(places)))
    free = [
        (_matrix(n_arms, shared, (0,), factor), probability)
        for probability, shared, factor in _FREE
    ]
    return _stacked(fixed), _stacked(free)


def _matrix(n_arms: int, shared: float, arms: Sequence[int], factor: float) -> Numbers:
    """Return the covariance of arms with a shared part, own parts spreading by 1 or ``factor``."""
    matrix: Numbers = np.eye(n_arms) + shared
    matrix[arms, arms] = shared + factor**2
    return matrix


def _stacked(rows: Sequence[tuple[Numbers, float]]) -> _Structures:
    matrices: Numbers = np.stack([matrix for matrix, _ in rows])
    logs: Numbers = np.log(np.array([probability for _, probability in rows]))
    determinants: Numbers = np.asarray(np.linalg.slogdet(matrices)[1], dtype=np.float64)
    inverses = np.asarray(np.linalg.inv(matrices), dtype=np.float64)
    return _Structures(matrices, inverses, determinants, logs)


def _log_gamma(n: int, x: float) -> float:
    """Return the logarithm of the multivariate gamma function."""
    terms = [math.lgamma(x - index / 2) for index in range(n)]
    return n * (n - 1) / 4 * math.log(math.pi) + math.fsum(terms)
