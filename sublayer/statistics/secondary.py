"""Secondary analyses: classical tests, probability of superiority, curves, power, best of n trials.

None of them decides. Each covers a single comparison, at its own level, uncorrected.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]

_LEVEL = 0.05
_FAR = 100.0
"""A t from which on its spread is due only to the estimated standard deviation."""


@dataclass(frozen=True)
class TTest:
    """A two-sided t test of a mean difference, with its 95% CI."""

    mean: float
    low: float
    high: float
    p: float
    freedom: float


def paired_t(a: ArrayLike, b: ArrayLike) -> TTest | None:
    """Test ``a - b``, ``[S]`` each, paired by seed; None for fewer than two or for no spread."""
    differences = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    n = len(differences)
    if n < 2:
        return None
    return _t_test(float(differences.mean()), float(differences.var(ddof=1)) / n, n - 1.0)


def welch_t(a: ArrayLike, b: ArrayLike) -> TTest | None:
    """Test the means of independent runs, ``[A]`` and ``[B]`` (Welch 1947), as ``paired_t``."""
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if min(len(x), len(y)) < 2:
        return None
    of_x, of_y = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
    variance = of_x + of_y
    if not variance:
        return None
    freedom = variance**2 / (of_x**2 / (len(x) - 1) + of_y**2 / (len(y) - 1))
    return _t_test(float(x.mean() - y.mean()), float(variance), float(freedom))


def _t_test(mean: float, variance: float, freedom: float) -> TTest | None:
    from scipy.special import stdtr, stdtrit

    error = variance**0.5
    if error <= 1e-12 * abs(mean) or not error:
        return None
    half = -float(stdtrit(freedom, _LEVEL / 2)) * error
    p = 2 * float(stdtr(freedom, -abs(mean) / error))
    return TTest(mean, mean - half, mean + half, p, freedom)


@dataclass(frozen=True)
class Superiority:
    """Probability that a run of A beats a run of B with another seed."""

    share: float
    """Share of pairs of a run of A and a run of B that A wins, ties half."""
    n_pairs: int
    estimate: float | None = None
    """Estimate for normal runs with the observed means and spreads; None if runs failed or are too
    few."""
    low: float | None = None
    """Lower end of the 95% CI of ``estimate``; None without it, or without any spread."""
    high: float | None = None


def superiority(
    a: ArrayLike,
    b: ArrayLike,
    *,
    is_lower_better: bool,
    n_failed: tuple[int, int] = (0, 0),
) -> Superiority | None:
    """Estimate the probability that a run of A beats one of B; None if either has no run.

    ``n_failed`` runs of each are the worst. The share is the Mann-Whitney statistic over the number
    of pairs. The estimate is ``Phi(d)``, where ``d`` is the difference of the means in units of the
    root of the summed variances; its interval is that of the noncentrality of t (Reiser and Guttman
    1986), by Welch's degrees of freedom where spreads differ. Runs are taken as independent: if
    arms correlate over seeds, the interval of a small difference is too wide.
    """
    from scipy.special import ndtr

    sign = -1.0 if is_lower_better else 1.0
    x, y = sign * np.asarray(a, dtype=float), sign * np.asarray(b, dtype=float)
    whole_x, whole_y = (
        np.concatenate([arm, np.full(n, -np.inf)]) for arm, n in zip((x, y), n_failed, strict=True)
    )
    n_pairs = len(whole_x) * len(whole_y)
    if not n_pairs:
        return None
    wins = whole_x[:, None] > whole_y
    ties = whole_x[:, None] == whole_y
    share = float(wins.mean() + ties.mean() / 2)
    if any(n_failed) or min(len(x), len(y)) < 2:
        return Superiority(share, n_pairs)
    of_x, of_y = float(x.var(ddof=1)), float(y.var(ddof=1))
    total = of_x + of_y
    difference = float(x.mean() - y.mean())
    if total <= (1e-12 * difference) ** 2:
        return Superiority(share, n_pairs, 0.5 * (1.0 + float(np.sign(difference))))
    freedom = total**2 / (of_x**2 / (len(x) - 1) + of_y**2 / (len(y) - 1))
    size = total / (of_x / len(x) + of_y / len(y))  # effective runs of each
    d = difference / total**0.5
    low, high = _noncentrality(d * size**0.5, freedom)
    ends = ndtr(np.array([d, low / size**0.5, high / size**0.5]))
    return Superiority(share, n_pairs, *map(float, ends))


def _noncentrality(t: float, freedom: float) -> tuple[float, float]:
    """Return the 95% CI of the noncentrality of an observed ``t``."""
    from scipy.special import chdtri, nctdtr

    tails = np.array([_LEVEL / 2, 1 - _LEVEL / 2])
    if abs(t) > _FAR:
        ends = np.sort(t * np.sqrt(chdtri(freedom, tails) / freedom))
        return float(ends[0]), float(ends[1])
    bounds = []
    for tail in tails:
        # By bisection: scipy's inverse may not end.
        least, most = t - 10.0 - 2 * abs(t), t + 10.0 + 2 * abs(t)
        for _ in range(60):
            middle = (least + most) / 2.0
            if nctdtr(freedom, middle, t) > tail:
                least = middle
            else:
                most = middle
        bounds.append(least)
    high, low = bounds
    return float(low), float(high)


@dataclass(frozen=True)
class Course:
    """A difference over the course of training, an entry for each evaluation."""

    steps: tuple[int, ...]
    means: tuple[float, ...]
    lows: tuple[float, ...]
    """Lower ends of pointwise 95% CIs, over seeds only, one per mean; empty for a single seed."""
    highs: tuple[float, ...]

    @property
    def turns(self) -> tuple[int, int] | None:
        """The last evaluations, by step, at which the interval lay on each side of 0.

        None if it never lay on one of the sides.
        """
        above = [step for step, low in zip(self.steps, self.lows, strict=False) if low > 0.0]
        below = [step for step, high in zip(self.steps, self.highs, strict=False) if high < 0.0]
        if not above or not below:
            return None
        first, last = sorted((above[-1], below[-1]))
        return first, last


def course(steps: ArrayLike, a: ArrayLike, b: ArrayLike, *, is_paired: bool) -> Course:
    """Compute the difference ``a - b`` at each evaluation, with pointwise intervals over seeds.

    ``steps`` is ``[E]``, ``a`` is ``[A, E]`` and ``b`` ``[B, E]``; with ``is_paired``, both have
    the same seeds in the same order, else intervals are Welch's.
    """
    from scipy.special import stdtrit

    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    means = x.mean(0) - y.mean(0)
    at = tuple(int(step) for step in np.asarray(steps))
    if min(len(x), len(y)) < 2:
        return Course(at, tuple(means.tolist()), (), ())
    if is_paired:
        variance = (x - y).var(0, ddof=1) / len(x)
        freedom = np.full(len(means), len(x) - 1.0)
    else:
        of_x, of_y = x.var(0, ddof=1) / len(x), y.var(0, ddof=1) / len(y)
        variance = of_x + of_y
        doubt = of_x**2 / (len(x) - 1) + of_y**2 / (len(y) - 1)
        freedom = np.divide(variance**2, doubt, out=np.ones_like(doubt), where=doubt > 0)
    half = -stdtrit(freedom, _LEVEL / 2) * np.sqrt(variance)
    ends = ((means - half).tolist(), (means + half).tolist())
    return Course(at, tuple(means.tolist()), tuple(ends[0]), tuple(ends[1]))


@dataclass(frozen=True)
class Ratio:
    """A ratio of costs: the geometric mean over seeds, with its 95% CI."""

    mean: float
    low: float
    high: float


def mean_ratio(ratios: ArrayLike) -> Ratio | None:
    """Estimate the ratio of two arms' costs, ``[S]``, by the t interval of its logarithm.

    None for fewer than three seeds, for a ratio of 0, and if all are equal.
    """
    values = np.asarray(ratios, dtype=float)
    if len(values) < 3 or values.min() <= 0.0:
        return None
    test = paired_t(np.log(values), np.zeros(len(values)))
    if test is None:
        return None
    mean, low, high = np.exp([test.mean, test.low, test.high])
    return Ratio(float(mean), float(low), float(high))


def power_over_seeds(
    difference: float,
    n_seeds: ArrayLike,
    *,
    seed_variance: float,
    apart: float,
    freedom_per_seed: float,
    level: float,
) -> Numbers:
    """Compute the power to detect a true difference with ``n_seeds`` seeds of each arm, ``[N]``.

    The variance of the estimate is ``seed_variance / n + apart``; no seeds reduce ``apart``.
    Degrees of freedom are ``freedom_per_seed * (n - 1)``. ``level`` is two-sided, for this test; a
    verdict in the wrong direction does not count.
    """
    from scipy.special import nctdtr, stdtrit

    n = np.asarray(n_seeds, dtype=float)
    freedom = freedom_per_seed * (n - 1)
    error = np.sqrt(seed_variance / n + apart)
    threshold = -stdtrit(freedom, level / 2)
    shift = abs(difference) / error
    # Far beyond the threshold the distribution function underflows, to NaN.
    is_far = shift > threshold + 30.0
    below = nctdtr(freedom, np.where(is_far, 0.0, shift), threshold)
    power: Numbers = np.where(is_far, 1.0, 1.0 - below)
    return power


def implied_freedom(reach: float, level: float) -> float:
    """Return the degrees of freedom of a t interval that reaches ``reach`` standard errors.

    ``level`` is two-sided. At most 10,000, as for a known standard error.
    """
    from scipy.special import stdtrit

    least, most = 0.5, 1e4
    for _ in range(60):
        middle = (least * most) ** 0.5
        if -stdtrit(middle, level / 2) > reach:
            least = middle
        else:
            most = middle
    return most


def expected_best(scores: ArrayLike, *, better: Literal["lower", "higher"]) -> Numbers:
    """Compute the expected best of 1, 2, ..., T trials drawn at random from T, ``[T]``.

    Dodge et al. 2019 ("Show your work"), sec. 3, in the unbiased form of Tang et al. 2020: trials
    are drawn without replacement. The ``i``-th worst of ``T`` is the best of ``n`` with the
    probability ``C(i - 1, n - 1) / C(T, n)``.
    """
    from scipy.special import gammaln

    values = np.sort(np.asarray(scores, dtype=float))  # the best is last
    if better == "lower":
        values = values[::-1]
    n_trials = len(values)
    rank = np.arange(1.0, n_trials + 1)
    n = rank[:, None]
    # Logarithms: the binomial coefficients of hundreds of trials overflow.
    spare = np.maximum(rank - n, 0.0)
    logs = gammaln(rank) - gammaln(n) - gammaln(spare + 1)
    logs -= gammaln(n_trials + 1) - gammaln(n + 1) - gammaln(n_trials - n + 1)
    weights = np.where(rank >= n, np.exp(logs), 0.0)
    expected: Numbers = weights @ values
    return expected
