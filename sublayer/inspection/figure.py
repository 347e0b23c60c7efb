"""The plot of what blocks do: distance and angle against the block, a line for each run."""

from collections.abc import Mapping, Sequence
from typing import Any

from sublayer.inspection.layers import LayerChange, Spread
from sublayer.plot import file_svg, look

_WIDTH, _HEIGHT, _ENTRY = 7.2, 2.9, 0.22  # inches of 72 units; an entry is a line of the legend
_LONGEST = 72  # characters of a name; what tells runs apart is at its end
_PANELS = (("distance", "L2 distance"), ("angle_degrees", "angle, degrees"))


def draw_layers(runs: Mapping[str, Sequence[LayerChange]]) -> str:
    """Plot each run's means over tokens, with quartiles as bands; return the SVG text.

    The left panel has L2 distances, the right one angles in degrees, both against the number of
    the block. A name of more than 72 characters keeps its end, which tells runs apart.

    Source: Lan et al. 2020 (1909.11942), Fig. 1.
    Departure: the bands, which the figure does not have.
    """

    def draw(figure: Any) -> None:
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
        for axes, (quantity, label) in zip(figure.subplots(1, 2), _PANELS, strict=True):
            lines = []
            for index, changes in enumerate(runs.values()):
                line = _draw_line(axes, index, changes, quantity)
                lines.append(line)
            axes.set_xlabel("block")
            axes.set_ylabel(label)
            axes.set_ylim(bottom=0.0)
            axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
            axes.grid(axis="y")
            axes.set_axisbelow(True)
        numbers = [str(index) for index in range(len(lines))]
        legend = figure.legend(lines, numbers, loc="outside upper left", frameon=False)
        for text, name in zip(legend.get_texts(), runs, strict=True):
            # As labels, names that begin with an underscore would be left out, and a $ would begin
            # a formula.
            text.set_parse_math(False)
            text.set_text(_shortened(name))

    size = _WIDTH, _HEIGHT + _ENTRY * len(runs)
    return file_svg(draw, size, "Distance and angle between each block's input and output")


def _shortened(name: str) -> str:
    if len(name) <= _LONGEST:
        return name
    return f"…{name[1 - _LONGEST :]}"


def _draw_line(axes: Any, index: int, changes: Sequence[LayerChange], quantity: str) -> Any:
    """Draw a run's means, and a band between its quartiles; return the line."""
    layers = []
    means = []
    lower = []
    upper = []
    for change in changes:
        spread: Spread = getattr(change, quantity)
        layers.append(change.layer)
        means.append(spread.mean)
        lower.append(spread.quartiles[0])
        upper.append(spread.quartiles[2])
    style = look(index)
    axes.fill_between(layers, lower, upper, color=style.placeholder, alpha=0.13, linewidth=0)
    (line,) = axes.plot(
        layers,
        means,
        style.line,
        marker="o",
        markersize=3.0,
        linewidth=1.4,
        color=style.placeholder,
    )
    return line
