"""Statistics of comparisons: differences paired by seed, their intervals, and verdicts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np

from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.objective.metric import Metric

Verdict = Literal["better", "worse", "undecided", "no verdict"]
"""No verdict is given where one seed was planned: an interval needs two."""
UNDECIDED: frozenset[Verdict] = frozenset({"undecided", "no verdict"})

CONFIDENCE = 0.95
"""Of all intervals of a study together."""
POWER = 0.8
"""Of the test, at the smallest difference that is called detectable."""
MOST_SEEDS = 1000
"""More are never proposed."""
FEWEST_TO_ESTIMATE = 3
"""Pairs from which on it is estimated how many seeds would decide."""


@dataclass(frozen=True)
class Difference:
    """One arm against the baseline: ``arm - baseline`` over the seeds that both finished.

    Differences are in the metric's unit. What needs two pairs is None where fewer are left.
    """

    arm: str
    baseline: str
    seeds: tuple[int, ...]
    """Those that both finished, in order."""
    mean: float | None
    """None without any pair."""
    sd: float | None
    """Sample standard deviation over seeds."""
    low: float | None
    """Of the Bonferroni-corrected 95% CI of the mean."""
    high: float | None
    p: float | None
    """As ``p_raw``, adjusted by Holm's method over all comparisons."""
    p_raw: float | None
    """Two-sided, of the paired t test."""
    verdict: Verdict
    more_seeds: int | None
    """About how many more would decide if mean and spread stayed as observed.

    None: more than a thousand, not a question of seeds, or of fewer than three pairs.
    """
    detectable: float | None
    """The smallest true difference that so many seeds decide four times in five, at this spread."""
    note: str = ""
    """What the numbers cannot say, in words."""
    fewest_more_seeds: int | None = None
    """As ``more_seeds``, were the spread at the lower end of its 95% CI."""
    most_more_seeds: int | None = None
    """As ``more_seeds``, were the spread at the upper end of its 95% CI."""


def compare_arms(
    baseline: str,
    values: Mapping[str, Mapping[int, float]],
    metric: Metric,
    *,
    planned_seeds: int,
    against: Mapping[str, str] | None = None,
    n_awaited: int = 0,
) -> list[Difference]:
    """Compare every arm with the baseline, or its arm in ``against``, paired by seed.

    ``values`` maps an arm's name to the metric of each seed that finished. The correction counts
    every arm that is compared, finished or not, and ``n_awaited`` further ones that no run has
    ended of; one that is against itself is not. Of one planned seed differences have neither
    interval nor verdict. Raises ConfigError for no ``planned_seeds``.
    """
    against = against or {}
    comparisons = []
    for arm in values:
        other = against.get(arm, baseline)
        if other != arm:
            comparisons.append((arm, other))
    if planned_seeds < 1:
        raise ConfigError(f"seeds = {planned_seeds} is too few to compare: give at least 1")
    n_comparisons = len(comparisons) + n_awaited
    differences = []
    for arm, other in comparisons:
        found = _difference(
            arm, other, values[arm], values[other], metric, n_comparisons=n_comparisons
        )
        differences.append(found)
    family = [difference.p_raw for difference in differences] + [None] * n_awaited
    adjusted = holm(family)[: len(differences)]
    complete = []
    for difference, p in zip(differences, adjusted, strict=True):
        with_p = replace(difference, p=p)
        if planned_seeds == 1:
            complete.append(replace(with_p, verdict="no verdict"))
        else:
            complete.append(_with_missing_seeds(with_p, planned_seeds))
    return complete


def paired_interval(differences: Sequence[float], *, n_comparisons: int = 1) -> tuple[float, float]:
    """Compute a t interval of the mean paired difference, 95 % over all of ``n_comparisons``.

    ``differences`` are two or more, one for each seed.
    """
    mean = float(np.mean(differences))
    quantile = critical_t(len(differences), n_comparisons)
    half_width = quantile * _standard_error(differences)
    return mean - half_width, mean + half_width


@cache
def critical_t(n_pairs: int, n_comparisons: int) -> float:
    """Return the Bonferroni-corrected t quantile of ``n_pairs - 1`` degrees of freedom.

    It is two-sided: an interval reaches so many standard errors to either side.
    """
    from scipy.special import stdtrit

    tail = (1 - CONFIDENCE) / (2 * n_comparisons)
    return -float(stdtrit(n_pairs - 1, tail))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p values as one family (Holm 1979); a missing one counts and stays missing."""
    order = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    n_tests = len(p_values)
    adjusted: list[float | None] = [None] * n_tests
    largest = 0.0
    for rank, (p, index) in enumerate(order):
        corrected = min(1.0, (n_tests - rank) * p)
        # No p value is below that of a test that had a smaller one.
        largest = max(largest, corrected)
        adjusted[index] = largest
    return adjusted


def seeds_to_decide(mean: float, sd: float, *, n_comparisons: int) -> int | None:
    """Compute the fewest seeds whose interval excludes 0, at this mean and spread; None if many.

    More than a thousand are None.
    """
    from scipy.special import stdtrit

    n = np.arange(2, MOST_SEEDS + 1)
    tail = (1 - CONFIDENCE) / (2 * n_comparisons)
    half_widths = -stdtrit(n - 1, tail) * sd / np.sqrt(n)
    decides = half_widths < abs(mean)
    enough = n[decides]
    if not enough.size:
        return None
    return int(enough[0])


def spread_interval(sd: float, n_pairs: int) -> tuple[float, float]:
    """Compute the 95% CI of a standard deviation, as the chi-squared distribution gives it."""
    from scipy.special import chdtri

    tail = (1 - CONFIDENCE) / 2
    freedom = n_pairs - 1
    # What chi-squared exceeds with the probability that is given.
    low = sd * math.sqrt(freedom / float(chdtri(freedom, tail)))
    high = sd * math.sqrt(freedom / float(chdtri(freedom, 1 - tail)))
    return low, high


def detectable_difference(sd: float, *, n_pairs: int, n_comparisons: int) -> float:
    """Compute the true difference that ``n_pairs`` seeds decide four times in five.

    The power of the t test, integrated over the distribution of the estimated spread; the chance of
    a verdict in the wrong direction is neglected.
    """
    if sd == 0.0:
        return 0.0
    return _detectable_effect(n_pairs, n_comparisons) * sd


@cache
def _detectable_effect(n_pairs: int, n_comparisons: int) -> float:
    from scipy.optimize import brentq
    from scipy.special import gammaincinv, ndtr

    # Gauss-Legendre nodes, mapped to [0, 1], are quantiles of the estimated variance.
    nodes, weights = np.polynomial.legendre.leggauss(200)
    chi_squared = 2 * gammaincinv((n_pairs - 1) / 2, (nodes + 1) / 2)
    spread = np.sqrt(chi_squared / (n_pairs - 1))  # estimated over true sd
    threshold = critical_t(n_pairs, n_comparisons)

    def missing_power(shift: float) -> float:
        p_decided = ndtr(shift - threshold * spread)
        return POWER - float(weights @ p_decided) / 2

    shift = float(brentq(missing_power, 0.0, 3 * threshold + 3))
    return shift / math.sqrt(n_pairs)


def _difference(
    arm: str,
    baseline: str,
    values: Mapping[int, float],
    baseline_values: Mapping[int, float],
    metric: Metric,
    *,
    n_comparisons: int,
) -> Difference:
    seeds = tuple(sorted(values.keys() & baseline_values.keys()))
    pairs = [values[seed] - baseline_values[seed] for seed in seeds]
    if len(pairs) < 2:
        return Difference(
            arm=arm,
            baseline=baseline,
            seeds=seeds,
            mean=pairs[0] if pairs else None,
            sd=None,
            low=None,
            high=None,
            p=None,
            p_raw=None,
            verdict="undecided",
            more_seeds=None,
            detectable=None,
        )
    mean = float(np.mean(pairs))
    sd = float(np.std(pairs, ddof=1))
    if len(set(pairs)) == 1 or sd == 0.0:
        return _constant_difference(arm, baseline, seeds, pairs[0], metric)
    low, high = paired_interval(pairs, n_comparisons=n_comparisons)
    verdict = _verdict(low, high, metric)
    more_seeds = fewest = most = None
    n_pairs = len(pairs)
    if verdict == "undecided" and n_pairs >= FEWEST_TO_ESTIMATE:
        low_sd, high_sd = spread_interval(sd, n_pairs)
        fewest, more_seeds, most = (
            _more_seeds(mean, each, n_pairs, n_comparisons) for each in (low_sd, sd, high_sd)
        )
    return Difference(
        arm=arm,
        baseline=baseline,
        seeds=seeds,
        mean=mean,
        sd=sd,
        low=low,
        high=high,
        p=None,
        p_raw=_paired_p(mean, _standard_error(pairs), n_pairs),
        verdict=verdict,
        more_seeds=more_seeds,
        detectable=detectable_difference(sd, n_pairs=n_pairs, n_comparisons=n_comparisons),
        fewest_more_seeds=fewest,
        most_more_seeds=most,
    )


def _more_seeds(mean: float, sd: float, n_pairs: int, n_comparisons: int) -> int | None:
    needed = seeds_to_decide(mean, sd, n_comparisons=n_comparisons)
    return None if needed is None else max(1, needed - n_pairs)


def _constant_difference(
    arm: str, baseline: str, seeds: tuple[int, ...], mean: float, metric: Metric
) -> Difference:
    is_equal = mean == 0.0
    return Difference(
        arm=arm,
        baseline=baseline,
        seeds=seeds,
        mean=mean,
        sd=0.0,
        low=mean,
        high=mean,
        p=None,
        p_raw=1.0 if is_equal else 0.0,
        verdict=_verdict(mean, mean, metric),
        more_seeds=None,
        detectable=0.0,
        note="equal on every seed" if is_equal else "the same difference on every seed",
    )


def _with_missing_seeds(difference: Difference, planned_seeds: int) -> Difference:
    n_pairs = len(difference.seeds)
    if n_pairs == planned_seeds:
        return difference
    note = f"{n_pairs} of {count(planned_seeds, 'seed')} finished in both arms"
    if difference.note:
        note = f"{difference.note}; {note}"
    return replace(difference, note=note)


def _verdict(low: float, high: float, metric: Metric) -> Verdict:
    if low <= 0.0 <= high:
        return "undecided"
    is_lower = high < 0.0
    return "better" if is_lower == metric.is_lower_better else "worse"


def _standard_error(differences: Sequence[float]) -> float:
    sd = float(np.std(differences, ddof=1))
    return sd / math.sqrt(len(differences))


def _paired_p(mean: float, standard_error: float, n_pairs: int) -> float:
    from scipy.special import stdtr

    t = -abs(mean) / standard_error
    return 2 * float(stdtr(n_pairs - 1, t))
