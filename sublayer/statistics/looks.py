"""Looks at which a comparison is judged, the error that each may spend, and the power of seeds."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from sublayer.errors import ConfigError
from sublayer.statistics.contrasts import (
    DECIDED,
    ERROR,
    FEWEST_SEEDS,
    MOST_SEEDS,
    POWER,
    Difference,
    Judgement,
    Numbers,
    RunScores,
    against_baseline,
)
from sublayer.statistics.covariance import ItemSpread, SeedSpreads, known_spread
from sublayer.statistics.simultaneous import (
    NODE_WEIGHTS,
    Largest,
    Uncertainty,
    correlation_of,
    inverse_chi2,
)

GOING_ON = 0.005
"""Error spent by the first look beyond a fixed plan, halved at each further one: a study of a fixed
number of seeds has spent 5 % with its plan, and reports any further error."""
_PATTERN = (3, 5, 8, 12, 20)
_DRAWS = 100_000
_SEED = 18080444
_SIMULATED = 48
_POWER_SEED = 20060810
_MOST_DRAWN = 20
"""Seeds beyond which an interval's width hardly varies: its expectation serves."""


@dataclass(frozen=True)
class Looks:
    """The numbers of seeds at which a comparison is judged.

    ``planned`` are stated before the first run. A comparison of a fixed number of seeds has one,
    and may continue: every further number of seeds is a look that spends less. A sequential one has
    several, and stops once decided, or at the last.
    """

    planned: tuple[int, ...]
    is_sequential: bool = False

    def levels(self, taken: Sequence[int], n_comparisons: int) -> dict[int, float]:
        """Return the probability of a false verdict allotted to each look.

        ``taken`` are the numbers of seeds of all looks so far, in order; a fixed plan's follows
        them, and numbers too small for a verdict do not count. ``n_comparisons`` are judged
        together.
        """
        looks = self.all_after(taken)
        if self.is_sequential:
            return dict.fromkeys(looks, _level_of_each(self.planned, n_comparisons))
        further = {look: GOING_ON * 0.5 ** (n - 1) for n, look in enumerate(looks)}
        return {**further, **dict.fromkeys(looks[:1], ERROR)}

    def level_of(self, look: int, taken: Sequence[int], n_comparisons: int) -> float:
        """Return the level of a look; a fixed plan's for one with too few seeds for verdicts."""
        return self.levels(taken, n_comparisons).get(look, ERROR)

    def next_level(self, taken: Sequence[int], n_comparisons: int) -> float:
        """Return the level of the look after the last one."""
        if self.is_sequential:
            return _level_of_each(self.planned, n_comparisons)
        further = max(len(self.all_after(taken)) - 1, 0)
        return GOING_ON * 0.5**further

    def all_after(self, taken: Sequence[int]) -> tuple[int, ...]:
        """Return the numbers of seeds of all looks: taken, then planned; if sequential, planned."""
        if self.is_sequential:
            return self.planned
        looks = dict.fromkeys((*taken, *self.planned))
        return tuple(look for look in looks if look >= FEWEST_SEEDS)


def fixed(n_seeds: int) -> Looks:
    """Plan one look, at ``n_seeds`` seeds."""
    return Looks((n_seeds,))


def until_decided(at_most: int) -> Looks:
    """Plan looks at 3, 5, 8, 12 and 20 seeds, then each 1.5 times the last, up to ``at_most``.

    Raises ConfigError if that is a single look.
    """
    if at_most <= FEWEST_SEEDS:
        raise ConfigError(
            f"--seeds-at-most {at_most} allows only a single look: give at least {FEWEST_SEEDS + 1}"
        )
    looks = [look for look in _PATTERN if look < at_most]
    while round(looks[-1] * 1.5) < at_most and looks[-1] >= _PATTERN[-1]:
        looks.append(round(looks[-1] * 1.5))
    # A last step of one seed is hardly a look.
    if len(looks) > 1 and at_most - looks[-1] < 2:
        looks.pop()
    return Looks((*looks, at_most), is_sequential=True)


@lru_cache(maxsize=64)
def _level_of_each(looks: tuple[int, ...], n_comparisons: int) -> float:
    """Return the equal level of each look (Pocock 1977) that spends the error over all looks.

    Simulated for means of normal numbers, arms against one baseline: t tests at these levels keep
    the error closely (Jennison and Turnbull 2000, sec. 4.4).
    """
    generator = np.random.default_rng(_SEED)
    counts = np.array(looks, dtype=np.float64)
    steps = np.sqrt(np.diff(counts, prepend=0.0))
    largest = np.zeros((_DRAWS, len(looks)))
    baseline = generator.standard_normal((_DRAWS, len(looks))) * steps
    for _ in range(max(1, n_comparisons)):
        arm = generator.standard_normal((_DRAWS, len(looks))) * steps
        sums = np.cumsum(arm - baseline, axis=1)
        np.maximum(largest, np.abs(sums) / np.sqrt(2 * counts), out=largest)
    threshold = np.quantile(largest.max(1), 1.0 - ERROR)
    return float((largest > threshold).mean())


JudgeAt = Callable[[int], Judgement]
"""Judges by the first ``n`` seeds."""


def judge_looks(judge_at: JudgeAt, looks: Iterable[int]) -> Judgement:
    """Judge at each look in turn; a verdict keeps the interval of the look that decided it.

    ``looks`` are numbers of seeds in order, each with all runs of active arms ended.
    """
    standing: dict[tuple[str, str], Difference] = {}
    latest = None
    for look in looks:
        latest = judge_at(look)
        for difference in latest.differences:
            key = difference.arm, difference.baseline
            earlier = standing.get(key)
            if earlier is None or earlier.verdict not in DECIDED:
                standing[key] = difference
    assert latest is not None, "a comparison is judged at a look"
    return replace(latest, differences=tuple(standing.values()))


def without_verdicts(judgement: Judgement) -> Judgement:
    """Return differences without verdict and p, as for a secondary metric."""
    shown = [
        replace(difference, verdict="no verdict", p=None) for difference in judgement.differences
    ]
    return replace(judgement, differences=tuple(shown))


def unfinished(judgement: Judgement, n_seeds: int) -> Judgement:
    """Return differences without intervals and verdicts, while runs of ``n_seeds`` have not ended.

    An interval would be an uncounted look.
    """
    note = f"unfinished: judged once all {n_seeds} seeds have ended"
    shown = [
        Difference(
            difference.arm,
            difference.baseline,
            difference.seeds,
            difference.mean,
            verdict="no verdict",
            n_failed=difference.n_failed,
            n_seeds=difference.n_seeds,
            note=note,
        )
        for difference in judgement.differences
    ]
    return replace(judgement, differences=tuple(shown), pairing=None)


def undecided_arms(judgement: Judgement, arms: Iterable[str], weights: Iterable[str]) -> set[str]:
    """Return the arms that continue: the arms of undecided differences.

    ``weights`` are the arms of a contrast of several, which continue until it is decided.
    """
    going_on = set()
    for difference in judgement.differences:
        # A comparison without a verdict has none at later looks either.
        if difference.verdict in DECIDED or difference.verdict == "no verdict":
            continue
        if difference.baseline:
            going_on |= {difference.arm, difference.baseline}
        else:
            going_on |= set(weights)
    return going_on & set(arms)


@lru_cache(maxsize=4096)
def detectable_effect(freedom: float, level: float) -> float:
    """Compute the true difference, in standard errors, that a t test detects with power 0.8.

    ``level`` is two-sided, for this test. Verdicts in the wrong direction are neglected.
    """
    from scipy.special import stdtrit

    thresholds = -float(stdtrit(freedom, level / 2)) / np.sqrt(inverse_chi2(freedom))
    return _found_at(thresholds, NODE_WEIGHTS, 1.0)


def seeds_for(
    detectable: Callable[[int], float], difference: float, most: int = MOST_SEEDS
) -> int | None:
    """Find the fewest seeds with ``detectable`` at most a difference; None: more than ``most``.

    ``detectable`` never rises with the number of seeds. No number detects a difference of 0.
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
    """Compute the difference that a study will detect with power 0.8, before it has run.

    All arms are compared with one; without the shared part of a seed, an arm's standard deviation
    over seeds is 1, the unit of the result. ``item_error`` is the standard error of a difference
    over test items. Intervals are the judge's for simulated scores.
    """
    if n_arms <= 2 and not item_error:
        return detectable_effect(n_seeds - 1.0, level) * math.sqrt(2.0 / n_seeds)
    arms = tuple(map(str, range(max(n_arms, 2))))
    contrasts = against_baseline(arms, arms[0])
    n = min(n_seeds, _MOST_DRAWN)
    shrink = math.sqrt(n / n_seeds)
    # At most ``_MOST_DRAWN`` seeds are drawn; widths are scaled to ``n_seeds``.
    error = item_error / shrink
    items = ItemSpread(known_spread(0.0, error**2, 1e4, 10_000), 0.0) if error else None
    generator = np.random.default_rng(_POWER_SEED)
    halves = np.empty(_SIMULATED)
    for draw in range(_SIMULATED):
        values = generator.standard_normal((len(arms), n))
        failed = np.zeros(values.shape, dtype=np.bool_)
        spreads = SeedSpreads(RunScores(arms, tuple(range(n)), values, failed), arms[0])
        correlation = None
        if not spreads.are_separate:
            correlation = correlation_of(spreads.covariance(contrasts))
        largest = Largest(correlation, len(contrasts))
        spread = spreads.spread(contrasts[0])
        assert spread is not None, "scores are complete"
        uncertainty = Uncertainty(spread, items).calibrated(level, largest)
        halves[draw] = uncertainty.half_width(level, largest)
    true_error = math.sqrt(2.0 / n + error**2)
    return shrink * _found_at(halves, np.full(_SIMULATED, 1.0 / _SIMULATED), true_error)


def _found_at(halves: Numbers, weights: Numbers, error: float) -> float:
    """Return the true difference with an estimate beyond half-widths with probability ``POWER``."""
    from scipy.special import ndtr

    low, high = 0.0, float(halves.max()) + 4.0 * error
    for _ in range(40):
        middle = (low + high) / 2.0
        if float(ndtr((middle - halves) / error) @ weights) < POWER:
            low = middle
        else:
            high = middle
    return high
