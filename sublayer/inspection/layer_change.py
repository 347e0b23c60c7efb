"""Change of hidden states by a block: distance and angle, means over models, plot."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator

from sublayer.plot import Look, dots, look, panels_svg

QUANTITIES = ("distance", "cosine", "angle_degrees", "norm_in", "norm_out")
"""Quantities of a ``LayerChange``, in its order."""


Real = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
"""A number that is null in JSON where it is NaN: a state of 0 has no angle."""


@dataclass(frozen=True)
class Spread:
    """Mean, lower quartile, median and upper quartile of a quantity over tokens."""

    mean: Real
    quartiles: tuple[Real, Real, Real]


@dataclass(frozen=True)
class LayerChange:
    """Change of tokens by an executed block, from 1, and their L2 norms before and after."""

    layer: int
    distance: Spread
    """L2 distance between a token's state before the block and after it."""
    cosine: Spread
    """Cosine of the angle between the two states, from -1 to 1."""
    angle_degrees: Spread
    """Angle in degrees, from 0 to 180."""
    norm_in: Spread
    norm_out: Spread
    is_beyond: bool = field(default=False, kw_only=True)
    """True for a shared block's execution beyond the model's end."""

    def spread(self, quantity: str) -> Spread:
        """Return the spread of one of ``QUANTITIES``."""
        spread: Spread = getattr(self, quantity)
        return spread

    def flat(self) -> dict[str, Any]:
        """Return a block's means by name, then the quartiles, as in JSON."""
        means = {}
        quartiles = {}
        for name in QUANTITIES:
            spread = self.spread(name)
            means[name] = finite(spread.mean)
            quartiles[f"{name}_quartiles"] = [finite(value) for value in spread.quartiles]
        return {"layer": self.layer, "is_beyond": self.is_beyond, **means, **quartiles}


def finite(value: float) -> float | None:
    """Return a number for JSON: None where it is not finite."""
    return value if math.isfinite(value) else None


def mean_changes(models: Sequence[Sequence[LayerChange]]) -> list[LayerChange]:
    """Average means and quartiles of each block over models of equal depth."""
    averaged = []
    for changes in zip(*models, strict=True):
        averages = []
        for name in QUANTITIES:
            spreads = [change.spread(name) for change in changes]
            lower, median, upper = zip(*(spread.quartiles for spread in spreads), strict=True)
            mean = _mean([spread.mean for spread in spreads])
            averages.append(Spread(mean, (_mean(lower), _mean(median), _mean(upper))))
        first = changes[0]
        averaged.append(LayerChange(first.layer, *averages, is_beyond=first.is_beyond))
    return averaged


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


_HEIGHT = 2.9  # inches of 72 units
PANELS = {"distance": "L2 distance", "angle_degrees": "angle, degrees"}
"""Plotted quantities of a ``LayerChange``, with the labels of their axes."""


@dataclass(frozen=True)
class Line:
    """Blocks drawn as one line, with its style."""

    look: Look
    changes: Sequence[LayerChange]
    runs: Sequence[Sequence[LayerChange]] = ()
    """Runs behind an average, a thin line each."""


def draw_layers(runs: Mapping[str, Sequence[LayerChange]]) -> str:
    """Plot each run's means over tokens, with quartiles as bands; return the SVG text.

    L2 distances (left) and angles in degrees (right) against the block's number. A name of more
    than 72 characters is cut at its beginning: the end distinguishes runs.

    Source: Lan et al. 2020 (1909.11942), Fig. 1. Departure: bands, and executions beyond a model's
    blocks, which the figure lacks.
    """
    lines = [Line(look(index), changes) for index, changes in enumerate(runs.values())]

    def fill(panels: Any) -> Mapping[str, Any]:
        for axes, quantity in zip(panels, PANELS, strict=True):
            drawn = put_lines(axes, lines, quantity)
        return dict(zip(runs, drawn, strict=True))

    title = "Distance and angle between each block's input and output"
    return panels_svg(fill, len(PANELS), _HEIGHT, title, is_shared=False)


def put_lines(axes: Any, lines: Sequence[Line], quantity: str) -> list[Any]:
    """Draw a quantity of ``PANELS`` of each line against the block, on axes of matplotlib.

    A dot is the mean over tokens, hollow for executions beyond the model's blocks; a band spans the
    quartiles. Returns matplotlib's lines.
    """
    drawn = []
    for line in lines:
        layers = [change.layer for change in line.changes]
        spreads = [change.spread(quantity) for change in line.changes]
        lower, _, upper = zip(*(spread.quartiles for spread in spreads), strict=True)
        colour = line.look.placeholder
        axes.fill_between(layers, lower, upper, color=colour, alpha=0.13, linewidth=0)
        for run in line.runs:
            of_run = [change.spread(quantity).mean for change in run]
            axes.plot(layers, of_run, color=colour, linewidth=0.6, alpha=0.5)
        means = [spread.mean for spread in spreads]
        n_own = sum(not change.is_beyond for change in line.changes)
        drawn.append(dots(axes, layers[:n_own], means[:n_own], line.look))
        if n_own < len(layers):
            # From the model's last block, which has its dot.
            hollow = {"markevery": slice(1, None), "fillstyle": "none"}
            dots(axes, layers[n_own - 1 :], means[n_own - 1 :], line.look, **hollow)
    axes.set_xlabel("block")
    axes.set_ylabel(PANELS[quantity])
    axes.set_ylim(bottom=0.0)
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    axes.grid(axis="y")
    return drawn
