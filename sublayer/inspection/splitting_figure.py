"""The plots of splitting errors: against the size of a step, and against the layer."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from sublayer.plot import Look, file_svg, look

_WIDTH, _HEIGHT, _ENTRY = 7.2, 3.0, 0.22  # inches of 72 units; an entry is a line of the legend
_PANELS = (("exact", "exact flows"), ("Euler", "Euler steps"))
_SCHEMES = {"lie": "Lie", "strang": "Strang"}


def draw_errors(rows: Sequence[Mapping[str, Any]], equation: str = "linear") -> str:
    """Plot the error of a single step against its size, a line per splitting; return the SVG.

    Both axes are logarithmic. A row is a splitting of an ``equation`` with one kind of
    ``substeps``, and its ``steps`` and ``errors`` stand pair by pair; each equation that is drawn
    has a row for either panel, exact flows and Euler steps.
    """
    by_key = {}
    for row in rows:
        if row["equation"] == equation:
            key = row["splitting"], row["substeps"]
            by_key[key] = row
    # Names once each, in the order of the rows.
    names = list(dict.fromkeys(name for name, _ in by_key))

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (substeps, label) in zip(panels, _PANELS, strict=True):
            lines = []
            for index, name in enumerate(names):
                row = by_key[name, substeps]
                lines += _draw_orders(axes, row, look(index))
            axes.set_xlabel(f"size of a step, {label}")
            axes.grid(axis="y")
        figure.axes[0].set_ylabel("error of a step")
        figure.legend(lines, names, loc="outside upper left", frameon=False)

    size = _WIDTH, _HEIGHT + _ENTRY * len(names)
    return file_svg(draw, size, "Error of a single step of each splitting")


def _draw_orders(axes: Any, row: Mapping[str, Any], style: Look) -> list[Any]:
    lines: list[Any] = axes.loglog(
        row["steps"],
        row["errors"],
        style.line,
        marker="o",
        markersize=3.0,
        color=style.placeholder,
    )
    return lines


def draw_layers(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Plot both schemes' errors of each layer of each run, a panel per stack; return the SVG.

    ``runs`` are by name the fields of ``LayerErrors`` of every layer. Errors are shares of the
    way that a layer's flow covers, on an axis from 0 that all panels share.
    """
    all_layers = chain.from_iterable(runs.values())
    # Each stack once, in the order in which the runs name them.
    stacks = list(dict.fromkeys(layer["stack"] for layer in all_layers))

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, len(stacks), sharey=True, squeeze=False)[0]
        lines: dict[str, Any] = {}
        for name, layers in runs.items():
            for quantity, scheme in _SCHEMES.items():
                style = look(len(lines))
                # One of the panels' lines stands for all of them in the legend.
                for axes, stack in zip(panels, stacks, strict=True):
                    in_stack = [layer for layer in layers if layer["stack"] == stack]
                    line = _draw_stack(axes, in_stack, quantity, style)
                    lines[f"{name}: {scheme}"] = line
        for axes, stack in zip(panels, stacks, strict=True):
            axes.set_xlabel(f"layer of the {stack}")
            axes.set_ylim(bottom=0.0)
            axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
            axes.grid(axis="y")
        panels[0].set_ylabel("error, fraction of the way")
        handles = list(lines.values())
        names = list(lines)
        legend = figure.legend(handles, names, loc="outside upper left", frameon=False)
        for text in legend.get_texts():
            # A $ in the name of a run begins no formula.
            text.set_parse_math(False)

    n_entries = len(_SCHEMES) * len(runs)
    size = _WIDTH, _HEIGHT + _ENTRY * n_entries
    return file_svg(draw, size, "How far layers are from following their own flows")


def _draw_stack(axes: Any, layers: Sequence[Mapping[str, Any]], quantity: str, style: Look) -> Any:
    numbers = [layer["layer"] for layer in layers]
    values = [layer[quantity] for layer in layers]
    (line,) = axes.plot(
        numbers,
        values,
        style.line,
        marker="o",
        markersize=3.0,
        color=style.placeholder,
    )
    return line
