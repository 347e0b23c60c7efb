"""How far a difference is known: over seeds, over the items of the test, and over tuning."""

import math
from dataclasses import dataclass

from sublayer.statistics.difference import Parts
from sublayer.statistics.items import ItemSpread
from sublayer.statistics.power import detectable_effect
from sublayer.statistics.seeds import Estimate


@dataclass(frozen=True)
class WholeEstimate:
    """What is known of one contrast, over seeds, items and tuning together."""

    seeds: Estimate
    items: ItemSpread | None
    choice: float = 0.0
    """The variance over what tuning chooses."""

    @property
    def apart(self) -> float:
        """The variance that no number of seeds takes away."""
        return self.choice + (self.items.alone if self.items else 0.0)

    @property
    def variance(self) -> float:
        """The variance of the difference."""
        return self.seeds.variance + self.apart

    @property
    def error(self) -> float:
        """The standard error of the difference."""
        return math.sqrt(self.variance)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the variance (Satterthwaite 1946)."""
        return self._freedom(self.seeds.variance, self.seeds.freedom)

    @property
    def parts(self) -> Parts:
        """The standard error's parts: other seeds, other items, another choice in tuning."""
        tuning = math.sqrt(self.choice)
        if self.items is None:
            return Parts(math.sqrt(self.seeds.variance), None, tuning)
        own = max(self.seeds.variance - self.items.both, 0.0)
        return Parts(math.sqrt(own), math.sqrt(self.items.alone), tuning)

    def detectable(self, times: float, level: float, scale: float = 1.0) -> float:
        """Return what is detectable of ``times`` as many seeds, their spread ``scale`` as large."""
        of_seeds = self.seeds.variance * scale**2 / times
        variance = of_seeds + self.apart
        # All degrees of freedom are of seeds: they grow with them.
        freedom = self._freedom(of_seeds, max(self.seeds.freedom * times, 1.0))
        return detectable_effect(round(freedom, 1), level) * math.sqrt(variance)

    def _freedom(self, of_seeds: float, freedom: float) -> float:
        # What tuning chooses is known no better than the spread over seeds that it follows from.
        doubt = (of_seeds + self.choice) ** 2 / freedom
        if self.items is not None and self.items.alone:
            doubt += self.items.whole**2 / self.items.freedom
        if not doubt:
            return freedom
        return max((of_seeds + self.apart) ** 2 / doubt, 1.0)
