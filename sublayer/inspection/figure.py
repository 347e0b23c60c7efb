"""The plot of what blocks do: distance and angle against the block, a line for each run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sublayer.inspection.layer_change import LayerChange
from sublayer.plot import Look, file_svg, look

_WIDTH, _HEIGHT, _ENTRY = 7.2, 2.9, 0.22  # inches of 72 units; an entry is a line of the legend
_LONGEST = 72  # characters of a name; what tells runs apart is at its end
PANELS = {"distance": "L2 distance", "angle_degrees": "angle, degrees"}
"""What is drawn of each block: quantities of a ``LayerChange``, with the labels of their axes."""


@dataclass(frozen=True)
class Line:
    """Blocks that are drawn as one line, in its own look."""

    look: Look
    changes: Sequence[LayerChange]
    runs: Sequence[Sequence[LayerChange]] = ()
    """What the line is the mean of: a thin line each."""


def draw_layers(runs: Mapping[str, Sequence[LayerChange]]) -> str:
    """Plot each run's means over tokens, with quartiles as bands; return the SVG text.

    The left panel has L2 distances, the right one angles in degrees, both against the number of
    the block. A name of more than 72 characters keeps its end, which tells runs apart.

    Source: Lan et al. 2020 (1909.11942), Fig. 1.
    Departure: the bands, and what lies beyond a model's own blocks, which the figure does not have.
    """
    lines = [Line(look(index), changes) for index, changes in enumerate(runs.values())]

    def draw(figure: Any) -> None:
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
        for axes, quantity in zip(figure.subplots(1, 2), PANELS, strict=True):
            drawn = put_lines(axes, lines, quantity)
        numbers = [str(index) for index in range(len(drawn))]
        legend = figure.legend(drawn, numbers, loc="outside upper left", frameon=False)
        for text, name in zip(legend.get_texts(), runs, strict=True):
            # As labels, names that begin with an underscore would be left out, and a $ would begin
            # a formula.
            text.set_parse_math(False)
            text.set_text(_shortened(name))

    size = _WIDTH, _HEIGHT + _ENTRY * len(runs)
    return file_svg(draw, size, "Distance and angle between each block's input and output")


def put_lines(axes: Any, lines: Sequence[Line], quantity: str) -> list[Any]:
    """Draw a quantity of ``PANELS`` of each line against the block, on axes of matplotlib.

    A dot is the mean over tokens, hollow where the block was run beyond the model's own; a band
    reaches from the lower quartile to the upper one. Returns matplotlib's lines.
    """
    drawn = [_put_line(axes, line, quantity) for line in lines]
    axes.set_xlabel("block")
    axes.set_ylabel(PANELS[quantity])
    axes.set_ylim(bottom=0.0)
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    return drawn


def _shortened(name: str) -> str:
    if len(name) <= _LONGEST:
        return name
    return f"…{name[1 - _LONGEST :]}"


def _put_line(axes: Any, line: Line, quantity: str) -> Any:
    """Draw means, and a band between quartiles; return the line of the model's own blocks."""
    colour = line.look.placeholder
    spreads = [change.spread(quantity) for change in line.changes]
    layers = [change.layer for change in line.changes]
    lower = [spread.quartiles[0] for spread in spreads]
    upper = [spread.quartiles[2] for spread in spreads]
    axes.fill_between(layers, lower, upper, color=colour, alpha=0.13, linewidth=0)
    for run in line.runs:
        own = [change.spread(quantity).mean for change in run]
        axes.plot(layers, own, color=colour, linewidth=0.6, alpha=0.5)
    means = [spread.mean for spread in spreads]
    n_own = sum(not change.is_beyond for change in line.changes)
    style = {"linewidth": 1.4, "marker": "o", "markersize": 3.0, "color": colour}
    (drawn,) = axes.plot(layers[:n_own], means[:n_own], line.look.line, **style)
    if n_own < len(layers):
        # From the last block of the model's own, which has its dot.
        further = {**style, "markevery": slice(1, None), "fillstyle": "none"}
        axes.plot(layers[n_own - 1 :], means[n_own - 1 :], line.look.line, **further)
    return drawn
