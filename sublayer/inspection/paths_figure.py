"""The plot of tokens' paths: a panel for each stack, in the plane in which its states vary most."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sublayer.inspection.label_places import Box, raise_labels
from sublayer.plot import MUTED, file_svg, look

_WIDTH, _HEIGHT, _ENTRY = 7.2, 4.6, 0.22  # inches of 72 units; an entry is a line of the legend
_COLUMNS = 2
_OFFSET = 3.0  # points, of a label from its token's end
_GAP = 1.0  # dots, between labels that are moved apart
_POINTS_PER_INCH = 72.0
_LEGS = {
    "positions": (look(5).placeholder, "vectors of positions"),
    "norm": (MUTED, "the norm behind a sub-layer"),
    "ffn": (look(2).placeholder, "network: each token by itself"),
    "cross": (look(7).placeholder, "attention to the source"),
    "attention": (look(1).placeholder, "attention: by all tokens that it sees"),
}
"""The colour and the name of what each kind of step draws, in the order in which it is drawn."""
_START, _END = "where a token starts", "where it ends"


@dataclass(frozen=True)
class Panel:
    """What is drawn of a stack."""

    title: str
    """What stands above it; empty where nothing has to."""
    stack: str
    tokens: Sequence[str]
    """What each token's path ends in, [N]."""
    kinds: Sequence[str]
    """The kind of each step, [M - 1]."""
    shares: tuple[float, float]
    """Of the states' variance along both axes."""
    coordinates: Sequence[Sequence[Sequence[float]]]
    """Of each state and token, [M, N, 2]."""


def draw_paths(panels: Sequence[Panel]) -> str:
    """Plot the path of each token of each panel, its legs by what moved it; return the SVG text.

    A ring is where a token starts, a point where it ends. Both axes of a panel have one scale;
    those of different panels have nothing in common.
    """
    drawn = {kind for panel in panels for kind in panel.kinds}
    entries = [name for kind, (_, name) in _LEGS.items() if kind in drawn]
    entries += [_START, _END]

    def draw(figure: Any) -> None:
        figure.get_layout_engine().set(h_pad=0.12)
        all_axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
        lines: dict[str, Any] = {}
        labels = []
        for axes, panel in zip(all_axes, panels, strict=True):
            lines |= _draw_panel(axes, panel)
            labels.append(_label(axes, panel))
        handles = [lines[name] for name in entries]
        figure.legend(handles, entries, loc="outside upper left", frameon=False, ncols=_COLUMNS)
        # Where labels stand is known when all else is, which they move no more.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for of_panel in labels:
            _move_apart(of_panel, figure.dpi)

    n_lines = math.ceil(len(entries) / _COLUMNS)
    size = _WIDTH, _HEIGHT * len(panels) + _ENTRY * n_lines
    return file_svg(draw, size, "The paths of tokens through the sub-layers")


def _draw_panel(axes: Any, panel: Panel) -> dict[str, Any]:
    """Draw the paths of a stack; return what stands for each entry of the legend."""
    drawn = {}
    for kind, (colour, name) in _LEGS.items():
        if kind in panel.kinds:
            x, y = _legs(panel, kind)
            (drawn[name],) = axes.plot(x, y, "-", color=colour, linewidth=1.1)
    starts = list(zip(*panel.coordinates[0], strict=True))
    ends = list(zip(*panel.coordinates[-1], strict=True))
    ink = look(0).placeholder
    ring = {"color": MUTED, "markersize": 4.0, "markerfacecolor": "none"}
    (drawn[_START],) = axes.plot(*starts, "o", **ring, zorder=3)
    (drawn[_END],) = axes.plot(*ends, "o", color=ink, markersize=2.6, zorder=4)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.08)
    first, second = panel.shares
    axes.set_xlabel(f"{panel.stack}, first component: {first:.0%} of the variance")
    axes.set_ylabel(f"second: {second:.0%}")
    axes.set_title(panel.title, loc="left", fontsize=10.0, parse_math=False)
    return drawn


def _label(axes: Any, panel: Panel) -> list[Any]:
    """Write each token beside the end of its path, with a line from it to a label that is moved."""
    labels = []
    line = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.5, "shrinkA": 0.0, "shrinkB": 0.0}
    for token, place in zip(panel.tokens, panel.coordinates[-1], strict=True):
        label = axes.annotate(
            token,
            place,
            xytext=(_OFFSET, _OFFSET),
            textcoords="offset points",
            fontsize=8.0,
            # A $ in a token begins no formula.
            parse_math=False,
            arrowprops=line,
            zorder=5,
        )
        labels.append(label)
    return labels


def _move_apart(labels: Sequence[Any], dots_per_inch: float) -> None:
    from matplotlib.text import Text

    boxes = []
    for label in labels:
        extent = Text.get_window_extent(label)  # without its line, in dots
        boxes.append(Box(extent.x0, extent.y0, extent.x1, extent.y1))
    for label, height in zip(labels, raise_labels(boxes, gap=_GAP), strict=True):
        label.xyann = (_OFFSET, _OFFSET + height * _POINTS_PER_INCH / dots_per_inch)


def _legs(panel: Panel, kind: str) -> tuple[list[float], list[float]]:
    """Return the ends of every token's legs of a kind, in pairs that a gap divides."""
    x: list[float] = []
    y: list[float] = []
    for number, of_step in enumerate(panel.kinds):
        if of_step == kind:
            before, after = panel.coordinates[number : number + 2]
            for start, end in zip(before, after, strict=True):
                x += [start[0], end[0], math.nan]
                y += [start[1], end[1], math.nan]
    return x, y
