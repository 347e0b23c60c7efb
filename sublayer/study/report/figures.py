"""The report's plots; equal results give equal bytes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sublayer.plot import INK, RULE, Look, look, page_svg
from sublayer.study.results import ArmResult, Curve, Results

_WIDTH, _HEIGHT = 4.8, 3.1  # inches of 72 units: legible both on a phone and at twice its width


@dataclass(frozen=True)
class Axis:
    """One way to measure how far a run has come."""

    name: str
    label: str
    of: Callable[[Curve, ArmResult], Sequence[float]]
    """Where on the axis each evaluation of an arm's run stands."""


def _operations(curve: Curve, arm: ArmResult) -> list[float]:
    return [n * arm.costs.flops_per_token for n in curve.tokens]


AXES = (
    Axis("steps", "optimizer steps", lambda curve, arm: curve.steps),
    Axis("tokens", "tokens", lambda curve, arm: curve.tokens),
    Axis("operations", "floating-point operations", _operations),
    Axis("seconds", "seconds", lambda curve, arm: curve.seconds),
)


def looks(results: Results) -> dict[str, Look]:
    """Assign every arm a style: the baseline is black, others seven colours, solid, then dashed."""
    names = [results.baseline]
    for arm in results.arms:
        if arm.name != results.baseline:
            names.append(arm.name)
    return {name: look(index) for index, name in enumerate(names)}


def draw_curves(results: Results, axis: Axis) -> str | None:
    """Plot the validation metric over one axis, mean and range over seeds; None without curves.

    Returns SVG for a page that has the palette. A mean ends where the arm's shortest curve does.
    """
    arms = [arm for arm in results.arms if arm.curves]
    if not arms:
        return None
    largest = -math.inf
    for arm in arms:
        for curve in arm.curves:
            largest = max(largest, *axis.of(curve, arm))
    scale, unit = _unit_of(largest)
    styles = looks(results)

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for arm in arms:
            x, values = _aligned(arm, axis)
            scaled = x / scale
            style = styles[arm.name]
            colour = style.placeholder
            means = values.mean(axis=0)
            order = 4 if arm.name == results.baseline else 3
            axes.plot(
                scaled,
                means,
                style.line,
                color=colour,
                linewidth=1.4,
                zorder=order,
            )
            axes.fill_between(
                scaled,
                values.min(axis=0),
                values.max(axis=0),
                color=colour,
                alpha=0.16,
                linewidth=0,
            )
        axes.set_xlim(left=0)
        axes.set_ylim(*_range_of_interest(arms))
        axes.set_xlabel(f"{axis.label}{unit}")
        axes.set_ylabel(f"validation, {results.metric.label}")
        axes.grid(axis="y")
        axes.set_axisbelow(True)

    title = f"Validation {results.metric.label} against {axis.label}"
    return page_svg(draw, (_WIDTH, _HEIGHT), title, axis.name)


def draw_seeds(results: Results) -> str | None:
    """Plot every seed of every arm, equal seeds joined, means as bars; None without results.

    Returns SVG for a page that has the palette, a row for each arm.
    """
    arms = [arm for arm in results.arms if arm.values]
    if not arms:
        return None
    styles = looks(results)
    last_seed = max(max(arm.seeds) for arm in arms)
    height = 0.75 + 0.36 * len(arms)

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for seed in range(last_seed + 1):
            values = []
            rows = []
            for row, arm in enumerate(arms):
                if seed in arm.seeds:
                    index = arm.seeds.index(seed)
                    values.append(arm.values[index])
                    rows.append(row)
            if values:
                axes.plot(values, rows, color=RULE, linewidth=0.8, zorder=1)
        for row, arm in enumerate(arms):
            colour = styles[arm.name].placeholder
            same_row = [row] * len(arm.values)
            axes.plot(
                arm.values,
                same_row,
                "o",
                color=colour,
                markersize=4.5,
                alpha=0.75,
                zorder=3,
            )
            height_of_bar = [row - 0.3, row + 0.3]
            axes.plot([arm.mean, arm.mean], height_of_bar, color=colour, linewidth=2, zorder=2)
        names = [_shortened(arm.name) for arm in arms]
        axes.set_yticks(range(len(arms)), names, parse_math=False)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_ylim(len(arms) - 0.5, -0.5)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(f"{results.split} split, {results.metric.label}")

    title = f"{results.metric.label} of every seed"
    return page_svg(draw, (_WIDTH, height), title, "seeds")


def _aligned(arm: ArmResult, axis: Axis) -> tuple[np.ndarray, np.ndarray]:
    """Return an axis's means and all seeds' values, up to the end of the shortest curve."""
    n = min(len(curve.values) for curve in arm.curves)
    all_x = []
    all_values = []
    for curve in arm.curves:
        all_x.append(axis.of(curve, arm)[:n])
        all_values.append(curve.values[:n])
    x = np.array(all_x, dtype=float)
    return x.mean(axis=0), np.array(all_values)


def _range_of_interest(arms: Sequence[ArmResult]) -> tuple[float, float]:
    # The fall of the first third would flatten what separates the arms.
    late: list[float] = []
    for arm in arms:
        for curve in arm.curves:
            n_early = len(curve.values) // 3
            late += curve.values[n_early:]
    margin = 0.05 * (max(late) - min(late)) or 0.1
    return min(late) - margin, max(late) + margin


def _unit_of(largest: float) -> tuple[float, str]:
    """Return what an axis is divided by, a power of 1000, and what its label says of that."""
    power = 0
    if largest >= 20_000:
        n_thousands = int(math.log10(largest) // 3)
        power = 3 * n_thousands
    words = {0: "", 3: ", thousands", 6: ", millions"}
    raised = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    superscript = str(power).translate(raised)
    return 10.0**power, words.get(power, f", 10{superscript}")


def _shortened(name: str, longest: int = 22) -> str:
    if len(name) <= longest:
        return name
    return f"{name[: longest - 1]}…"
