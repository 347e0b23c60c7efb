"""The report of a study: one HTML file that needs nothing else, the verdict first."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sublayer.plot import palette
from sublayer.storage import write_file
from sublayer.study import wording
from sublayer.study.figures import AXES, draw_curves, draw_seeds, looks
from sublayer.study.results import ArmResult, Further, Results
from sublayer.study.shown import shown
from sublayer.study.statistics import Difference


@dataclass(frozen=True)
class Span:
    """A stretch of the forest plot, in percent of its width."""

    place: float
    width: float


@dataclass(frozen=True)
class Tick:
    """A mark on the forest plot's axis."""

    place: float
    label: str


@dataclass(frozen=True)
class ForestRow:
    """One difference as places on the forest plot, in percent of its width."""

    difference: Difference
    interval: Span | None
    mean: float | None
    seeds: tuple[float, ...]


@dataclass(frozen=True)
class Forest:
    """The forest plot: rows of intervals over one axis; ``left`` and ``right`` say what its sides mean."""

    rows: tuple[ForestRow, ...]
    ticks: tuple[Tick, ...]
    zero: float
    left: str
    right: str


def render_report(results: Results) -> str:
    """Render the report as HTML; equal results give equal text."""
    results = shown(results)
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("sublayer", "study")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(_filters(results))
    figures = [draw_curves(results, axis) for axis in AXES]
    seeds = draw_seeds(results)
    return environment.get_template("report.html.j2").render(
        results=results,
        css=Markup(palette() + loader.get_source(environment, "report.css")[0]),
        headline=wording.headline(results),
        conditions=wording.conditions(results),
        statements=wording.statements(results),
        n_failed=f"{len(results.failures)} run{'s' if len(results.failures) > 1 else ''} failed",
        forest=lay_out_forest(results),
        matched=wording.MATCHED[results.match],
        others_too=any(difference.baseline != results.baseline for difference in results.differences),
        direction="Lower" if results.metric.is_lower_better else "Higher",
        any_marked=any(arm.is_mismatched for arm in results.arms),
        changed=[arm for arm in results.arms if arm.matched or arm.tuned],
        looks=looks(results),
        curves=[Markup(figure) for figure in figures if figure],
        seeds=Markup(seeds) if seeds else None,
    )


def write_report(results: Results, path: Path) -> None:
    """Write the report, whole or not at all."""
    write_file(path, render_report(results))


def lay_out_forest(results: Results) -> Forest:
    """Place every interval, mean and seed on one axis that holds them and 0."""
    by_name = {arm.name: dict(zip(arm.seeds, arm.values, strict=True)) for arm in results.arms}
    pairs = {
        difference.arm: [
            by_name[difference.arm][seed] - by_name[difference.baseline][seed] for seed in difference.seeds
        ]
        for difference in results.differences
    }
    ends = [end for difference in results.differences for end in (difference.low, difference.high) if end is not None]
    numbers = [0.0, *ends, *(value for values in pairs.values() for value in values)]
    low, high = min(numbers), max(numbers)
    margin = 0.06 * (high - low) or 1.0
    low, high = low - margin, high + margin

    def place(value: float) -> float:
        return round(100 * (value - low) / (high - low), 2)

    left, right = ("better", "worse") if results.metric.is_lower_better else ("worse", "better")
    return Forest(
        rows=tuple(_forest_row(difference, pairs[difference.arm], place) for difference in results.differences),
        ticks=tuple(Tick(place(value), label) for value, label in _ticks(low, high)),
        zero=place(0.0),
        left=left,
        right=right,
    )


def _forest_row(difference: Difference, pairs: list[float], place: Callable[[float], float]) -> ForestRow:
    span = None
    if difference.low is not None and difference.high is not None:
        begin, end = place(difference.low), place(difference.high)
        span = Span(begin, round(end - begin, 2))
    mean = None if difference.mean is None else place(difference.mean)
    return ForestRow(difference, span, mean, tuple(place(value) for value in pairs))


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    rough = (high - low) / 6
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    decimals = max(0, -math.floor(math.log10(step)))
    numbers = range(math.ceil(low / step), math.floor(high / step) + 1)
    return [(n * step, wording.format_signed(n * step, decimals) if n else "0") for n in numbers]


def _further_difference(arm: ArmResult, further: Further) -> Any:
    from markupsafe import Markup

    text = wording.further_difference(arm, further)
    is_decided = any(each.arm == arm.name and each.verdict != "cannot tell" for each in further.differences)
    return Markup("<b>{}</b>").format(text) if is_decided else text


def _filters(results: Results) -> dict[str, Callable[..., Any]]:
    decimals = wording.n_decimals(results)

    def interval(difference: Difference) -> str:
        return wording.format_interval(difference.low, difference.high, decimals)

    def plain(value: float | None) -> str:
        return wording.DASH if value is None else f"{value:.{decimals}f}"

    def residual(arm: ArmResult) -> str:
        return wording.format_residual(arm)

    return {
        "further": lambda arm, further: wording.further_value(arm, further),
        "further_difference": lambda arm, further: _further_difference(arm, further),
        "slug": lambda verdict: verdict.replace(" ", "-"),
        "signed": lambda value: wording.format_signed(value, decimals),
        "interval": interval,
        "plain": plain,
        "residual": residual,
        "p": wording.format_p,
        "quantity": wording.format_quantity,
        "duration": wording.format_duration,
        "more_seeds": wording.more_seeds,
        "comparison": lambda difference: wording.comparison(results, difference),
    }
