"""Metrics of numbers: Pearson's correlation, and Spearman's of ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sublayer.tasks.example import Example
from sublayer.tasks.metrics.metric import Contributions, Numbers, Predictions, Sums, quotient
from sublayer.tasks.metrics.units import Units

_ROUNDING = 1e-12
"""A variance, as a part of that of the whole set, that is none."""
_MOST_WEIGHTS = 1 << 22
"""Of samples whose ranks are computed at once."""
Places = NDArray[np.int64]


def pearson(examples: Sequence[Example], predictions: Predictions, units: Units) -> Sums:
    """Correlate the numbers, from -1 to 1; 0 where either side is constant.

    A text that is no number counts as one below all that are right: by a fifth of their range, as
    T5's -1 lies below 0 to 5.
    """
    gold, predicted, reason = _numbers(examples, predictions)
    x, y = _standardised(gold), _standardised(predicted)
    columns = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)
    return Sums(units.sums(columns), _correlation, reason)


def spearman(examples: Sequence[Example], predictions: Predictions, units: Units) -> "Ranks":
    """Correlate the ranks, from -1 to 1; equal numbers have the mean of their ranks.

    Otherwise as ``pearson``.
    """
    gold, predicted, reason = _numbers(examples, predictions)
    return Ranks(units, _places(gold), _places(predicted), reason)


@dataclass
class Ranks(Contributions):
    """Pairs of numbers, which have other ranks in each sample."""

    units: Units
    gold: Places
    """The place of each example's number among the distinct ones, from 0, [N]."""
    predicted: Places
    reason: str = ""

    @property
    def n_units(self) -> int:
        """Return the number of units."""
        return self.units.n

    def at(self, weights: Numbers) -> Numbers:
        """Return the correlation of the ranks in each sample."""
        size = max(1, _MOST_WEIGHTS // len(self.gold))
        parts = [weights[first : first + size] for first in range(0, len(weights), size)]
        return np.concatenate([self._of(part[:, self.units.of_examples]) for part in parts])

    def _of(self, weights: Numbers) -> Numbers:
        total = weights.sum(1, keepdims=True)
        # The mean rank is half of what there is.
        x = _ranks(self.gold, weights) - total / 2  # [R, N]
        y = _ranks(self.predicted, weights) - total / 2
        covariance = (weights * x * y).sum(1)
        deviation = np.sqrt((weights * x * x).sum(1)) * np.sqrt((weights * y * y).sum(1))
        return quotient(covariance, deviation)

    def influences(self) -> Numbers:
        """Return the correlation's derivatives by the weights of the units, times their number.

        An example adds its own product, and moves the ranks of all that lie above it.
        """
        ones = np.ones((1, len(self.gold)))
        half = len(self.gold) / 2
        x = _ranks(self.gold, ones)[0] - half
        y = _ranks(self.predicted, ones)[0] - half
        by_covariance = x * y + _above(self.gold, y) + _above(self.predicted, x)
        by_x = x * x + 2 * _above(self.gold, x)
        by_y = y * y + 2 * _above(self.predicted, y)
        deviation = np.sqrt((x * x).sum() * (y * y).sum())
        correlation = (x * y).sum() / deviation
        slopes = by_covariance / deviation
        slopes -= correlation / 2 * (by_x / (x * x).sum() + by_y / (y * y).sum())
        return self.n_units * self.units.sums(slopes[:, None])[:, 0]


def _numbers(examples: Sequence[Example], predictions: Predictions) -> tuple[Numbers, Numbers, str]:
    """Return what is right, what was predicted, and why they have no correlation."""
    gold = np.array([example.label for example in examples], dtype=np.float64)
    none = gold.min() - np.ptp(gold) / 5
    labels = [none if each is None or each.label is None else each.label for each in predictions]
    predicted = np.array(labels, dtype=np.float64)
    if not np.isfinite(predicted).all():
        n = np.count_nonzero(~np.isfinite(predicted))
        return gold, np.zeros_like(gold), f"{n:,} of the predicted numbers are not finite"
    if np.ptp(predicted) == 0:
        return gold, predicted, "all predictions are the same"
    if np.ptp(gold) == 0:
        return gold, predicted, "all labels are the same"
    return gold, predicted, ""


def _standardised(numbers: Numbers) -> Numbers:
    """Subtract the mean and divide by the deviation, so that sums of squares lose no digits."""
    # By the range first: the square of a number may be none that there is.
    scaled = (numbers - numbers[0]) / (np.ptp(numbers) or 1.0)
    deviation = scaled.std()
    result: Numbers = (scaled - scaled.mean()) / (deviation or 1.0)
    return result


def _correlation(sums: Numbers) -> Numbers:
    n, x, y, xx, yy, xy = sums.T
    x_variance, y_variance = n * xx - x * x, n * yy - y * y
    below = np.sqrt(np.maximum(x_variance, 0) * np.maximum(y_variance, 0))
    is_constant = np.minimum(x_variance, y_variance) <= _ROUNDING * n * n
    return quotient(n * xy - x * y, np.where(is_constant, 0, below))


def _places(numbers: Numbers) -> Places:
    return np.unique(numbers, return_inverse=True)[1].astype(np.int64)


def _ranks(places: Places, weights: Numbers) -> Numbers:
    """Return the rank of each number, [R, N]: what lies below it, and half of what is equal."""
    n_places = int(places.max()) + 1
    rows = np.arange(len(weights))[:, None] * n_places
    at_places = np.bincount((rows + places).ravel(), weights.ravel(), len(weights) * n_places)
    at_places = at_places.reshape(len(weights), n_places)
    ranks: Numbers = (at_places.cumsum(1) - at_places / 2)[:, places]
    return ranks


def _above(places: Places, values: Numbers) -> Numbers:
    """Return for each example the sum of values that lie above it, and half of those equal."""
    at_places = np.bincount(places, values)
    sums: Numbers = (values.sum() - at_places.cumsum() + at_places / 2)[places]
    return sums
