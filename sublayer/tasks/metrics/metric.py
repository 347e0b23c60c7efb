"""A metric: how it is called and shown, and what each unit of a set contributes to it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sublayer.tasks.example import Example
from sublayer.tasks.metrics.units import Units
from sublayer.tasks.prediction import Prediction

Numbers = NDArray[np.float64]
Predictions = Sequence[Prediction | None]
"""One for each example, in their order; None where there is none."""


class Contributions(ABC):
    """What units contribute to a metric, so that it is known of any sample of them."""

    reason: str = ""
    """Why the metric has no value of all units and is 0; empty where it has one."""

    @property
    @abstractmethod
    def n_units(self) -> int:
        """Return the number of units."""

    @abstractmethod
    def at(self, weights: Numbers) -> Numbers:
        """Return the metric of samples, [R], of how often each has each unit, [R, U]."""

    @abstractmethod
    def influences(self) -> Numbers:
        """Return how far each unit moves the metric, [U]: as pseudo-values, less their mean.

        Their variance by the number of units is that of the metric (Efron 1982, the jackknife).
        """

    @property
    def value(self) -> float:
        """Return the metric of all units; 0 where it has no value."""
        if self.reason:
            return 0.0
        return float(self.at(np.ones((1, self.n_units)))[0])


@dataclass
class Sums(Contributions):
    """A metric that follows from sums over units."""

    columns: Numbers
    """What each unit adds, [U, K]."""
    from_sums: Callable[[Numbers], Numbers]
    """Computes the metric, [R], from sums of the columns, [R, K]."""
    reason: str = ""

    @property
    def n_units(self) -> int:
        """Return the number of rows."""
        return len(self.columns)

    def at(self, weights: Numbers) -> Numbers:
        """Return the metric of weighted sums."""
        return self.from_sums(weights @ self.columns)

    def influences(self) -> Numbers:
        """Return what changes where a unit is left out, times all others."""
        without_each = self.from_sums(self.columns.sum(0) - self.columns)
        moved: Numbers = (self.n_units - 1) * (without_each.mean() - without_each)
        return moved


@dataclass(frozen=True)
class Metric:
    """A row of ``METRICS``."""

    name: str
    """As ``Task.metrics`` says it."""
    title: str
    """As tables head it."""
    contributions: Callable[[Sequence[Example], Predictions, Units], Contributions]
    """Computes what each unit contributes. Examples are labelled, and there are some."""
    is_beside: bool = False
    """Whether it is reported beside a task's score, and is no part of that."""


def quotient(above: Numbers, below: Numbers) -> Numbers:
    """Divide, where there is something to divide by: elsewhere the result is 0."""
    result = np.zeros(np.broadcast_shapes(above.shape, below.shape))
    np.divide(above, below, out=result, where=below > 0)
    return result
