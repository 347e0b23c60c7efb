"""What is compared: weights of arms, whose weighted sum of means is 0 where they are alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of the means of arms; one arm less another, mostly."""

    arm: str
    """The arm, or what the contrast is called."""
    baseline: str
    """The arm that is taken away; empty of a contrast of more than two."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """By arm; they add up to 0."""

    @property
    def name(self) -> str:
        """What it is found by among the contrasts of a comparison."""
        return f"{self.arm}\n{self.baseline}"

    @property
    def positive(self) -> tuple[str, ...]:
        """The arms that are added."""
        return tuple(arm for arm, weight in self.weights.items() if weight > 0)

    @property
    def negative(self) -> tuple[str, ...]:
        """The arms that are taken away."""
        return tuple(arm for arm, weight in self.weights.items() if weight < 0)


def arm_less(arm: str, baseline: str) -> Contrast:
    """Return the contrast of one arm less another."""
    return Contrast(arm, baseline, {arm: 1.0, baseline: -1.0})


def shared_correlation(contrasts: Sequence[Contrast]) -> NDArray[np.float64]:
    """Return the correlation of contrasts of arms whose means are equally sure, ``[C, C]``."""
    arms = list(dict.fromkeys(arm for each in contrasts for arm in each.weights))
    rows = [[each.weights.get(arm, 0.0) for arm in arms] for each in contrasts]
    weights = np.array(rows, dtype=np.float64)
    norms = np.sqrt((weights**2).sum(1))
    correlation: NDArray[np.float64] = (weights @ weights.T) / np.outer(norms, norms)
    return correlation
