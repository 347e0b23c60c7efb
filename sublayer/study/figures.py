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


AXES = (
    Axis("steps", "optimizer steps", lambda curve, arm: curve.steps),
    Axis("tokens", "tokens", lambda curve, arm: curve.tokens),
    Axis(
        "operations",
        "floating-point operations",
        lambda curve, arm: [n * arm.costs.flops_per_token for n in curve.tokens],
    ),
    Axis("seconds", "seconds", lambda curve, arm: curve.seconds),
)


def looks(results: Results) -> dict[str, Look]:
    """Give every arm its look: the baseline the ink, the others seven colours, solid first, then dashed."""
    others = [arm.name for arm in results.arms if arm.name != results.baseline]
    return {name: look(place) for place, name in enumerate([results.baseline, *others])}


def draw_curves(results: Results, axis: Axis) -> str | None:
    """Draw the validation metric against one axis: mean over seeds, and their range as a band; None without curves."""
    arms = [arm for arm in results.arms if arm.curves]
    if not arms:
        return None
    scale, unit = _unit_of(max(max(axis.of(curve, arm)) for arm in arms for curve in arm.curves))
    drawn = looks(results)

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for arm in arms:
            x, values = _aligned(arm, axis)
            is_baseline = arm.name == results.baseline
            drawn_as = drawn[arm.name]
            axes.plot(
                x / scale,
                values.mean(axis=0),
                drawn_as.line,
                color=drawn_as.placeholder,
                linewidth=1.4,
                zorder=4 if is_baseline else 3,
            )
            axes.fill_between(
                x / scale, values.min(axis=0), values.max(axis=0), color=drawn_as.placeholder, alpha=0.16, linewidth=0
            )
        axes.set_xlim(left=0)
        axes.set_ylim(*_range_of_interest(arms))
        axes.set_xlabel(f"{axis.label}{unit}")
        axes.set_ylabel(f"validation, {results.metric.label}")
        axes.grid(axis="y")
        axes.set_axisbelow(True)

    return page_svg(draw, (_WIDTH, _HEIGHT), f"Validation {results.metric.label} against {axis.label}", axis.name)


def draw_seeds(results: Results) -> str | None:
    """Draw every seed of every arm as a dot, equal seeds joined, means as bars; None where nothing finished."""
    arms = [arm for arm in results.arms if arm.values]
    if not arms:
        return None
    drawn = looks(results)
    height = 0.75 + 0.36 * len(arms)

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for seed in range(max(max(arm.seeds) for arm in arms) + 1):
            points = [(arm.values[arm.seeds.index(seed)], row) for row, arm in enumerate(arms) if seed in arm.seeds]
            axes.plot(*zip(*points, strict=True), color=RULE, linewidth=0.8, zorder=1)
        for row, arm in enumerate(arms):
            colour = drawn[arm.name].placeholder
            axes.plot(arm.values, [row] * len(arm.values), "o", color=colour, markersize=4.5, alpha=0.75, zorder=3)
            axes.plot([arm.mean] * 2, [row - 0.3, row + 0.3], color=colour, linewidth=2, zorder=2)
        axes.set_yticks(range(len(arms)), [_shortened(arm.name) for arm in arms], parse_math=False)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_ylim(len(arms) - 0.5, -0.5)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(f"{results.split} split, {results.metric.label}")

    return page_svg(draw, (_WIDTH, height), f"{results.metric.label} of every seed", "seeds")


def _aligned(arm: ArmResult, axis: Axis) -> tuple[np.ndarray, np.ndarray]:
    n = min(len(curve.values) for curve in arm.curves)
    x = np.array([axis.of(curve, arm)[:n] for curve in arm.curves], dtype=float).mean(axis=0)
    return x, np.array([curve.values[:n] for curve in arm.curves])


def _range_of_interest(arms: Sequence[ArmResult]) -> tuple[float, float]:
    # The fall of the first third would flatten what separates the arms.
    late = [value for arm in arms for curve in arm.curves for value in curve.values[len(curve.values) // 3 :]]
    margin = 0.05 * (max(late) - min(late)) or 0.1
    return min(late) - margin, max(late) + margin


def _unit_of(largest: float) -> tuple[float, str]:
    power = 3 * int(math.log10(largest) // 3) if largest >= 20_000 else 0
    superscript = str(power).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return 10.0**power, {0: "", 3: ", thousands", 6: ", millions"}.get(power, f", 10{superscript}")


def _shortened(name: str, longest: int = 22) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"
