"""The plot of what blocks do: distance and angle against the block, a line for each run."""

from collections.abc import Mapping, Sequence
from typing import Any

from sublayer.inspect.layers import LayerChange, Spread
from sublayer.plot import file_svg, look

_WIDTH, _HEIGHT, _ENTRY = 7.2, 2.9, 0.22  # inches of 72 units; an entry is a line of the legend
_LONGEST = 72  # characters of a name; what tells runs apart is at its end
_PANELS = (("distance", "L2 distance"), ("angle_degrees", "angle, degrees"))


def draw_layers(runs: Mapping[str, Sequence[LayerChange]]) -> str:
    """Draw the means over tokens of each run by name, and their quartiles as bands, as an SVG file's text.

    Source: Lan et al. 2020 (1909.11942), Fig. 1. Departure: the bands, which the figure does not have.
    """

    def draw(figure: Any) -> None:
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
        for axes, (quantity, label) in zip(figure.subplots(1, 2), _PANELS, strict=True):
            lines = [_line(axes, place, changes, quantity) for place, changes in enumerate(runs.values())]
            axes.set_xlabel("block")
            axes.set_ylabel(label)
            axes.set_ylim(bottom=0.0)
            axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
            axes.grid(axis="y")
            axes.set_axisbelow(True)
        legend = figure.legend(
            lines, [str(place) for place in range(len(lines))], loc="outside upper left", frameon=False
        )
        for text, name in zip(legend.get_texts(), runs, strict=True):
            # As labels, names that begin with an underscore would be left out, and a $ would begin a formula.
            text.set_parse_math(False)
            text.set_text(name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}")

    return file_svg(
        draw, (_WIDTH, _HEIGHT + _ENTRY * len(runs)), "Distance and angle between each block's input and output"
    )


def _line(axes: Any, place: int, changes: Sequence[LayerChange], quantity: str) -> Any:
    spreads: list[Spread] = [getattr(change, quantity) for change in changes]
    layers = [change.layer for change in changes]
    drawn = look(place)
    lower, upper = ([spread.quartiles[end] for spread in spreads] for end in (0, 2))
    axes.fill_between(layers, lower, upper, color=drawn.placeholder, alpha=0.13, linewidth=0)
    (line,) = axes.plot(
        layers,
        [spread.mean for spread in spreads],
        drawn.line,
        marker="o",
        markersize=3.0,
        linewidth=1.4,
        color=drawn.placeholder,
    )
    return line
