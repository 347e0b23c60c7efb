"""The report's figures of what layers do, as ALBERT's paper draws them, and their few numbers."""

from dataclasses import dataclass
from typing import Any

from sublayer.counts import count
from sublayer.inspection.layer_change import PANELS, Line, put_lines
from sublayer.numbers import DASH
from sublayer.plot import page_svg
from sublayer.reporting.figures import SIZE, looks
from sublayer.study.inspection import LayerSummary, mean_layers, summarize
from sublayer.study.results import ArmResult, Results


@dataclass(frozen=True)
class LayerRow:
    """An arm's row in the table below the figures, a text for each column."""

    arm: str
    cells: tuple[str, ...]


def draw_layers(results: Results) -> list[str]:
    """Plot distance and angle against the block, a line for each arm; nothing without any.

    Returns SVG for a page that has the palette. A line is the mean over tokens and runs; a thin one
    is a run's, where there are several.
    """
    arms = _inspected(results)
    if not arms:
        return []
    styles = looks(results)
    lines = []
    for arm in arms:
        runs = [found.changes for found in arm.layers.values()]
        each = runs if len(runs) > 1 else ()
        lines.append(Line(styles[arm.name], mean_layers(arm.layers), each))
    drawn = []
    for quantity, label in PANELS.items():

        def draw(figure: Any, quantity: str = quantity) -> None:
            put_lines(figure.add_subplot(), lines, quantity)

        title = f"{label}, of each block's input and output"
        drawn.append(page_svg(draw, SIZE, title, f"layers-{quantity}"))
    return drawn


def layer_rows(results: Results) -> list[LayerRow]:
    """Format what the table says of each arm: first of its distances, then of its angles."""
    rows = []
    for arm in _inspected(results):
        changes = mean_layers(arm.layers)
        cells: list[str] = []
        for quantity in PANELS:
            unit = "" if quantity == "distance" else "°"
            cells += _cells(summarize(changes, quantity), unit, has_beyond=has_beyond(results))
        rows.append(LayerRow(arm.name, tuple(cells)))
    return rows


def has_beyond(results: Results) -> bool:
    """Return whether a block of any arm was run beyond its model's number."""
    arms = _inspected(results)
    return any(change.is_beyond for arm in arms for change in mean_layers(arm.layers))


def describe_read(results: Results) -> str:
    """Say what was read for it, as what follows "over"; empty where nothing was inspected."""
    found = [each for arm in _inspected(results) for each in arm.layers.values()]
    if not found:
        return ""
    numbers = sorted({each.n_tokens for each in found})
    tokens = count(numbers[-1], "token")
    if len(numbers) > 1:
        tokens = f"{numbers[0]:,} to {tokens}"
    split = "validation" if found[0].split == "valid" else found[0].split
    return f"{tokens} of the {split} split"


def _inspected(results: Results) -> list[ArmResult]:
    return [arm for arm in results.arms if arm.layers]


def _cells(summary: LayerSummary, unit: str, *, has_beyond: bool) -> list[str]:
    numbers = (summary.mean, summary.from_block_to_block, summary.last)
    cells = [DASH if number is None else f"{number:.3g}{unit}" for number in numbers]
    if summary.lowest_beyond is not None:
        cells.append(f"{summary.lowest_beyond:.3g} to {summary.highest_beyond:.3g}{unit}")
    elif has_beyond:
        cells.append(DASH)
    return cells
