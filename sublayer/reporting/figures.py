"""Plots of a report: seeds, curves, costs, probes, layers; equal results give equal bytes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from sublayer.config.train import PREFIX
from sublayer.counts import count
from sublayer.inspection.layer_change import PANELS, Line, put_lines
from sublayer.numbers import DASH
from sublayer.plot import INK, MUTED, RULE, Look, look, page_svg
from sublayer.reporting.words import is_scored_on_text
from sublayer.study.budget.match import TOLERANCE
from sublayer.study.findings.curves import WATCHED
from sublayer.study.inspection import LayerSummary, mean_layers, summarize
from sublayer.study.results import ArmResult, Curve, Results

SIZE = (4.8, 3.1)  # inches of 72 units: legible both on a phone and at twice its width


def looks(results: Results) -> dict[str, Look]:
    """Assign every arm a style: the baseline is black, others seven colours, solid, then dashed."""
    names = [results.baseline]
    for arm in results.arms:
        if arm.name != results.baseline:
            names.append(arm.name)
    return {name: look(index) for index, name in enumerate(names)}


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
        names = [shortened(arm.name) for arm in arms]
        axes.set_yticks(range(len(arms)), names, parse_math=False)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_ylim(len(arms) - 0.5, -0.5)
        axes.spines["left"].set_visible(False)
        split = f"{results.split} split, " if is_scored_on_text(results) else ""
        axes.set_xlabel(f"{split}{results.metric.label}")

    title = f"{results.metric.label} of every seed"
    return page_svg(draw, (SIZE[0], height), title, "seeds")


def unit_of(largest: float) -> tuple[float, str]:
    """Return what an axis is divided by, a power of 1000, and what its label says of that."""
    power = 0
    if largest >= 20_000:
        n_thousands = int(math.log10(largest) // 3)
        power = 3 * n_thousands
    words = {0: "", 3: ", thousands", 6: ", millions"}
    raised = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    superscript = str(power).translate(raised)
    return 10.0**power, words.get(power, f", 10{superscript}")


def shortened(name: str, longest: int = 22) -> str:
    """Cut a name for a plot."""
    if len(name) <= longest:
        return name
    return f"{name[: longest - 1]}…"


_PROBES_SIZE = (6.4, 3.6)
_STYLES = ("-", "--", ":", "-.")
"""Of runs that stand in one figure; a probe has one colour in all of them."""


@dataclass(frozen=True)
class ProbedRun:
    """A run whose evaluations asked probes."""

    name: str
    described: Mapping[str, Mapping[str, Any]]
    """By probe, what the record says of it."""
    curves: Mapping[str, Sequence[tuple[int, float]]]
    """By probe its score after so many steps."""


def probed_run(
    name: str, record: Mapping[str, Any] | None, lines: Sequence[Mapping[str, Any]]
) -> ProbedRun | None:
    """Read the probes of a run off its record and its metrics; None of a run without any."""
    described = (record or {}).get("probes") or {}
    curves = {}
    for probe in described:
        key = f"{PREFIX}/{probe}"
        points = [(line["step"], float(line[key])) for line in lines if key in line]
        if points:
            curves[probe] = points
    return ProbedRun(name, described, curves) if curves else None


def draw_probes(runs: Sequence[ProbedRun], title: str = "zero-shot probes") -> str | None:
    """Draw the probes that have a reference, from chance to that; None where there are none.

    The band around 0 is chance with two standard errors of the probe that has the fewest examples.
    Returns SVG for a page that has the palette.
    """
    if not _drawn(runs):
        return None
    return page_svg(lambda figure: put_probes(figure, runs), _PROBES_SIZE, escape(title), "probes")


def put_probes(figure: Any, runs: Sequence[ProbedRun]) -> None:
    """Put the curves of probes on a figure of matplotlib."""
    probes = _drawn(runs)
    axes = figure.add_subplot()
    widest = 0.0
    for index, probe in enumerate(probes):
        colour = look(index + 1).placeholder
        for style, run in zip(_STYLES, runs, strict=False):
            if probe not in run.curves:
                continue
            described = run.described[probe]
            span = described["reference"] - described["chance"]
            widest = max(widest, 2 * described["chance_error"] / span)
            steps, values = zip(*run.curves[probe], strict=True)
            shown = [(value - described["chance"]) / span for value in values]
            named = described["title"] + (f", {run.name}" if len(runs) > 1 else "")
            axes.plot(steps, shown, style, color=colour, linewidth=1.4, label=named)
    axes.axhspan(-widest, widest, color=MUTED, alpha=0.12, linewidth=0, label="chance, ± 2 errors")
    axes.axhline(0.0, color=MUTED, linewidth=0.8)
    axes.set_xlim(left=0)
    axes.set_xlabel("optimizer steps")
    axes.set_ylabel("from chance (0) to the reference (1)")
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _drawn(runs: Sequence[ProbedRun]) -> list[str]:
    probes: dict[str, None] = {}
    for run in runs:
        for probe in run.curves:
            if run.described[probe]["reference"] is not None:
                probes.setdefault(probe)
    return list(probes)


@dataclass(frozen=True)
class Axis:
    """One way to measure how far a run has come."""

    name: str
    label: str
    of: Callable[[Curve, ArmResult], Sequence[float]]
    """Where on the axis each evaluation of an arm's run stands."""


@dataclass(frozen=True)
class Series:
    """What is drawn of each run."""

    name: str
    label: str
    of: Callable[[ArmResult], Sequence[Curve]]


def _operations(curve: Curve, arm: ArmResult) -> list[float]:
    return [n * arm.costs.flops_per_token for n in curve.tokens]


STEPS = Axis("steps", "optimizer steps", lambda curve, arm: curve.steps)
AXES = (
    STEPS,
    Axis("tokens", "tokens", lambda curve, arm: curve.tokens),
    Axis("operations", "floating-point operations", _operations),
    Axis("seconds", "seconds", lambda curve, arm: curve.seconds),
)
TRAINING = Series("training", "training loss, nats", lambda arm: arm.training_curves)


def all_curves(results: Results) -> list[str]:
    """Draw what there is of the deciding metric, the training loss and every further metric.

    Of texts that are watched every metric is drawn.

    A plot in which no run has two points is left out: it says no more than the table.
    """
    label = f"validation, {results.metric.label}"
    deciding = Series("deciding", label, lambda arm: arm.curves)
    drawn = [draw_curves(results, axis, deciding) for axis in AXES]
    drawn.append(draw_curves(results, STEPS, TRAINING))
    for further in results.further:
        drawn.append(
            draw_curves(results, STEPS, _further(further.metric.name, further.metric.label))
        )
    watched = {name for arm in results.arms for name in arm.further_curves if WATCHED in name}
    drawn.append(draw_probes(_probed(results)))
    drawn += [draw_curves(results, STEPS, _watched(name)) for name in sorted(watched)]
    return [plot for plot in drawn if plot is not None]


def _probed(results: Results) -> list[ProbedRun]:
    """Return the probes of each arm, the mean of its seeds."""
    runs = []
    for arm in results.arms:
        curves = {}
        for probe in arm.probes:
            own = arm.further_curves.get(f"{PREFIX}{WATCHED}{probe}", ())
            if own:
                steps, values = _aligned(arm, STEPS, own)
                curves[probe] = list(zip(steps.tolist(), values.mean(axis=0).tolist(), strict=True))
        if curves:
            runs.append(ProbedRun(arm.name, arm.probes, curves))
    return runs


def draw_curves(results: Results, axis: Axis, series: Series) -> str | None:
    """Plot a series over an axis, mean and range over seeds; None where no run has two points.

    Returns SVG for a page that has the palette. A mean ends where the arm's shortest curve does; of
    one point it is a dot with the arm's name.
    """
    arms = [arm for arm in results.arms if series.of(arm)]
    curves = [curve for arm in arms for curve in series.of(arm)]
    if not any(len(curve.values) > 1 for curve in curves):
        return None
    largest = max(max(axis.of(curve, arm)) for arm in arms for curve in series.of(arm))
    scale, unit = unit_of(largest)

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for arm in arms:
            _draw_arm(axes, results, arm, axis, series, scale)
        axes.set_xlim(left=0)
        axes.set_ylim(*_range_of_interest(curves))
        axes.set_xlabel(f"{axis.label}{unit}")
        axes.set_ylabel(series.label)
        axes.grid(axis="y")
        axes.set_axisbelow(True)

    title = f"{series.label}, against {axis.label}"
    return page_svg(draw, SIZE, title, f"{series.name}-{axis.name}")


def _further(name: str, label: str) -> Series:
    return Series(name, f"validation, {label}", lambda arm: arm.further_curves.get(name, ()))


def _watched(key: str) -> Series:
    text, _, metric = key.rpartition(WATCHED)
    identifier = "".join(each if each.isalnum() else "-" for each in key)
    label = f"{text} (watched), {metric.replace('_', ' ')}"
    if text == PREFIX:
        label = f"zero-shot {metric}"
    return Series(identifier, label, lambda arm: arm.further_curves.get(key, ()))


def _draw_arm(
    axes: Any, results: Results, arm: ArmResult, axis: Axis, series: Series, scale: float
) -> None:
    x, values = _aligned(arm, axis, series.of(arm))
    scaled = x / scale
    style = looks(results)[arm.name]
    colour = style.placeholder
    means = values.mean(axis=0)
    order = 4 if arm.name == results.baseline else 3
    if len(means) == 1:
        axes.plot(scaled, means, "o", color=colour, markersize=5, zorder=order)
        place = (scaled[0], means[0])
        name = shortened(arm.name)
        axes.annotate(name, place, (6, 6), textcoords="offset points", fontsize=8, parse_math=False)
        return
    axes.plot(scaled, means, style.line, color=colour, linewidth=1.4, zorder=order)
    low, high = values.min(axis=0), values.max(axis=0)
    axes.fill_between(scaled, low, high, color=colour, alpha=0.16, linewidth=0)


def _aligned(arm: ArmResult, axis: Axis, curves: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray]:
    """Return an axis's means and all seeds' values, up to the end of the shortest curve."""
    n = min(len(curve.values) for curve in curves)
    all_x = []
    all_values = []
    for curve in curves:
        all_x.append(axis.of(curve, arm)[:n])
        all_values.append(curve.values[:n])
    x = np.array(all_x, dtype=float)
    return x.mean(axis=0), np.array(all_values)


def _range_of_interest(curves: Sequence[Curve]) -> tuple[float, float]:
    # The fall of the first third would flatten what separates the arms.
    late: list[float] = []
    for curve in curves:
        n_early = len(curve.values) // 3
        late += curve.values[n_early:]
    margin = 0.05 * (max(late) - min(late)) or 0.1
    return min(late) - margin, max(late) + margin


_COST_SIZE = (3.6, 3.0)  # inches of 72 units


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
    return [_draw_cost(results, cost) for cost in COSTS if _differ(results, cost)]


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


def _draw_cost(results: Results, cost: Cost) -> str:
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
    return page_svg(draw, _COST_SIZE, title, f"cost-{cost.name}")


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
            cells += _layer_cells(
                summarize(changes, quantity), unit, has_beyond=has_beyond(results)
            )
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


def _layer_cells(summary: LayerSummary, unit: str, *, has_beyond: bool) -> list[str]:
    numbers = (summary.mean, summary.from_block_to_block, summary.last)
    cells = [DASH if number is None else f"{number:.3g}{unit}" for number in numbers]
    if summary.lowest_beyond is not None:
        cells.append(f"{summary.lowest_beyond:.3g} to {summary.highest_beyond:.3g}{unit}")
    elif has_beyond:
        cells.append(DASH)
    return cells
