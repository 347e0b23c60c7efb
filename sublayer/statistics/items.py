"""How far other test items would move a difference, beside what other seeds would."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sublayer.statistics.contrast import Contrast

Effects = NDArray[np.float64]
"""``[N]`` in the metric's unit: how the metric moves when a unit of the test counts once more."""
ArmEffects = Mapping[int, Effects]
"""The effects of the units of a test, ``[N]`` each, by seed."""


@dataclass(frozen=True)
class ItemSpread:
    """The variance of a mean difference over the items of its test, whose seeds are all the same.

    Seeds and items are crossed: every seed is scored on the same items. So the variance of a mean
    over ``S`` seeds and ``N`` items is ``seeds / S + items / N + both / (S N)``. The last, of what
    a seed and an item have of each other, stands in the spread between seeds already.
    """

    whole: float
    """Of the mean over seeds: ``items / N + both / (S N)``."""
    both: float
    """Of that, what more seeds would take away too: ``both / (S N)``."""
    freedom: float

    @property
    def alone(self) -> float:
        """What no number of seeds takes away: ``items / N``."""
        return max(self.whole - self.both, 0.0)


def item_spread(
    effects: Mapping[str, ArmEffects], contrast: Contrast, *, is_paired: bool
) -> ItemSpread | None:
    """Estimate the spread of a contrast over items (two-way random effects, crossed).

    ``is_paired``: of contrasts seed by seed, of the seeds that all arms have. None where units of a
    test are missing or were not the same.
    """
    arms = [effects.get(arm, {}) for arm in contrast.weights]
    weights = list(contrast.weights.values())
    if is_paired:
        seeds = sorted(set.intersection(*(set(own) for own in arms)))
        if len(seeds) < 2:
            return None
        stacked = np.zeros((len(seeds), len(next(iter(arms[0].values())))))
        for weight, own in zip(weights, arms, strict=True):
            stacked += weight * np.stack([own[seed] for seed in seeds])
        return _spread([stacked], stacked.mean(0))
    if any(len(own) < 2 for own in arms):
        return None
    stacks = [
        weight * np.stack(list(own.values())) for weight, own in zip(weights, arms, strict=True)
    ]
    return _spread(stacks, np.sum([stack.mean(0) for stack in stacks], axis=0))


def _spread(stacks: list[Effects], means: Effects) -> ItemSpread:
    n_units = len(means)
    scale = n_units / (n_units - 1)
    both = 0.0
    for stack in stacks:
        residuals = stack - stack.mean(0)
        n_seeds = len(stack)
        own = float((residuals**2).sum()) * scale / (n_seeds - 1)  # of one seed, over items
        both += own / n_seeds
    centred = means - means.mean()
    whole = float((centred**2).sum()) * scale
    return ItemSpread(whole, both, n_units - 1)
