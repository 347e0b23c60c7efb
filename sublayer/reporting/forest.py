"""Lay out the forest plot: every difference with its interval over one axis."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sublayer import numbers
from sublayer.study.results import Results


class Interval(Protocol):
    """A difference with its interval."""

    @property
    def mean(self) -> float | None:
        """None where it is not known."""

    @property
    def low(self) -> float | None:
        """None where there is no interval."""

    @property
    def high(self) -> float | None:
        """None where there is no interval."""


@dataclass(frozen=True)
class Span:
    """A stretch of the forest plot, in percent of its width."""

    place: float
    """Where it begins, from the left."""
    width: float


@dataclass(frozen=True)
class Tick:
    """A mark on the forest plot's axis."""

    place: float
    label: str


@dataclass(frozen=True)
class ForestRow:
    """One difference as places on the forest plot, in percent of its width."""

    difference: Interval
    interval: Span | None
    mean: float | None
    seeds: tuple[float, ...]


@dataclass(frozen=True)
class Forest:
    """The forest plot: intervals over one axis, all places in percent of its width."""

    rows: tuple[ForestRow, ...]
    ticks: tuple[Tick, ...]
    zero: float
    """Where no difference is."""
    left: str
    """What an arm is whose interval lies there: better or worse."""
    right: str
    margin: Span | None = None
    """Where differences lie that do not matter; None: no margin was named."""


def forest_of_results(results: Results) -> Forest:
    """Lay out the differences of a study, with those of the seeds that both arms finished."""
    by_name = {}
    for arm in results.arms:
        by_name[arm.name] = dict(zip(arm.seeds, arm.values, strict=True))
    pairs = []
    for difference in results.differences:
        values = by_name.get(difference.arm, {})
        baseline = by_name.get(difference.baseline, {})
        # A contrast of several arms has no pairs.
        seeds = difference.seeds if difference.baseline else ()
        pairs.append([values[seed] - baseline[seed] for seed in seeds])
    return lay_out_forest(
        results.differences,
        pairs,
        margin=results.margin,
        is_lower_better=results.metric.is_lower_better,
    )


def lay_out_forest(
    differences: Sequence[Interval],
    pairs: Sequence[Sequence[float]],
    *,
    margin: float | None,
    is_lower_better: bool,
) -> Forest:
    """Place every interval, mean and seed on one axis that holds them and 0.

    ``pairs`` are the differences of seeds, of each difference.
    """
    numbers = [0.0]  # all that the axis must show
    for difference, own_pairs in zip(differences, pairs, strict=True):
        numbers += own_pairs
        if difference.low is not None:
            numbers.append(difference.low)
        if difference.high is not None:
            numbers.append(difference.high)
    if margin is not None:
        numbers += [-margin, margin]
    low = min(numbers)
    high = max(numbers)
    free = 0.06 * (high - low) or 1.0
    low -= free
    high += free

    def place(value: float) -> float:
        return round(100 * (value - low) / (high - low), 2)

    left, right = "worse", "better"
    if is_lower_better:
        left, right = right, left
    rows = []
    for difference, own_pairs in zip(differences, pairs, strict=True):
        rows.append(_forest_row(difference, own_pairs, place))
    ticks = [Tick(place(value), label) for value, label in _ticks(low, high)]
    shaded = None
    if margin is not None:
        begin = place(-margin)
        shaded = Span(begin, round(place(margin) - begin, 2))
    return Forest(tuple(rows), tuple(ticks), zero=place(0.0), left=left, right=right, margin=shaded)


def _forest_row(
    difference: Interval, pairs: Sequence[float], place: Callable[[float], float]
) -> ForestRow:
    span = None
    if difference.low is not None and difference.high is not None:
        begin = place(difference.low)
        end = place(difference.high)
        span = Span(begin, round(end - begin, 2))
    mean = None if difference.mean is None else place(difference.mean)
    seeds = tuple(place(value) for value in pairs)
    return ForestRow(difference, span, mean, seeds)


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Return round values between two ends, about six, with their labels."""
    rough = (high - low) / 6
    unit = 10 ** math.floor(math.log10(rough))
    steps = [unit * factor for factor in (1, 2, 5, 10)]
    step = min(each for each in steps if each >= rough)
    decimals = max(0, -math.floor(math.log10(step)))
    first = math.ceil(low / step)
    last = math.floor(high / step)
    ticks = []
    for n in range(first, last + 1):
        value = n * step
        label = numbers.format_signed(value, decimals) if n else "0"
        ticks.append((value, label))
    return ticks
