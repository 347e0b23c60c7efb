"""When a comparison is judged, and how much of its error each look may spend."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sublayer.errors import ConfigError
from sublayer.statistics.difference import CONFIDENCE, FEWEST_SEEDS, FOR_PAIRING

ERROR = 1.0 - CONFIDENCE - FOR_PAIRING
"""The probability of a false verdict, of all comparisons and looks together."""
AT_FIRST = 0.8
"""The share of it for a comparison of a fixed number of seeds; further looks, which may come or
not, spend half of what is left each."""
_PATTERN = (3, 5, 8, 12, 20)
_DRAWS = 100_000
_SEED = 18080444


@dataclass(frozen=True)
class Looks:
    """The numbers of seeds at which a comparison is judged.

    ``planned`` are stated before the first run. A comparison of a fixed number of seeds has one,
    and may go on: every further number of seeds is a look that spends less. One that stops where
    it is decided has several, and ends with the last.
    """

    planned: tuple[int, ...]
    is_sequential: bool = False

    def levels(self, taken: Sequence[int], n_comparisons: int) -> dict[int, float]:
        """Return the probability of a false verdict that each look may spend.

        ``taken`` are the numbers of seeds of all looks so far, in turn, that of a fixed plan
        follows them; so few that they give no verdict are none. ``n_comparisons`` are judged
        together.
        """
        if self.is_sequential:
            level = _level_of_each(self.planned, n_comparisons)
            return dict.fromkeys(self.planned, level)
        levels: dict[int, float] = {}
        left = ERROR
        for look in self.all_after(taken):
            levels[look] = left / 2 if levels else AT_FIRST * ERROR
            left -= levels[look]
        return levels

    def all_after(self, taken: Sequence[int]) -> tuple[int, ...]:
        """Return the numbers of seeds of all looks: the planned, behind those that were taken."""
        if self.is_sequential:
            return self.planned
        looks = dict.fromkeys((*taken, *self.planned))
        return tuple(look for look in looks if look >= FEWEST_SEEDS)


def fixed(n_seeds: int) -> Looks:
    """Plan one look, at so many seeds."""
    return Looks((n_seeds,))


def until_decided(at_most: int) -> Looks:
    """Plan looks at 3, 5, 8, 12 and 20 seeds, and from there on at half as many more, to the last.

    Raises ConfigError where that would be a single look.
    """
    if at_most <= FEWEST_SEEDS:
        raise ConfigError(
            f"--seeds-at-most {at_most} leaves a single look: give at least {FEWEST_SEEDS + 1}"
        )
    looks = [look for look in _PATTERN if look < at_most]
    while round(looks[-1] * 1.5) < at_most and looks[-1] >= _PATTERN[-1]:
        looks.append(round(looks[-1] * 1.5))
    # A last step of one seed more is hardly a look.
    if len(looks) > 1 and at_most - looks[-1] < 2:
        looks.pop()
    return Looks((*looks, at_most), is_sequential=True)


@lru_cache(maxsize=64)
def _level_of_each(looks: tuple[int, ...], n_comparisons: int) -> float:
    """Return the equal level of each look (Pocock 1977) by which all together spend the error.

    Of means of normal numbers, arms against one baseline, drawn: t tests at these levels keep the
    error closely (Jennison and Turnbull 2000, sec. 4.4).
    """
    generator = np.random.default_rng(_SEED)
    counts = np.array(looks, dtype=np.float64)
    steps = np.sqrt(np.diff(counts, prepend=0.0))
    largest = np.zeros((_DRAWS, len(looks)))
    baseline = generator.standard_normal((_DRAWS, len(looks))) * steps
    for _ in range(max(1, n_comparisons)):
        own = generator.standard_normal((_DRAWS, len(looks))) * steps
        sums = np.cumsum(own - baseline, axis=1)
        np.maximum(largest, np.abs(sums) / np.sqrt(2 * counts), out=largest)
    threshold = np.quantile(largest.max(1), 1.0 - ERROR)
    return float((largest > threshold).mean())
