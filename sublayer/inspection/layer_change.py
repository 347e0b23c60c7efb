"""What a block does to tokens: its distance and angle, and what several models' are on average."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

QUANTITIES = ("distance", "cosine", "angle_degrees", "norm_in", "norm_out")
"""The quantities of a ``LayerChange``, in its order."""


@dataclass(frozen=True)
class Spread:
    """A quantity over tokens: its mean, and its lower quartile, median and upper quartile."""

    mean: float
    quartiles: tuple[float, float, float]


@dataclass(frozen=True)
class LayerChange:
    """How an executed block, from 1, changes tokens, and their L2 norms before and after."""

    layer: int
    distance: Spread
    """L2, between a token's state before the block and after it."""
    cosine: Spread
    """From -1 to 1, of the angle between the two states."""
    angle_degrees: Spread
    """From 0 to 180."""
    norm_in: Spread
    norm_out: Spread
    is_beyond: bool = field(default=False, kw_only=True)
    """Whether the model itself ends before it: a shared block that was run further."""

    def spread(self, quantity: str) -> Spread:
        """Return one of its ``QUANTITIES``."""
        spread: Spread = getattr(self, quantity)
        return spread


def flat(change: LayerChange) -> dict[str, Any]:
    """Return a block's means by name, and after them the quartiles, as JSON shows them."""
    means = {}
    quartiles = {}
    for name in QUANTITIES:
        spread = change.spread(name)
        means[name] = finite(spread.mean)
        quartiles[f"{name}_quartiles"] = [finite(value) for value in spread.quartiles]
    return {"layer": change.layer, "is_beyond": change.is_beyond, **means, **quartiles}


def finite(value: float) -> float | None:
    """Return a number as JSON has it: None where it is not finite."""
    return value if math.isfinite(value) else None


def mean_changes(models: Sequence[Sequence[LayerChange]]) -> list[LayerChange]:
    """Average each block over models of equally many: means, and each quartile by itself."""
    averaged = []
    for changes in zip(*models, strict=True):
        spreads = [_mean_spread([each.spread(name) for each in changes]) for name in QUANTITIES]
        first = changes[0]
        averaged.append(LayerChange(first.layer, *spreads, is_beyond=first.is_beyond))
    return averaged


def _mean_spread(spreads: Sequence[Spread]) -> Spread:
    means = [spread.mean for spread in spreads]
    lower, median, upper = zip(*(spread.quartiles for spread in spreads), strict=True)
    return Spread(_mean(means), (_mean(lower), _mean(median), _mean(upper)))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
