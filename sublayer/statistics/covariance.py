"""Variance of contrasts over seeds and over test items.

Arms share seeds, and few seeds do not determine the covariance of arms.

The run of arm ``a`` with seed ``s`` scores ``mean[a] + e[a, s]``; columns of ``e`` are independent
and normal, with a covariance matrix over arms. Two arms need only the paired t test, and so has
each contrast of more than eight: one arm of many that spreads far more would decide all intervals
if their covariance were estimated jointly. For three to eight, structures of that matrix are
averaged (after Hoeting et al. 1999): a small or large effect of the seed common to all arms, arms
with a larger or smaller variance than the others, and a free matrix (inverse Wishart) around
several centres. Given a structure, the variance of each contrast is a scaled inverse chi-squared,
so that its test is Student's.

Each structure has two weights, of its errors and its share of the level. p is the sum over
structures of likelihood times the first weight times the structure's p, divided by the sum of
likelihood times the second. Averaged over residuals, and over structures by the first weights, the
error rate of the test is the level times the sum of the shares, about half the level, and somewhat
more where ``_MOST_CAUTION`` caps the caution, the ratio of the two sums. With equal weights p is
the posterior's, which spends the level equally on all residuals; for the same errors, power is
greatest if most of it is spent where arms have equal variances; see
``benchmarks/verdict_bound.py``.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.statistics.contrasts import Contrast, RunScores, weights_of

Numbers = NDArray[np.float64]
Effects = NDArray[np.float64]
"""``[U]`` in the metric's unit: its derivative with respect to the weight of each test unit."""

_SMALLEST = 1e-5
"""Posterior probability below which a structure is left out."""
_FEW = 4.0
"""Degrees of freedom below which columns are few."""
_MOST_ARMS = 8
"""Most arms whose covariance is estimated jointly: the weights below were fitted for these."""
_MANY = 30
"""Columns from which on each contrast has a separate variance."""
_MOST_CAUTION = 4.0
"""Upper limit of caution: more would cost power and hardly save errors."""
_SCALES = np.exp(np.linspace(math.log(1e-3), math.log(1e2), 24))
"""Scales of the free matrix, relative to the best-fitting one, over which it is averaged."""


@dataclass(frozen=True)
class VariancePosterior:
    """Posterior of the variance of a contrast's mean: a mixture of scaled inverse chi-squareds."""

    mean: float
    """The contrast, in the metric's unit."""
    n: int
    """Seeds, or units of the test."""
    weights: Numbers
    """``[M]``, of the components; they add up to 1."""
    scales: Numbers
    """``[M]``: each component's estimate of the variance of the mean."""
    freedoms: Numbers
    """``[M]``: degrees of freedom of each estimate."""
    caution: float = 1.0
    """Factor of p: below 1 if arms have equal variances, above if they may not."""

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


def known_spread(mean: float, variance: float, freedom: float, n: int) -> VariancePosterior:
    """Return the spread of a mean from a single estimate of its variance."""
    return VariancePosterior(mean, n, np.ones(1), np.array([variance]), np.array([freedom]))


def are_separate(n_arms: int, n_columns: int) -> bool:
    """Return whether each contrast of many arms has its own variance, of few seeds or units."""
    return n_arms > _MOST_ARMS and n_columns < _MANY


class Spreads(ABC):
    """Covariances of arms, by the seeds that contrasts share, most of them with ``baseline``."""

    _floor = 0.0
    _freedom: float | None = None
    """Arguments of ``Covariance`` besides the values."""

    def __init__(self, scores: RunScores, baseline: str, n_columns: int) -> None:
        self._scores = scores
        self._baseline = baseline
        self.are_separate = are_separate(len(scores.arms), n_columns)
        self._tables: dict[tuple[int, ...], Covariance] = {}

    @abstractmethod
    def _values(self, shared: NDArray[np.bool_]) -> Numbers | None:
        """Return the values of some seeds, NaN for missing ones; None if too few."""

    def covariance(self, contrasts: Sequence[Contrast]) -> Numbers:
        """Return the posterior mean covariance of the means of contrasts, ``[C, C]``.

        Each pair is estimated over the seeds that all of its arms share; unknown ones are 0.
        """
        covariance = np.zeros((len(contrasts), len(contrasts)))
        for row, one in enumerate(contrasts):
            for column, other in enumerate(contrasts[: row + 1]):
                both = {**one.weights, **other.weights}
                table = self._table(self._scores.common(both))
                if table is not None and both.keys() <= {*table.arms}:
                    value = table.between(one, other)
                    covariance[row, column] = covariance[column, row] = value
        return covariance

    def _table(self, shared: NDArray[np.bool_]) -> "Covariance | None":
        key = tuple(np.flatnonzero(shared).tolist())
        if key not in self._tables:
            values = self._values(shared)
            if values is None:
                return None
            rows = np.flatnonzero(~np.isnan(values).any(1)).tolist()
            rows.sort(key=lambda row: self._scores.arms[row] != self._baseline)
            arms = [self._scores.arms[row] for row in rows]
            self._tables[key] = Covariance(arms, values[rows], self._floor, self._freedom)
        return self._tables[key]


class SeedSpreads(Spreads):
    """Estimates the variance over seeds of contrasts, most of them with ``baseline``.

    ``floor`` is the metric's resolution.
    """

    def __init__(self, scores: RunScores, baseline: str, floor: float = 0.0) -> None:
        super().__init__(scores, baseline, len(scores.seeds))
        self._floor = floor

    def _values(self, shared: NDArray[np.bool_]) -> Numbers | None:
        return self._scores.values[:, shared] if shared.sum() > 1 else None

    def spread(self, contrast: Contrast) -> VariancePosterior | None:
        """Return the spread of a contrast; None with fewer than two seeds of its arms.

        Common seeds of its arms are blocks; other arms with these seeds inform the covariance. Arms
        without two common seeds are independent samples (Welch).
        """
        table = self._table(self._scores.common(contrast.weights))
        if table is not None:
            return table.spread(contrast)
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

    def unshared_variance(self, arm: str, others: Sequence[str]) -> float:
        """Estimate the variance of an arm's runs, less the part of a seed that arms share.

        Half the variance of its difference from each other arm, averaged, or the median if arms are
        many, of which one may spread far more; the arm's variance if it has no two seeds in common
        with any. 0 with fewer than two runs.
        """
        halves = []
        scores = self._scores.row(arm)
        for other in others:
            if other == arm:
                continue
            difference = scores - self._scores.row(other)
            difference = difference[~np.isnan(difference)]
            if len(difference) > 1:
                halves.append(float(difference.var(ddof=1)) / 2.0)
        if halves:
            return float(np.median(halves) if self.are_separate else np.mean(halves))
        values = self._scores.scores_of(arm)
        return float(values.var(ddof=1)) if len(values) > 1 else 0.0


class Covariance:
    """Posterior of the covariance of arms, from ``values`` ``[A, S]`` without gaps; baseline first.

    Columns are independent draws: seeds, or units of a test. No arm spreads less than ``floor``.
    With ``freedom``, columns are residuals with that many degrees of freedom.
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

    def spread(self, contrast: Contrast) -> VariancePosterior:
        """Return the spread of a contrast's mean over columns; of two arms the paired t test's.

        The same holds for many arms, and for many columns.
        """
        (row,) = weights_of([contrast], self.arms)
        values = row @ self._values
        mean, n = math.fsum(values) / len(values), len(values)
        if self._is_plain:
            residuals = row @ self._residuals
            variance = max(float(residuals @ residuals) / (n - 1), self._floor**2)
            return known_spread(mean, variance / n, self._freedom, n)
        weights, covariances, freedoms, caution = self._posterior
        scales = np.einsum("a,kab,b->k", row, covariances, row) / n
        return VariancePosterior(mean, n, weights, scales, freedoms, caution)

    def between(self, one: Contrast, other: Contrast) -> float:
        """Return the posterior mean covariance of the means of two contrasts."""
        first, second = weights_of([one, other], self.arms)
        n = self._values.shape[1]
        if self._is_plain:
            return float(first @ self._squares @ second / self._freedom / n)
        weights, covariances, _, _ = self._posterior
        return float(weights @ np.einsum("a,kab,b->k", first, covariances, second) / n)

    @property
    def _is_plain(self) -> bool:
        n_arms = len(self.arms)
        return n_arms == 2 or n_arms > _MOST_ARMS or self._values.shape[1] >= _MANY

    @cached_property
    def _posterior(self) -> tuple[Numbers, Numbers, Numbers, float]:
        """Weights ``[M]``, covariances ``[M, A, A]``, degrees of freedom of components; caution."""
        n_arms, n = len(self.arms), self._freedom
        fixed, free = _structures(n_arms, n < _FEW)
        # Structures up to a scale, which has Jeffreys' prior.
        traces = np.einsum("kab,ab->k", fixed.inverses, self._squares)
        half = n_arms * n / 2
        logs = math.lgamma(half) - n / 2 * fixed.determinants - half * np.log(traces)
        covariances = [fixed.matrices * (traces / (n_arms * n))[:, None, None]]
        freedoms = [np.full(len(logs), float(n_arms * n))]
        likelihoods = [logs]
        # The free matrix around each of its centres, over a grid of scales.
        nu = n_arms + 1.0 + free.extra
        fits = np.einsum("kab,ab->k", free.inverses, self._squares) / (n_arms * n)
        scales = fits[:, None] * _SCALES * (nu - n_arms + 1)[:, None]  # [F, G]
        prior = scales[:, :, None, None] * free.matrices[:, None]  # [F, G, A, A]
        posterior = prior + self._squares
        constant = _log_gamma(n_arms, (nu + n) / 2) - _log_gamma(n_arms, nu / 2)
        constant += math.log(math.log(_SCALES[1] / _SCALES[0]))
        shape = nu[:, None]
        logs = shape / 2 * (free.determinants[:, None] + n_arms * np.log(scales))
        logs = logs + constant[:, None] - (shape + n) / 2 * np.linalg.slogdet(posterior)[1]
        freedom = nu + n - n_arms + 1
        # With more than three columns, inflation discounts the degrees of freedom of a prior.
        inflation = 1.0 + 2.0 / n * (1.0 - 2.0 / max(n, 2)) ** 3
        posterior *= (inflation / freedom)[:, None, None, None]
        covariances.append(posterior.reshape(-1, n_arms, n_arms))
        freedoms.append(np.repeat(freedom, len(_SCALES)))
        likelihoods.append(logs.reshape(-1))
        joined = np.concatenate(likelihoods)
        joined = np.exp(joined - joined.max())
        errors, shares = (
            joined * np.concatenate([of_fixed, np.repeat(of_free, len(_SCALES))])
            for of_fixed, of_free in ((fixed.errors, free.errors), (fixed.shares, free.shares))
        )
        caution = min(_MOST_CAUTION, float(errors.sum() / max(float(shares.sum()), 1e-300)))
        weights = errors / errors.sum()
        is_likely = weights > _SMALLEST
        weights = weights[is_likely] / weights[is_likely].sum()
        joint = np.concatenate(covariances)[is_likely]
        return weights, joint, np.concatenate(freedoms)[is_likely], caution


_FIXED = """
alike          1     0  0.02382 0.01516 0.02059 0.01698
alike          1     1  0.01575 0.11665 0.03874 0.00922
alike          1     4  0.00345 0.07445 0.06214 0.09120
baseline       0.25  0  0.00085 0.01364 0.00649 0.00326
baseline       1.5   0  0.00910 0.00046 0.00079 0.00229
baseline       2     0  0.00067 0.00001 0.00289 0.00027
baseline       4     0  0.00001 0.00000 0.00098 0.00007
baseline       10    0  0.00026 0.00004 0.01731 0.00028
baseline       0.25  1  0.00409 0.01325 0.02517 0.03097
baseline       1.5   1  0.00295 0.00000 0.00798 0.00084
baseline       2     1  0.02676 0.00000 0.02255 0.00009
baseline       4     1  0.01840 0.00001 0.01187 0.00023
baseline       10    1  0.02871 0.00017 0.03723 0.00011
baseline       0.25  4  0.01213 0.10845 0.00294 0.02525
baseline       1.5   4  0.00969 0.00365 0.15967 0.05670
baseline       2     4  0.00007 0.00001 0.01608 0.00202
baseline       4     4  0.03539 0.00007 0.00282 0.00079
baseline       10    4  0.00348 0.00770 0.00464 0.00058
other          0.25  0  0.03696 0.00524 0.00796 0.00132
other          2     0  0.00001 0.00000 0.00177 0.00103
other          4     0  0.00002 0.00002 0.00032 0.00002
other          10    0  0.00350 0.00001 0.00220 0.00003
other          0.25  1  0.01021 0.00000 0.00481 0.02426
other          2     1  0.00005 0.00002 0.00560 0.00998
other          4     1  0.00881 0.00260 0.00064 0.00039
pair           3     0  0.00143 0.00001 0.01316 0.00292
pair           3     1  0.01364 0.00091 0.00906 0.00456
pair           8     0  0.00059 0.00035 0.00186 0.00074
pair           8     1  0.00023 0.00018 0.00283 0.00028
pair           8     4  0.00133 0.00001 0.00368 0.00145
whole-baseline 0.25  1  0.00003 0.00000 0.01228 0.00012
whole-baseline 1.5   1  0.00402 0.00149 0.00611 0.00343
whole-baseline 2     1  0.00000 0.00000 0.01380 0.02387
whole-baseline 4     1  0.00000 0.00002 0.00078 0.00084
whole-baseline 8     1  0.00154 0.00040 0.01941 0.00090
whole-other    2     1  0.00008 0.00000 0.01250 0.00003
whole-other    4     1  0.00129 0.00000 0.00992 0.00000
whole-other    8     1  0.00071 0.00000 0.00405 0.00001
whole-baseline 0.25  9  0.09901 0.00018 0.00312 0.00095
whole-baseline 1.5   9  0.02050 0.00003 0.00026 0.00000
whole-baseline 2     9  0.00060 0.00008 0.05308 0.00009
whole-baseline 4     9  0.00034 0.00003 0.00283 0.00035
whole-baseline 8     9  0.02458 0.00248 0.00407 0.00568
whole-other    2     9  0.04542 0.00000 0.00215 0.00031
whole-other    4     9  0.00150 0.00000 0.00005 0.00001
whole-other    8     9  0.05381 0.00001 0.00138 0.00132
"""
"""Structures up to a scale, a line each: arms with another standard deviation of the specific part,
or of the total score; the factor; the shared variance of a seed (an arm's specific part has 1);
weight of errors under it, and share of the level for residuals like its own, for fewer than five
columns and for five or more.

These numbers, and those of ``_FREE``, were fitted once, in simulations of 3, 4 and 8 arms with 3 to
20 seeds: the greatest power with about 5 % false verdicts at most under 51 covariance matrices.
``benchmarks/verdict_errors.py`` holds them against others, and ``benchmarks/verdict_bound.py``
against what no rule can exceed.
"""
_FREE = """
1  0        0  0.00002 0.00193 0.00290 0.00028
1  0        8  0.01734 0.00111 0.00482 0.00018
4  0        0  0.00003 0.01259 0.00133 0.04467
4  0        8  0.00004 0.00003 0.00701 0.00069
1  1        0  0.02469 0.00004 0.02234 0.00036
1  1        8  0.03443 0.00280 0.02606 0.05199
4  1        0  0.01249 0.00003 0.01228 0.00171
4  1        8  0.01593 0.00004 0.04287 0.00059
1  10       0  0.05365 0.00664 0.01328 0.01021
1  10       8  0.01733 0.01813 0.02697 0.03070
4  10       0  0.00147 0.00033 0.00589 0.00211
1  1000     0  0.06358 0.02226 0.09487 0.02730
1  1000     8  0.05552 0.02011 0.05864 0.02634
1  1000000  0  0.09391 0.00995 0.01806 0.00468
1  1000000  8  0.08367 0.00831 0.02208 0.00348
"""
"""Centres of the free matrix: the baseline's specific spread, the shared variance, degrees of
freedom beyond the minimum, and errors and shares as in ``_FIXED``."""


@dataclass(frozen=True)
class _Structures:
    matrices: Numbers
    """``[K, A, A]``, up to a scale."""
    inverses: Numbers
    determinants: Numbers
    """``[K]``, their logarithms."""
    errors: Numbers
    """``[K]``: weights of the errors under each."""
    shares: Numbers
    """``[K]``: shares of the level; the rest to 1 goes to no residuals."""
    extra: Numbers
    """``[K]``: degrees of freedom of an inverse Wishart prior beyond the minimum."""


@lru_cache(maxsize=64)
def _structures(n_arms: int, are_few: bool) -> tuple[_Structures, _Structures]:
    """Return the structures known up to a scale, and the centres of the free matrix.

    The baseline is the first arm. ``are_few``: few columns.
    """
    weights = slice(0, 2) if are_few else slice(2, 4)
    fixed, free = [], []
    for which, *numbers in map(str.split, _FIXED.strip().splitlines()):
        factor, shared, *shares = map(float, numbers)
        places = _places(n_arms, which)
        for arms in places:
            matrix = _matrix(n_arms, shared, arms, factor, which.startswith("whole"))
            fixed.append((matrix, *shares[weights], 0.0, len(places)))
    for line in _FREE.strip().splitlines():
        factor, shared, extra, *shares = map(float, line.split())
        free.append((_matrix(n_arms, shared, (0,), factor, False), *shares[weights], extra, 1))
    return _stacked(fixed), _stacked(free)


def _places(n_arms: int, which: str) -> list[tuple[int, ...]]:
    """Return the sets of arms that may have another spread."""
    if which == "alike":
        return [()]
    if which.endswith("baseline"):
        return [(0,)]
    return list(combinations(range(1, n_arms), 2 if which == "pair" else 1))


def _matrix(
    n_arms: int, shared: float, arms: Sequence[int], factor: float, is_whole: bool
) -> Numbers:
    """Return the covariance of arms: a shared part, specific parts scaled by 1 or ``factor``.

    With ``is_whole``, the factor scales the shared part, too.
    """
    scales = np.ones(n_arms)
    scales[list(arms)] = factor
    parts = np.outer(scales, scales) if is_whole else 1.0
    matrix: Numbers = np.diag(scales**2) + shared * parts
    return matrix


def _stacked(rows: Sequence[tuple[Any, ...]]) -> _Structures:
    matrices: Numbers = np.stack([row[0] for row in rows])
    errors, shares, extra, n_places = np.array([row[1:] for row in rows]).T
    determinants: Numbers = np.asarray(np.linalg.slogdet(matrices)[1], dtype=np.float64)
    inverses = np.asarray(np.linalg.inv(matrices), dtype=np.float64)
    return _Structures(
        matrices, inverses, determinants, errors / n_places, shares / n_places, extra
    )


def _log_gamma(n: int, x: Numbers) -> Numbers:
    """Return the logarithm of the multivariate gamma function."""
    terms = [[math.lgamma(value - index / 2) for index in range(n)] for value in x]
    log_gammas: Numbers = n * (n - 1) / 4 * math.log(math.pi) + np.array(terms).sum(1)
    return log_gammas


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
        # Without items no spread is estimated.
        n_units = _MANY if scores.effects is None else scores.effects.shape[2]
        super().__init__(scores, baseline, n_units)
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
                # The correlation of neighbouring stretches of a document, not below 0 (Bartlett).
                means = sum(stacks).mean(0)
                squares = float(means @ means)
                neighbours = float(means[1:] @ means[:-1])
                inflation = 1.0 + (max(0.0, neighbours / squares) if squares else 0.0)
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


def _both(stacks: Sequence[Effects]) -> float:
    """Return the interaction's part of the variance of the mean of effects, ``[S, U]`` per arm."""
    both = 0.0
    for stack in stacks:
        n_seeds, n_units = stack.shape
        if n_seeds > 1:
            squares = float(((stack - stack.mean(0)) ** 2).sum()) * n_units / (n_units - 1)
            both += squares / (n_seeds - 1) / n_seeds
    return both
