"""The report's plots of quality against cost: a point for each arm, its interval as a bar."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sublayer.plot import MUTED, page_svg
from sublayer.reporting.figures import looks, unit_of
from sublayer.reporting.words import is_scored_on_text
from sublayer.study.budget.match import TOLERANCE
from sublayer.study.results import ArmResult, Results

_SIZE = (3.6, 3.0)  # inches of 72 units


@dataclass(frozen=True)
class Cost:
    """What an arm takes, and how the axis calls it."""

    name: str
    label: str
    of: Callable[[ArmResult], float | None]


COSTS = (
    Cost("time", "seconds of a run", lambda arm: arm.costs.seconds),
    Cost("FLOPs", "FLOPs of a run", lambda arm: arm.costs.operations),
    Cost("parameters", "parameters", lambda arm: arm.parameters["total"]),
)


def draw_costs(results: Results) -> list[str]:
    """Plot quality against each cost in which arms differ, as SVG for a page with the palette."""
    return [_draw(results, cost) for cost in COSTS if _differ(results, cost)]


def equal_costs(results: Results) -> list[str]:
    """Return the costs that all arms have alike, to half a percent, and that are not drawn."""
    return [
        cost.name
        for cost in COSTS
        if len(_points(results, cost)) > 1 and not _differ(results, cost)
    ]


def interval_at_arm(results: Results, arm: ArmResult) -> tuple[float, float] | None:
    """Return how far the interval of an arm's difference reaches below and above its mean."""
    for difference in results.differences:
        mean, low, high = difference.mean, difference.low, difference.high
        if difference.arm == arm.name and None not in (mean, low, high):
            assert mean is not None and low is not None and high is not None
            return mean - low, high - mean
    return None


def _points(results: Results, cost: Cost) -> list[tuple[ArmResult, float, float]]:
    points = []
    for arm in results.arms:
        value = cost.of(arm)
        if value is not None and arm.mean is not None:
            points.append((arm, value, arm.mean))
    return points


def _differ(results: Results, cost: Cost) -> bool:
    values = [value for _, value, _ in _points(results, cost)]
    return len(values) > 1 and max(values) > (1 + TOLERANCE) * min(values)


def _draw(results: Results, cost: Cost) -> str:
    points = _points(results, cost)
    scale, unit = unit_of(max(value for _, value, _ in points))
    styles = looks(results)

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for arm, value, mean in points:
            style = styles[arm.name]
            place = value / scale
            if arm.name == results.baseline:
                axes.axhline(mean, color=MUTED, linestyle=":", linewidth=1.2, zorder=1)
            bar = interval_at_arm(results, arm) if results.has_verdicts else None
            if bar is not None:
                ends = [mean - bar[0], mean + bar[1]]
                axes.plot([place, place], ends, style.line, color=style.placeholder, linewidth=1.6)
            # Dashed arms repeat a colour: their points are squares.
            marker = "s" if style.is_dashed else "o"
            axes.plot([place], [mean], marker, color=style.placeholder, markersize=6, zorder=3)
        axes.margins(0.12)
        axes.set_xlabel(f"{cost.label}{unit}")
        split = f"{results.split}, " if is_scored_on_text(results) else ""
        axes.set_ylabel(f"{split}{results.metric.label}")
        axes.grid(axis="y")
        axes.set_axisbelow(True)

    title = f"{results.metric.label} against {cost.label}"
    return page_svg(draw, _SIZE, title, f"cost-{cost.name}")
