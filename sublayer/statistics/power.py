"""Power: which differences a comparison can find, and how many seeds it takes."""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from sublayer.statistics.covariance import SeedSpreads, known_spread
from sublayer.statistics.difference import FEWEST_SEEDS, MOST_SEEDS, POWER
from sublayer.statistics.items import ItemSpread
from sublayer.statistics.scores import Numbers, Scores, against_baseline
from sublayer.statistics.simultaneous import (
    NODE_WEIGHTS,
    Largest,
    Uncertainty,
    correlation_of,
    inverse_chi2,
)

_DRAWS = 48
_SEED = 20060810
_MOST_DRAWN = 20
"""Seeds, beyond which an interval's width hardly varies: its expectation serves."""


@lru_cache(maxsize=4096)
def detectable_effect(freedom: float, level: float) -> float:
    """Compute the true difference, in standard errors, that a t test finds four times in five.

    ``level`` is two-sided, of this one test. The chance of a verdict in the wrong direction is
    neglected.
    """
    from scipy.special import stdtrit

    thresholds = -float(stdtrit(freedom, level / 2)) / np.sqrt(inverse_chi2(freedom))
    return _found_at(thresholds, NODE_WEIGHTS, 1.0)


def seeds_for(
    detectable: Callable[[int], float], difference: float, most: int = MOST_SEEDS
) -> int | None:
    """Find the fewest seeds whose ``detectable`` is at most a difference; None: more than ``most``.

    ``detectable`` never rises with the number of seeds. No number of them finds a difference of 0.
    """
    size = abs(difference)
    if not size or detectable(most) > size:
        return None
    low, high = FEWEST_SEEDS - 1, most  # too few, and enough
    while high - low > 1:
        middle = (low + high) // 2
        if detectable(middle) <= size:
            high = middle
        else:
            low = middle
    return high


@lru_cache(maxsize=1024)
def planned_detectable(n_arms: int, n_seeds: int, level: float, item_error: float = 0.0) -> float:
    """Compute the difference that a study will find four times in five, before it has run.

    All arms are compared with one; each spreads over seeds, beside what all share of a seed, with
    the standard deviation 1, the unit of the result. ``item_error`` is the standard error of a
    difference over test items. Intervals are those that the judge gives to simulated scores.
    """
    if n_arms <= 2 and not item_error:
        return detectable_effect(n_seeds - 1.0, level) * math.sqrt(2.0 / n_seeds)
    arms = tuple(map(str, range(max(n_arms, 2))))
    contrasts = against_baseline(arms, arms[0])
    n = min(n_seeds, _MOST_DRAWN)
    shrink = math.sqrt(n / n_seeds)
    # At most so many seeds are drawn; the spread of a mean is that of all of them.
    error = item_error / shrink
    items = ItemSpread(known_spread(0.0, error**2, 1e4, 10_000), 0.0) if error else None
    generator = np.random.default_rng(_SEED)
    halves = np.empty(_DRAWS)
    for draw in range(_DRAWS):
        values = generator.standard_normal((len(arms), n))
        failed = np.zeros(values.shape, dtype=np.bool_)
        spreads = SeedSpreads(Scores(arms, tuple(range(n)), values, failed), arms[0])
        largest = Largest(correlation_of(spreads.mean_covariance(contrasts)), len(contrasts))
        spread = spreads.spread(contrasts[0])
        assert spread is not None, "scores are complete"
        uncertainty = Uncertainty(spread, items).calibrated(level, largest)
        halves[draw] = uncertainty.half_width(level, largest)
    true_error = math.sqrt(2.0 / n + error**2)
    return shrink * _found_at(halves, np.full(_DRAWS, 1.0 / _DRAWS), true_error)


def _found_at(halves: Numbers, weights: Numbers, error: float) -> float:
    """Return the difference whose estimate exceeds half-widths with the probability ``POWER``."""
    from scipy.special import ndtr

    low, high = 0.0, float(halves.max()) + 4.0 * error
    for _ in range(40):
        middle = (low + high) / 2.0
        if float(ndtr((middle - halves) / error) @ weights) < POWER:
            low = middle
        else:
            high = middle
    return high
