"""The plots of splitting errors: against the size of a step, and against the layer."""

from collections.abc import Mapping, Sequence
from typing import Any

from sublayer.plot import file_svg, look

_WIDTH, _HEIGHT, _ENTRY = 7.2, 3.0, 0.22  # inches of 72 units; an entry is a line of the legend
_PANELS = (("exact", "exact flows"), ("Euler", "Euler steps"))


def draw_errors(rows: Sequence[Mapping[str, Any]], equation: str = "linear") -> str:
    """Draw the error of a single step against its size, one line a splitting, as an SVG file's text."""
    found = [row for row in rows if row["equation"] == equation]
    names = list(dict.fromkeys(row["splitting"] for row in found))

    def draw(figure: Any) -> None:
        for axes, (substeps, label) in zip(figure.subplots(1, 2, sharey=True), _PANELS, strict=True):
            lines = []
            for place, name in enumerate(names):
                (row,) = (each for each in found if (each["splitting"], each["substeps"]) == (name, substeps))
                drawn = look(place)
                lines += axes.loglog(
                    row["steps"], row["errors"], drawn.line, marker="o", markersize=3.0, color=drawn.placeholder
                )
            axes.set_xlabel(f"size of a step, {label}")
            axes.grid(axis="y")
        figure.axes[0].set_ylabel("error of a step")
        figure.legend(lines, names, loc="outside upper left", frameon=False)

    return file_svg(draw, (_WIDTH, _HEIGHT + _ENTRY * len(names)), "Error of a single step of each splitting")


def draw_layers(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Draw both schemes' distance from the flow of each layer of each run, a panel a stack, as an SVG file's text."""
    stacks = list(dict.fromkeys(each["stack"] for layers in runs.values() for each in layers))

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, len(stacks), sharey=True, squeeze=False)[0]
        lines: dict[str, Any] = {}
        for name, layers in runs.items():
            for quantity, label in (("lie", "Lie"), ("strang", "Strang")):
                drawn = look(len(lines))
                for axes, stack in zip(panels, stacks, strict=True):
                    found = [each for each in layers if each["stack"] == stack]
                    numbers, values = ([each[key] for each in found] for key in ("layer", quantity))
                    (lines[f"{name}: {label}"],) = axes.plot(
                        numbers, values, drawn.line, marker="o", markersize=3.0, color=drawn.placeholder
                    )
        for axes, stack in zip(panels, stacks, strict=True):
            axes.set_xlabel(f"layer of the {stack}")
            axes.set_ylim(bottom=0.0)
            axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
            axes.grid(axis="y")
        panels[0].set_ylabel("error, share of the way")
        legend = figure.legend(list(lines.values()), list(lines), loc="outside upper left", frameon=False)
        for text in legend.get_texts():
            text.set_parse_math(False)

    return file_svg(
        draw, (_WIDTH, _HEIGHT + _ENTRY * 2 * len(runs)), "How far layers are from following their own flows"
    )
