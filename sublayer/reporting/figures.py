"""Plots of reports of studies and of runs; equal results give equal bytes."""

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
from sublayer.statistics.difference import POWER
from sublayer.statistics.secondary import Course
from sublayer.study.budget.match import TOLERANCE
from sublayer.study.comparisons import Secondary, secondary_analyses, tuned_best
from sublayer.study.curves import WATCHED
from sublayer.study.inspection import mean_layers, summarize
from sublayer.study.results import ArmResult, Curve, Results, Tuning

_SIZE = (4.8, 3.1)  # inches of 72 units: legible both on a phone and at twice its width
_SEEDS_HEIGHT = 0.75, 0.36  # with no arm, and of each
_COST_SIZE = (3.6, 3.0)
_METRIC_SIZE = (4.8, 2.8)
_PROBES_SIZE = (6.4, 3.6)
_STYLES = ("-", "--", ":", "-.")
"""Of runs that stand in one figure; a probe has one colour in all of them."""
_LONGEST_NAME = 22
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
NO_METRIC = frozenset({"kind", "step", "tokens", "seconds"})
_CERTAIN = 0.995
"""A power that is drawn nowhere below it says no more than that seeds are enough."""


def looks(results: Results) -> dict[str, Look]:
    """Assign every arm a style: the baseline is black, others seven colours, solid, then dashed."""
    names = dict.fromkeys([results.baseline, *(arm.name for arm in results.arms)])
    return {name: look(index) for index, name in enumerate(names)}


def _plot(
    put: Callable[[Any], None],
    x: str,
    y: str,
    title: str,
    key: str,
    *,
    size: tuple[float, float] = _SIZE,
) -> str:
    """Draw a plot with two labels, as SVG for a page that has the palette; ``put`` fills its axes.

    ``key`` tells the plots of one page apart.
    """

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        put(axes)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(axis="y")
        axes.set_axisbelow(True)

    return page_svg(draw, size, title, key)


def draw_seeds(results: Results) -> str | None:
    """Plot every seed of every arm, a row each, equal seeds joined; None without results."""
    arms = [arm for arm in results.arms if arm.values]
    if not arms:
        return None
    styles = looks(results)
    by_seed = [dict(zip(arm.seeds, arm.values, strict=True)) for arm in arms]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for seed in sorted({seed for values in by_seed for seed in values}):
            rows = [row for row, values in enumerate(by_seed) if seed in values]
            values = [by_seed[row][seed] for row in rows]
            axes.plot(values, rows, color=RULE, linewidth=0.8, zorder=1)
        for row, arm in enumerate(arms):
            dots = {"color": styles[arm.name].placeholder, "markersize": 4.5, "alpha": 0.75}
            axes.plot(arm.values, [row] * len(arm.values), "o", zorder=3, **dots)
            bar = {"color": styles[arm.name].placeholder, "linewidth": 2, "zorder": 2}
            axes.plot([arm.mean, arm.mean], [row - 0.3, row + 0.3], **bar)
        names = [_shortened(arm.name) for arm in arms]
        axes.set_yticks(range(len(arms)), names, parse_math=False)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_ylim(len(arms) - 0.5, -0.5)
        axes.spines["left"].set_visible(False)
        split = f"{results.split} split, " if is_scored_on_text(results) else ""
        axes.set_xlabel(f"{split}{results.metric.label}")

    base, of_each = _SEEDS_HEIGHT
    size = _SIZE[0], base + of_each * len(arms)
    return page_svg(draw, size, f"{results.metric.label} of every seed", "seeds")


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _unit_of(largest: float) -> tuple[float, str]:
    """Return the power of 1000 that an axis is divided by, and the end of its label."""
    power = 3 * int(math.log10(largest) // 3) if largest >= 20_000 else 0
    words = {0: "", 3: ", thousands", 6: ", millions"}
    return 10.0**power, words.get(power, f", 10{str(power).translate(_RAISED)}")


@dataclass(frozen=True)
class _Quantity:
    """A quantity on an axis: of the evaluations of an arm's run, or of an arm."""

    name: str
    label: str
    of: Callable[..., Any]


_STEPS = _Quantity("steps", "optimizer steps", lambda curve, arm: curve.steps)
_AXES = (
    _STEPS,
    _Quantity("tokens", "tokens", lambda curve, arm: curve.tokens),
    _Quantity(
        "operations",
        "floating-point operations",
        lambda curve, arm: [n * arm.costs.flops_per_token for n in curve.tokens],
    ),
    _Quantity("seconds", "seconds", lambda curve, arm: curve.seconds),
)
_COSTS = (
    _Quantity("time", "seconds of a run", lambda arm: arm.costs.seconds),
    _Quantity("FLOPs", "FLOPs of a run", lambda arm: arm.costs.operations),
    _Quantity("parameters", "parameters", lambda arm: arm.parameters["total"]),
)


def draw_curves(results: Results) -> list[str]:
    """Plot the deciding metric, the training loss, every further metric and all watched texts.

    A plot in which no run has two points is left out: it says no more than the table.
    """
    arms = results.arms
    label = f"validation, {results.metric.label}"
    deciding = [arm.curves for arm in arms]
    plots = [_draw_curves(results, axis, "deciding", label, deciding) for axis in _AXES]
    training = [arm.training_curves for arm in arms]
    plots.append(_draw_curves(results, _STEPS, "training", "training loss, nats", training))

    def add(key: str, name: str, label: str) -> None:
        curves = [arm.further_curves.get(key, ()) for arm in arms]
        plots.append(_draw_curves(results, _STEPS, name, label, curves))

    for further in results.further:
        add(further.metric.name, further.metric.name, f"validation, {further.metric.label}")
    plots.append(draw_probes(_probed_arms(results)))
    for key in sorted({key for arm in arms for key in arm.further_curves if WATCHED in key}):
        text, _, metric = key.rpartition(WATCHED)
        name = metric.replace("_", " ")
        shown = f"zero-shot {name}" if text == PREFIX else f"{text} (watched), {name}"
        add(key, "".join(each if each.isalnum() else "-" for each in key), shown)
    return [plot for plot in plots if plot is not None]


def _draw_curves(
    results: Results, axis: _Quantity, name: str, label: str, curves: Sequence[Sequence[Curve]]
) -> str | None:
    """Plot curves of each arm over an axis, mean and range over seeds; None of single points.

    A mean ends where the arm's shortest curve does; of one point it is a dot with the arm's name.
    """
    drawn = [(arm, own) for arm, own in zip(results.arms, curves, strict=True) if own]
    all_curves = [curve for _, own in drawn for curve in own]
    if all(len(curve.values) < 2 for curve in all_curves):
        return None
    scale, unit = _unit_of(max(max(axis.of(curve, arm)) for arm, own in drawn for curve in own))
    # The fall of the first third would flatten what separates the arms.
    late = [value for curve in all_curves for value in curve.values[len(curve.values) // 3 :]]
    margin = 0.05 * (max(late) - min(late)) or 0.1

    def put(axes: Any) -> None:
        for arm, own in drawn:
            x, values = _aligned(arm, axis, own)
            style = looks(results)[arm.name]
            x, means, colour = x / scale, values.mean(axis=0), style.placeholder
            order = 4 if arm.name == results.baseline else 3
            if len(means) == 1:
                axes.plot(x, means, "o", color=colour, markersize=5, zorder=order)
                text = {"textcoords": "offset points", "fontsize": 8, "parse_math": False}
                axes.annotate(_shortened(arm.name), (x[0], means[0]), (6, 6), **text)
                continue
            axes.plot(x, means, style.line, color=colour, linewidth=1.4, zorder=order)
            ends = values.min(axis=0), values.max(axis=0)
            axes.fill_between(x, *ends, color=colour, alpha=0.16, linewidth=0)
        axes.set_xlim(left=0)
        axes.set_ylim(min(late) - margin, max(late) + margin)

    title = f"{label}, against {axis.label}"
    return _plot(put, f"{axis.label}{unit}", label, title, f"{name}-{axis.name}")


def _aligned(
    arm: ArmResult, axis: _Quantity, curves: Sequence[Curve]
) -> tuple[np.ndarray, np.ndarray]:
    """Return an axis's means and all seeds' values, up to the end of the shortest curve."""
    n = min(len(curve.values) for curve in curves)
    x = np.array([axis.of(curve, arm)[:n] for curve in curves], dtype=float)
    return x.mean(axis=0), np.array([curve.values[:n] for curve in curves])


@dataclass(frozen=True)
class ProbedRun:
    """A run whose evaluations asked probes."""

    name: str
    described: Mapping[str, Mapping[str, Any]]
    """By probe, its description in the record."""
    curves: Mapping[str, Sequence[tuple[int, float]]]
    """By probe its score after so many steps."""


def probed_run(
    name: str, record: Mapping[str, Any] | None, lines: Sequence[Mapping[str, Any]]
) -> list[ProbedRun]:
    """Read the probes of a run off its record and its metrics; nothing of a run without any."""
    described = (record or {}).get("probes") or {}
    curves = {
        probe: [(line["step"], float(line[key])) for line in lines if key in line]
        for probe in described
        for key in [f"{PREFIX}/{probe}"]
    }
    curves = {probe: points for probe, points in curves.items() if points}
    return [ProbedRun(name, described, curves)] if curves else []


def _probed_arms(results: Results) -> list[ProbedRun]:
    """Return the probes of each arm, the mean of its seeds."""
    runs = []
    for arm in results.arms:
        curves = {}
        for probe in arm.probes:
            own = arm.further_curves.get(f"{PREFIX}{WATCHED}{probe}", ())
            if own:
                steps, values = _aligned(arm, _STEPS, own)
                curves[probe] = list(zip(steps.tolist(), values.mean(axis=0).tolist(), strict=True))
        if curves:
            runs.append(ProbedRun(arm.name, arm.probes, curves))
    return runs


def draw_probes(runs: Sequence[ProbedRun]) -> str | None:
    """Plot the probes that have a reference, from chance to that; None where there are none.

    The band around 0 is chance with two standard errors of the probe that has the fewest examples.
    """
    if not _drawn(runs):
        return None
    return page_svg(
        lambda figure: put_probes(figure, runs), _PROBES_SIZE, "zero-shot probes", "probes"
    )


def put_probes(figure: Any, runs: Sequence[ProbedRun]) -> None:
    """Put the curves of probes on a figure of matplotlib."""
    axes = figure.add_subplot()
    widest = 0.0
    for index, probe in enumerate(_drawn(runs)):
        colour = look(index + 1).placeholder
        for style, run in zip(_STYLES, runs, strict=False):
            if probe not in run.curves:
                continue
            described = run.described[probe]
            span = described["reference"] - described["chance"]
            widest = max(widest, 2 * described["chance_error"] / span)
            steps, values = zip(*run.curves[probe], strict=True)
            shown = [(value - described["chance"]) / span for value in values]
            label = described["title"] + (f", {run.name}" if len(runs) > 1 else "")
            axes.plot(steps, shown, style, color=colour, linewidth=1.4, label=label)
    axes.axhspan(-widest, widest, color=MUTED, alpha=0.12, linewidth=0, label="chance, ± 2 errors")
    axes.axhline(0.0, color=MUTED, linewidth=0.8)
    axes.set_xlim(left=0)
    axes.set_xlabel("optimizer steps")
    axes.set_ylabel("from chance (0) to the reference (1)")
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _drawn(runs: Sequence[ProbedRun]) -> list[str]:
    probes = [
        probe
        for run in runs
        for probe in run.curves
        if run.described[probe]["reference"] is not None
    ]
    return list(dict.fromkeys(probes))


def draw_metrics(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Plot the metrics that a run logged, of training and validation; none of single points."""
    plots = []
    words = {"train": "training", "valid": "validation"}
    for name in dict.fromkeys(key for line in lines for key in line if key not in NO_METRIC):
        series = {
            kind: [
                (line["step"], line[name])
                for line in lines
                if line["kind"] == kind and isinstance(line.get(name), int | float)
            ]
            for kind in words
        }
        series = {kind: points for kind, points in series.items() if points}
        if all(len(points) < 2 for points in series.values()):
            continue

        def put(axes: Any, series: Mapping[str, Any] = series) -> None:
            for kind, points in series.items():
                style = look(1 if kind == "train" else 0)
                marker = "o" if len(points) == 1 else ""
                drawn = {"marker": marker, "color": style.placeholder, "label": words[kind]}
                axes.plot(*zip(*points, strict=True), style.line, **drawn)
            axes.set_xlim(left=0)
            axes.locator_params(axis="x", integer=True)
            if len(series) > 1:
                axes.legend(frameon=False)

        label = {"lr": "learning rate"}.get(name, name.replace("_", " "))
        plots.append(_plot(put, "optimizer steps", label, escape(label), name, size=_METRIC_SIZE))
    return plots


def draw_costs(results: Results) -> tuple[list[str], list[str]]:
    """Plot quality against each cost in which arms differ; return also the costs that are equal.

    Equal is what differs by half a percent at most.
    """
    plots, equal = [], []
    for cost in _COSTS:
        points = [
            (arm, value, arm.mean)
            for arm in results.arms
            if (value := cost.of(arm)) is not None and arm.mean is not None
        ]
        values = [value for _, value, _ in points]
        if len(values) > 1 and max(values) > (1 + TOLERANCE) * min(values):
            plots.append(_draw_cost(results, cost, points))
        elif len(values) > 1:
            equal.append(cost.name)
    return plots, equal


def _draw_cost(
    results: Results, cost: _Quantity, points: Sequence[tuple[ArmResult, float, float]]
) -> str:
    scale, unit = _unit_of(max(value for _, value, _ in points))
    styles = looks(results)

    def put(axes: Any) -> None:
        for arm, value, mean in points:
            style = styles[arm.name]
            place = value / scale
            if arm.name == results.baseline:
                axes.axhline(mean, color=MUTED, linestyle=":", linewidth=1.2, zorder=1)
            for difference in results.differences if results.has_verdicts else ():
                if difference.arm == arm.name and None not in (
                    difference.mean,
                    difference.low,
                    difference.high,
                ):
                    assert (
                        difference.mean is not None
                        and difference.low is not None
                        and difference.high is not None
                    )
                    ends = [
                        mean - (difference.mean - difference.low),
                        mean + (difference.high - difference.mean),
                    ]
                    bar = {"color": style.placeholder, "linewidth": 1.6}
                    axes.plot([place, place], ends, style.line, **bar)
                    break
            # Dashed arms repeat a colour: their points are squares.
            marker = "s" if style.is_dashed else "o"
            axes.plot([place], [mean], marker, color=style.placeholder, markersize=6, zorder=3)
        axes.margins(0.12)

    split = f"{results.split}, " if is_scored_on_text(results) else ""
    metric = results.metric.label
    title, key = f"{metric} against {cost.label}", f"cost-{cost.name}"
    return _plot(put, f"{cost.label}{unit}", f"{split}{metric}", title, key, size=_COST_SIZE)


def draw_courses(results: Results) -> list[str]:
    """Plot each difference over training with its pointwise interval."""
    return [
        _draw_course(results, each, each.course, number)
        for number, each in enumerate(secondary_analyses(results))
        if each.course is not None
    ]


def _draw_course(results: Results, found: Secondary, along: Course, number: int) -> str:
    colour = looks(results)[found.arm].placeholder
    steps = np.array(along.steps)
    has_interval = bool(along.lows)
    ends: list[Sequence[float]] = [along.lows, along.highs] if has_interval else [along.means]
    # The first third would flatten the differences of the last.
    late = [value for end in ends for value in end[len(steps) // 3 :]]
    reach = 1.15 * max(map(abs, [*late, results.margin or 0.0])) or 1.0

    def put(axes: Any) -> None:
        axes.axhline(0.0, color=INK, linewidth=1.0)
        for margin in () if results.margin is None else (-results.margin, results.margin):
            axes.axhline(margin, color=MUTED, linewidth=0.8, linestyle="--")
        if has_interval:
            axes.fill_between(steps, *ends, color=colour, alpha=0.22, linewidth=0)
        axes.plot(steps, along.means, color=colour, linewidth=1.6, marker="o", markersize=3)
        axes.set_ylim(-reach, reach)
        axes.set_xlim(left=0)
        title = f"{_shortened(found.arm)} − {_shortened(found.baseline)}"
        axes.set_title(title, loc="left", fontsize=10, parse_math=False)
        side = "worse" if results.metric.is_lower_better else "better"
        axes.set_title(f"↑ {side}", loc="right", fontsize=9, color=MUTED)

    y, title = f"difference, {found.course_label}", "difference over the course of training"
    return _plot(put, "optimizer steps", y, title, f"course-{number}")


def draw_power(results: Results) -> str | None:
    """Plot the power of each comparison over seeds; None where it is unknown, or certain."""
    known = [
        (analysis.arm, analysis.power) for analysis in secondary_analyses(results) if analysis.power
    ]
    if all(min(power.power) > _CERTAIN for _, power in known):
        return None
    styles = looks(results)

    def put(axes: Any) -> None:
        axes.axhline(POWER, color=RULE, linewidth=1.0, linestyle="--")
        for arm, power in known:
            style = styles.get(arm)
            colour, line = (INK, ":") if style is None else (style.placeholder, style.line)
            axes.plot(power.seeds, power.power, line, color=colour, linewidth=1.4, zorder=3)
            now = power.power[power.seeds.index(power.now)]
            axes.plot([power.now], [now], "o", color=colour, markersize=5, zorder=4)
        axes.set_ylim(0.0, 1.03)
        axes.locator_params(axis="x", integer=True)

    return _plot(put, "seeds of each arm", "power", "power over seeds", "power")


def draw_expected_best(results: Results) -> list[str]:
    """Plot the expected best of n trials of the arms, a plot for each stage that was tuned."""
    stages: dict[tuple[str, str], list[tuple[ArmResult, Tuning]]] = {}
    for arm in results.arms:
        for each in arm.tunings:
            if tuned_best(each):
                stages.setdefault((each.stage, each.label), []).append((arm, each))
    styles = looks(results)
    plots = []
    for number, ((stage, label), tuned) in enumerate(stages.items()):

        def put(axes: Any, tuned: Sequence[tuple[ArmResult, Tuning]] = tuned) -> None:
            for arm, tuning in tuned:
                best = [tuning.factor * value for value in tuned_best(tuning)]
                style = styles[arm.name]
                line = {"color": style.placeholder, "linewidth": 1.4}
                trials = range(1, len(best) + 1)
                axes.plot(trials, best, style.line, marker="o", markersize=4, **line)
            axes.locator_params(axis="x", integer=True)

        x, title = f"trials, {stage}" if stage else "trials", "expected best of n trials"
        plots.append(_plot(put, x, f"validation, {label}", title, f"best-{number}"))
    return plots


def draw_layers(results: Results) -> list[str]:
    """Plot distance and angle against the block, a line for each arm; nothing without any.

    A line is the mean over tokens and runs; a thin one is a run's, where there are several.
    """
    styles = looks(results)
    lines = []
    for arm in results.arms:
        if arm.layers:
            runs = [found.changes for found in arm.layers.values()]
            thin = runs if len(runs) > 1 else ()
            lines.append(Line(styles[arm.name], mean_layers(arm.layers), thin))
    plots = []
    for quantity, label in PANELS.items() if lines else ():

        def draw(figure: Any, quantity: str = quantity) -> None:
            put_lines(figure.add_subplot(), lines, quantity)

        title = f"{label}, of each block's input and output"
        plots.append(page_svg(draw, _SIZE, title, f"layers-{quantity}"))
    return plots


def layer_rows(results: Results) -> dict[str, list[str]]:
    """Format the cells of the table below by arm: first of its distances, then of its angles.

    Of each the mean, the change from block to block, the last, and where any arm has them the range
    of the blocks beyond its model's number.
    """
    rows: dict[str, list[str]] = {}
    for arm in results.arms:
        changes = mean_layers(arm.layers) if arm.layers else ()
        for quantity in PANELS if changes else ():
            summary = summarize(changes, quantity)
            unit = "" if quantity == "distance" else "°"
            numbers = (summary.mean, summary.from_block_to_block, summary.last)
            cells = [DASH if number is None else f"{number:.3g}{unit}" for number in numbers]
            low, high = summary.lowest_beyond, summary.highest_beyond
            if low is not None:
                cells.append(f"{low:.3g} to {high:.3g}{unit}")
            elif has_beyond(results):
                cells.append(DASH)
            rows[arm.name] = [*rows.get(arm.name, ()), *cells]
    return rows


def has_beyond(results: Results) -> bool:
    """Return whether a block of any arm was run beyond its model's number."""
    read = [found for arm in results.arms for found in arm.layers.values()]
    return any(change.is_beyond for found in read for change in found.changes)


def layers_read(results: Results) -> str:
    """Name the tokens read for it, to follow "over"; empty where nothing was inspected."""
    found = [layer for arm in results.arms for layer in arm.layers.values()]
    if not found:
        return ""
    least, most = min(each.n_tokens for each in found), max(each.n_tokens for each in found)
    tokens = f"{least:,} to " * (least < most) + count(most, "token")
    split = "validation" if found[0].split == "valid" else found[0].split
    return f"{tokens} of the {split} split"
