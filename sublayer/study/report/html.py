"""The report of a study: one HTML file that needs nothing else, the verdict first."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sublayer.files.storage import write_file
from sublayer.plot import palette
from sublayer.study.report import messages, number_format
from sublayer.study.report.display_units import in_display_units
from sublayer.study.report.figures import AXES, draw_curves, draw_seeds, looks
from sublayer.study.results import ArmResult, Further, Results
from sublayer.study.statistics import UNDECIDED, Difference


@dataclass(frozen=True)
class Span:
    """A stretch of the forest plot, in percent of its width."""

    place: float
    """Where it begins, from the left."""
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
    """The forest plot: intervals over one axis, all places in percent of its width."""

    rows: tuple[ForestRow, ...]
    ticks: tuple[Tick, ...]
    zero: float
    """Where no difference is."""
    left: str
    """What an arm is whose interval lies there: better or worse."""
    right: str


def render_report(results: Results) -> str:
    """Render the report as HTML; equal results give equal text."""
    results = in_display_units(results)
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("sublayer", "study")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(_filters(results))
    figures = [draw_curves(results, axis) for axis in AXES]
    seeds = draw_seeds(results)
    style, *_ = loader.get_source(environment, "report.css")
    baselines = {difference.baseline for difference in results.differences}
    n_failed = len(results.failures)
    template = environment.get_template("report.html.j2")
    # What is Markup was made here; all else is escaped.
    return template.render(
        results=results,
        css=Markup(palette() + style),
        headline=messages.headline(results),
        conditions=messages.conditions(results),
        statements=messages.statements(results),
        n_failed=f"{n_failed} run{'s' if n_failed > 1 else ''} failed",
        forest=lay_out_forest(results),
        matched=messages.MATCHED[results.match],
        others_too=bool(baselines - {results.baseline}),
        direction="Lower" if results.metric.is_lower_better else "Higher",
        any_marked=any(arm.is_mismatched for arm in results.arms),
        changed=[arm for arm in results.arms if arm.matched or arm.tuned],
        looks=looks(results),
        curves=[Markup(figure) for figure in figures if figure],
        seeds=Markup(seeds) if seeds else None,
    )


def write_report(results: Results, path: Path) -> None:
    """Write the report, whole or not at all. Raises OSError."""
    html = render_report(results)
    write_file(path, html)


def lay_out_forest(results: Results) -> Forest:
    """Place every interval, mean and seed on one axis that holds them and 0."""
    by_name = {}
    for arm in results.arms:
        by_name[arm.name] = dict(zip(arm.seeds, arm.values, strict=True))
    pairs: dict[str, list[float]] = {}
    numbers = [0.0]  # all that the axis must show
    for difference in results.differences:
        values = by_name[difference.arm]
        baseline = by_name[difference.baseline]
        own_pairs = [values[seed] - baseline[seed] for seed in difference.seeds]
        pairs[difference.arm] = own_pairs
        numbers += own_pairs
        if difference.low is not None:
            numbers.append(difference.low)
        if difference.high is not None:
            numbers.append(difference.high)
    low = min(numbers)
    high = max(numbers)
    margin = 0.06 * (high - low) or 1.0
    low -= margin
    high += margin

    def place(value: float) -> float:
        return round(100 * (value - low) / (high - low), 2)

    left, right = "worse", "better"
    if results.metric.is_lower_better:
        left, right = right, left
    rows = []
    for difference in results.differences:
        rows.append(_forest_row(difference, pairs[difference.arm], place))
    ticks = [Tick(place(value), label) for value, label in _ticks(low, high)]
    return Forest(tuple(rows), tuple(ticks), zero=place(0.0), left=left, right=right)


def _forest_row(
    difference: Difference, pairs: list[float], place: Callable[[float], float]
) -> ForestRow:
    span = None
    if difference.low is not None and difference.high is not None:
        begin = place(difference.low)
        end = place(difference.high)
        span = Span(begin, round(end - begin, 2))
    mean = None if difference.mean is None else place(difference.mean)
    seeds = tuple(place(value) for value in pairs)
    return ForestRow(difference, span, mean, seeds)


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Return round values between two ends, about six, with their labels."""
    rough = (high - low) / 6
    unit = 10 ** math.floor(math.log10(rough))
    steps = [unit * factor for factor in (1, 2, 5, 10)]
    step = min(each for each in steps if each >= rough)
    decimals = max(0, -math.floor(math.log10(step)))
    first = math.ceil(low / step)
    last = math.floor(high / step)
    ticks = []
    for n in range(first, last + 1):
        value = n * step
        label = number_format.format_signed(value, decimals) if n else "0"
        ticks.append((value, label))
    return ticks


def _further_difference(arm: ArmResult, further: Further) -> Any:
    from markupsafe import Markup

    text = messages.further_difference(arm, further)
    verdicts = {each.verdict for each in further.differences if each.arm == arm.name}
    is_decided = bool(verdicts - UNDECIDED)
    if not is_decided:
        return text
    return Markup("<b>{}</b>").format(text)


def _filters(results: Results) -> dict[str, Callable[..., Any]]:
    decimals = number_format.n_decimals(results)

    def interval(difference: Difference) -> str:
        return number_format.format_interval(difference.low, difference.high, decimals)

    def plain(value: float | None) -> str:
        return number_format.DASH if value is None else f"{value:.{decimals}f}"

    def residual(arm: ArmResult) -> str:
        return number_format.format_residual(arm)

    return {
        "further": lambda arm, further: messages.further_value(arm, further),
        "further_difference": lambda arm, further: _further_difference(arm, further),
        "slug": lambda verdict: verdict.replace(" ", "-"),
        "signed": lambda value: number_format.format_signed(value, decimals),
        "interval": interval,
        "plain": plain,
        "residual": residual,
        "p": number_format.format_p,
        "quantity": number_format.format_quantity,
        "duration": number_format.format_duration,
        "more_seeds": messages.more_seeds,
        "comparison": lambda difference: messages.comparison(results, difference),
    }
