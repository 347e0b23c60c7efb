"""How sure a comparison is: differences paired by seed, their intervals, and the verdict that follows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np

from sublayer.errors import ConfigError

Verdict = Literal["better", "worse", "cannot tell"]

CONFIDENCE = 0.95
POWER = 0.8
MOST_SEEDS = 1000


@dataclass(frozen=True)
class Metric:
    """What is compared, and which direction is good.

    People read values times ``factor``, with at least so many ``decimals``, under ``label``, and differences in
    ``unit`` (the label, where there is none); files keep them as they are.
    """

    name: str
    label: str
    is_lower_better: bool
    unit: str = ""
    factor: float = 1.0
    decimals: int = 3

    @property
    def difference(self) -> str:
        """The unit of differences."""
        return self.unit or self.label


@dataclass(frozen=True)
class Difference:
    """One arm against the baseline: ``arm - baseline`` over the seeds that both finished, in the metric's unit.

    ``low`` and ``high`` bound the Bonferroni-corrected 95 % interval, ``p_raw`` is the paired t test's and ``p``
    Holm's; all are None where fewer than two pairs are left. ``more_seeds`` is about how many more seeds would
    decide if mean and spread stayed as observed (None: more than a thousand, or not a question of seeds).
    ``detectable`` is the smallest true difference that so many seeds would decide four times in five, at the
    observed spread. ``note`` says in words what the numbers cannot.
    """

    arm: str
    baseline: str
    seeds: tuple[int, ...]
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None
    p: float | None
    p_raw: float | None
    verdict: Verdict
    more_seeds: int | None
    detectable: float | None
    note: str = ""


def compare_arms(
    baseline: str,
    values: Mapping[str, Mapping[int, float]],
    metric: Metric,
    *,
    planned_seeds: int,
    against: Mapping[str, str] | None = None,
) -> list[Difference]:
    """Compare every arm with the baseline, or with the arm that ``against`` names for it, paired by seed.

    ``values`` maps an arm's name to the metric of each seed that finished. The correction counts every arm that is
    compared, finished or not; one that is against itself is not. Raises ConfigError for fewer than two
    ``planned_seeds``.
    """
    others = {arm: (against or {}).get(arm, baseline) for arm in values}
    with_whom = {arm: other for arm, other in others.items() if arm != other}
    if planned_seeds < 2:
        raise ConfigError(f"seeds = {planned_seeds} is too few to compare: an interval needs at least 2")
    differences = [
        _difference(arm, other, values[arm], values[other], metric, n_comparisons=len(with_whom))
        for arm, other in with_whom.items()
    ]
    adjusted = holm([difference.p_raw for difference in differences])
    return [
        _with_missing_seeds(replace(difference, p=p), planned_seeds)
        for difference, p in zip(differences, adjusted, strict=True)
    ]


def paired_interval(differences: Sequence[float], *, n_comparisons: int = 1) -> tuple[float, float]:
    """Bound the mean of paired differences by a t interval, 95 % over all ``n_comparisons`` (Bonferroni)."""
    half = critical_t(len(differences), n_comparisons) * _standard_error(differences)
    return float(np.mean(differences)) - half, float(np.mean(differences)) + half


@cache
def critical_t(n_pairs: int, n_comparisons: int) -> float:
    """Give the two-sided t quantile with ``n_pairs - 1`` degrees of freedom, Bonferroni-corrected."""
    from scipy.special import stdtrit

    return -float(stdtrit(n_pairs - 1, (1 - CONFIDENCE) / (2 * n_comparisons)))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p values for being one family (Holm 1979); a missing one counts in the family and stays missing."""
    order = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p))
        adjusted[index] = largest
    return adjusted


def seeds_to_decide(mean: float, sd: float, *, n_comparisons: int) -> int | None:
    """Find the fewest seeds whose interval would exclude 0, at this mean and spread; None beyond a thousand."""
    from scipy.special import stdtrit

    n = np.arange(2, MOST_SEEDS + 1)
    half_widths = -stdtrit(n - 1, (1 - CONFIDENCE) / (2 * n_comparisons)) * sd / np.sqrt(n)
    enough = n[half_widths < abs(mean)]
    return int(enough[0]) if enough.size else None


def detectable_difference(sd: float, *, n_pairs: int, n_comparisons: int) -> float:
    """Find the true difference that ``n_pairs`` seeds decide four times in five, at this spread.

    The power of the t test, integrated over the distribution of the estimated spread; the chance of a verdict in the
    wrong direction is neglected.
    """
    return 0.0 if sd == 0.0 else _detectable_effect(n_pairs, n_comparisons) * sd


@cache
def _detectable_effect(n_pairs: int, n_comparisons: int) -> float:
    from scipy.optimize import brentq
    from scipy.special import gammaincinv, ndtr

    nodes, weights = np.polynomial.legendre.leggauss(200)
    chi_squared = 2 * gammaincinv((n_pairs - 1) / 2, (nodes + 1) / 2)
    spread = np.sqrt(chi_squared / (n_pairs - 1))  # estimated over true sd
    threshold = critical_t(n_pairs, n_comparisons)

    def missing_power(shift: float) -> float:
        return POWER - float(weights @ ndtr(shift - threshold * spread)) / 2

    return float(brentq(missing_power, 0.0, 3 * threshold + 3)) / math.sqrt(n_pairs)


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
        mean = pairs[0] if pairs else None
        return Difference(arm, baseline, seeds, mean, None, None, None, None, None, "cannot tell", None, None)
    mean, sd = float(np.mean(pairs)), float(np.std(pairs, ddof=1))
    if len(set(pairs)) == 1 or sd == 0.0:
        return _constant_difference(arm, baseline, seeds, pairs[0], metric)
    low, high = paired_interval(pairs, n_comparisons=n_comparisons)
    verdict = _verdict(low, high, metric)
    needed = seeds_to_decide(mean, sd, n_comparisons=n_comparisons) if verdict == "cannot tell" else None
    more_seeds = None if needed is None else max(1, needed - len(pairs))
    detectable = detectable_difference(sd, n_pairs=len(pairs), n_comparisons=n_comparisons)
    p_raw = _paired_p(mean, _standard_error(pairs), len(pairs))
    return Difference(arm, baseline, seeds, mean, sd, low, high, None, p_raw, verdict, more_seeds, detectable)


def _constant_difference(arm: str, baseline: str, seeds: tuple[int, ...], mean: float, metric: Metric) -> Difference:
    note = "equal on every seed" if mean == 0.0 else "the same difference on every seed"
    p = 1.0 if mean == 0.0 else 0.0
    verdict = _verdict(mean, mean, metric)
    return Difference(arm, baseline, seeds, mean, 0.0, mean, mean, None, p, verdict, None, 0.0, note)


def _with_missing_seeds(difference: Difference, planned_seeds: int) -> Difference:
    n_pairs = len(difference.seeds)
    if n_pairs == planned_seeds:
        return difference
    note = f"{n_pairs} of {planned_seeds} seeds finished in both arms"
    return replace(difference, note="; ".join(filter(None, (difference.note, note))))


def _verdict(low: float, high: float, metric: Metric) -> Verdict:
    if low <= 0.0 <= high:
        return "cannot tell"
    return "better" if (high < 0.0) == metric.is_lower_better else "worse"


def _standard_error(differences: Sequence[float]) -> float:
    return float(np.std(differences, ddof=1)) / math.sqrt(len(differences))


def _paired_p(mean: float, standard_error: float, n_pairs: int) -> float:
    from scipy.special import stdtr

    return 2 * float(stdtr(n_pairs - 1, -abs(mean) / standard_error))
