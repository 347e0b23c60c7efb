"""How far seeds spread, estimated from all arms of a comparison together."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sublayer.statistics.contrast import Contrast
from sublayer.statistics.difference import Pairing

Values = Mapping[str, Mapping[int, float]]
"""A metric's value of each seed that finished, by arm."""
Numbers = NDArray[np.float64]

PAIRED_ABOVE, PAIRED_BELOW = 0.9, 0.005
"""Quantiles of the F ratio of seeds beyond which arms are paired by seed: that they vary together
is then hardly an accident. A stricter one loses what pairs would find, of two arms above all."""
_FLAT = 1e-12


@dataclass(frozen=True)
class Estimate:
    """The variance of a mean difference over seeds, and how well it is known."""

    mean: float
    variance: float
    """Of the mean."""
    freedom: float
    """Degrees of freedom of the variance."""
    single: float
    """The variance of the difference of one seed of each."""


@dataclass(frozen=True)
class _Shrunk:
    """Variances by name, each moved towards their mean by what is known of that."""

    variances: dict[str, float]
    prior: float
    """Degrees of freedom that the common variance counts for, beside each one's own."""
    most: float
    """Degrees of freedom of all of them together."""


class SeedSpread:
    """The spread over seeds of all arms, from which that of each difference follows.

    Arms are blocks of seeds: where seeds explain more of the variance than accident does (F test),
    arms are compared seed by seed, and elsewhere as independent samples. Each arm's variance, or
    each pair's, is moved towards the mean of all by the empirical Bayes rule of Smyth 2004; the
    common one counts at most as much as each own does, and nothing for two arms, which then have
    Welch's test. Departure: the mean of the variances stands for Smyth's scale.

    ``floor`` is the smallest standard deviation that is believed, the metric's resolution.
    """

    def __init__(self, values: Values, floor: float) -> None:
        self._values = {arm: own for arm, own in values.items() if len(own) > 1}
        self._floor = floor
        self.pairing = _find_pairing(self._values)
        self._own = self._shrink_arms()

    def estimates(self, contrasts: Sequence[Contrast]) -> dict[str, Estimate]:
        """Estimate, by name, the contrasts whose arms have two seeds each, or in common."""
        if self.pairing is not None and self.pairing.is_paired:
            return self._paired(contrasts)
        found = {}
        for contrast in contrasts:
            if contrast.weights.keys() <= self._values.keys():
                found[contrast.name] = self._unpaired(contrast)
        return found

    def variance_of(self, arm: str) -> float:
        """Return the variance of a run of an arm over seeds; 0 where it is not known.

        Where arms vary together by seed, that of what they do not share: so do an arm's trials.
        """
        variance = self._own.variances.get(arm, 0.0)
        if self.pairing is not None and self.pairing.is_paired:
            variance *= 1.0 - min(max(self.pairing.correlation, 0.0), 1.0)
        return variance

    def _shrink_arms(self) -> _Shrunk:
        variances = {}
        freedoms = {}
        for arm, own in self._values.items():
            values = np.array(list(own.values()))
            variances[arm] = max(float(values.var(ddof=1)), self._floor**2 / 2)
            freedoms[arm] = len(values) - 1
        return _shrink(variances, freedoms, sum(freedoms.values()))

    def _unpaired(self, contrast: Contrast) -> Estimate:
        mean = variance = doubt = single = 0.0
        for arm, weight in contrast.weights.items():
            values = list(self._values[arm].values())
            mean += weight * math.fsum(values) / len(values)
            own = weight**2 * self._own.variances[arm]
            single += own
            part = own / len(values)
            variance += part
            doubt += part**2 / (self._own.prior + len(values) - 1)
        freedom = min(variance**2 / doubt, self._own.most) if doubt else self._own.most
        return Estimate(mean, variance, freedom, single)

    def _paired(self, contrasts: Sequence[Contrast]) -> dict[str, Estimate]:
        samples = {}
        for contrast in contrasts:
            by_seed = of_seeds(self._values, contrast)
            if len(by_seed) > 1:
                samples[contrast.name] = np.array(list(by_seed.values()))
        variances = {
            name: max(float(own.var(ddof=1)), self._floor**2) for name, own in samples.items()
        }
        freedoms = {name: len(own) - 1 for name, own in samples.items()}
        # Differences from one arm share its spread: n of them tell as much as fewer would.
        n = max(1, len(samples))
        most = sum(freedoms.values()) / (1 + (n - 1) / 4)
        shrunk = _shrink(variances, freedoms, most)
        found = {}
        for name, own in samples.items():
            variance = shrunk.variances[name]
            freedom = min(shrunk.prior + len(own) - 1, max(most, len(own) - 1))
            found[name] = Estimate(float(own.mean()), variance / len(own), freedom, variance)
        return found


def of_seeds(values: Values, contrast: Contrast) -> dict[int, float]:
    """Return a contrast of each seed that all of its arms have, in order."""
    arms = [values.get(arm, {}) for arm in contrast.weights]
    common = set.intersection(*(set(own) for own in arms))
    weights = list(contrast.weights.values())
    found = {}
    for seed in sorted(common):
        terms = [weight * own[seed] for weight, own in zip(weights, arms, strict=True)]
        found[seed] = math.fsum(terms)
    return found


def most_shared(n: int) -> float:
    """Return how much the mean of ``n`` variances may count for, beside each one's own.

    As much as that of four and more; of two, nothing.
    """
    return min(1.0, (n - 2) / 2)


def _find_pairing(values: Values) -> Pairing | None:
    """Decide by all arms' seeds in common; None where no two arms have two."""
    from scipy.special import fdtr

    common = set.intersection(*(set(own) for own in values.values())) if values else set()
    n_arms, n_seeds = len(values), len(common)
    if n_arms < 2 or n_seeds < 2:
        return None
    seeds = sorted(common)
    table = np.array([[own[seed] for seed in seeds] for own in values.values()])  # [A, S]
    residuals = table - table.mean(1, keepdims=True)
    total = float((residuals**2).sum())
    of_seeds = n_arms * float((residuals.mean(0) ** 2).sum())
    freedom = (n_arms - 1) * (n_seeds - 1)
    within = max(total - of_seeds, 0.0)
    if total <= _FLAT * float((table**2).sum()) or not total:
        return Pairing(is_paired=False, correlation=0.0, n_arms=n_arms)
    # Of arms that spread alike, the mean correlation of two.
    correlation = 1.0 - (within / freedom) / (total / (n_arms * (n_seeds - 1)))
    if within <= _FLAT * total:
        return Pairing(is_paired=True, correlation=1.0, n_arms=n_arms)
    ratio = (of_seeds / (n_seeds - 1)) / (within / freedom)
    quantile = float(fdtr(n_seeds - 1, freedom, ratio))
    is_paired = quantile > PAIRED_ABOVE or quantile < PAIRED_BELOW
    return Pairing(is_paired=is_paired, correlation=correlation, n_arms=n_arms)


def _shrink(variances: Mapping[str, float], freedoms: Mapping[str, int], most: float) -> _Shrunk:
    n = len(variances)
    if n < 2:
        return _Shrunk(dict(variances), 0.0, max(most, 1.0))
    freedom = sum(freedoms.values()) / n
    logs = np.log(np.maximum(np.array(list(variances.values())), np.finfo(float).tiny))
    at_most = freedom * most_shared(n)
    prior = min(_prior_freedom(float(logs.var(ddof=1)), freedom), at_most)
    weights = np.array(list(freedoms.values()), dtype=np.float64)
    common = float(weights @ np.array(list(variances.values())) / weights.sum())
    shrunk = {}
    for name, variance in variances.items():
        own = freedoms[name]
        shrunk[name] = (prior * common + own * variance) / (prior + own)
    return _Shrunk(shrunk, prior, most)


def _prior_freedom(spread_of_logs: float, freedom: float) -> float:
    """Estimate how much is known of a common variance, from how far the logarithms spread."""
    from scipy.optimize import brentq
    from scipy.special import polygamma

    excess = spread_of_logs - float(polygamma(1, freedom / 2))
    if excess <= 0.0:
        return math.inf

    def missing(logarithm: float) -> float:
        return float(polygamma(1, math.exp(logarithm))) - excess

    return 2.0 * math.exp(float(brentq(missing, -20.0, 20.0)))
