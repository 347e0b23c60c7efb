"""Which differences a comparison can find: power, and how many seeds it takes."""

import math
from collections.abc import Callable
from functools import lru_cache

from sublayer.statistics.difference import CONFIDENCE, FEWEST_SEEDS, MOST_SEEDS, POWER


@lru_cache(maxsize=4096)
def detectable_effect(freedom: float, level: float) -> float:
    """Compute the true difference, in standard errors, that a t test finds four times in five.

    ``level`` is two-sided, of this one test. The chance of a verdict in the wrong direction is
    neglected.
    """
    from scipy.special import nctdtrinc, stdtrit

    threshold = -float(stdtrit(freedom, level / 2))
    return float(nctdtrinc(freedom, 1.0 - POWER, threshold))


def spread_interval(sd: float, freedom: float) -> tuple[float, float]:
    """Compute the 95% CI of a standard deviation, as the chi-squared distribution gives it."""
    from scipy.special import chdtri

    tail = (1 - CONFIDENCE) / 2
    # What chi-squared exceeds with the probability that is given.
    low = sd * math.sqrt(freedom / float(chdtri(freedom, tail)))
    high = sd * math.sqrt(freedom / float(chdtri(freedom, 1 - tail)))
    return low, high


def seeds_for(detectable: Callable[[int], float], difference: float) -> int | None:
    """Find the fewest seeds of which ``detectable`` is at most a difference; None: over a thousand.

    ``detectable`` never rises with the number of seeds. No number of them finds a difference of 0.
    """
    size = abs(difference)
    if not size or detectable(MOST_SEEDS) > size:
        return None
    low, high = FEWEST_SEEDS - 1, MOST_SEEDS  # too few, and enough
    while high - low > 1:
        middle = (low + high) // 2
        if detectable(middle) <= size:
            high = middle
        else:
            low = middle
    return high
