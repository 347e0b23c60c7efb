"""Plots for reports of studies and runs; equal results give equal bytes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from sublayer.config.train import PREFIX
from sublayer.inspection.layer_change import PANELS, Line, put_lines
from sublayer.numbers import DASH, count
from sublayer.plot import INK, MUTED, RULE, Look, dots, look, page_svg
from sublayer.reporting.words import is_scored_on_text
from sublayer.statistics.contrasts import POWER
from sublayer.study.budget import TOLERANCE
from sublayer.study.comparisons import WATCHED, secondary_analyses, tuned_best
from sublayer.study.inspection import mean_layers, summarize
from sublayer.study.results import ArmResult, Curve, Results
from sublayer.tables import Sheet

_SIZE = (4.8, 3.1)  # inches of 72 units: legible both on a phone and at twice its width
_SEEDS_HEIGHT = 0.75, 0.36  # without arms, and per arm
_COST_SIZE = (3.6, 3.0)
_PROBES_SIZE = (6.4, 3.6)
_STYLES = ("-", "--", ":", "-.")
"""Line styles of runs in one figure; a probe has one colour in all of them."""
_LONGEST_NAME = 22
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
NO_METRIC = frozenset({"kind", "step", "tokens", "seconds"})
_CERTAIN = 0.995
"""A plot of power that never falls below it is left out: the seeds suffice."""
_STEPS = "optimizer steps"
_AXES = ("steps", "tokens", "operations", "seconds")
"""Costs on the axes of learning curves."""
_LABELS = {"steps": _STEPS, "operations": "floating-point operations"}
_COSTS: Mapping[str, tuple[str, Callable[[ArmResult], float | None]]] = {
    "time": ("seconds of a run", lambda arm: arm.costs.seconds),
    "FLOPs": ("FLOPs of a run", lambda arm: arm.costs.operations),
    "parameters": ("parameters", lambda arm: arm.parameters["total"]),
}


def looks(results: Results) -> dict[str, Look]:
    """Assign every arm a style: the baseline is black, others seven colours, solid, then dashed."""
    names = dict.fromkeys([results.baseline, *(arm.name for arm in results.arms)])
    return {name: look(index) for index, name in enumerate(names)}


def _plot(
    put: Callable[[Any], None], x: str, y: str, title: str, key: str, *, size: Any = _SIZE
) -> str:
    """Draw a plot with two labels, as SVG for a page with the palette; ``put`` fills its axes.

    ``key`` distinguishes the plots of one page.
    """

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.grid(axis="y")
        put(axes)
        axes.set_xlabel(x)
        axes.set_ylabel(y)

    return page_svg(draw, size, title, key)


def draw_seeds(results: Results) -> str | None:
    """Plot every seed of every arm, a row per arm, equal seeds joined; None without results."""
    arms = [arm for arm in results.arms if arm.values]
    if not arms:
        return None

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for seed in sorted({seed for arm in arms for seed in arm.seeds}):
            points = [
                (arm.values[arm.seeds.index(seed)], row)
                for row, arm in enumerate(arms)
                if seed in arm.seeds
            ]
            axes.plot(*zip(*points, strict=True), color=RULE, linewidth=0.8)
        for row, arm in enumerate(arms):
            colour = looks(results)[arm.name].placeholder
            axes.plot([arm.mean] * 2, [row - 0.3, row + 0.3], color=colour, linewidth=2)
            axes.plot(arm.values, [row] * len(arm.values), "o", color=colour, alpha=0.75)
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
    """Return the power of 1000 that scales an axis, and the end of its label."""
    power = 3 * int(math.log10(largest) // 3) if largest >= 20_000 else 0
    words = {0: "", 3: ", thousands", 6: ", millions"}
    return 10.0**power, words.get(power, f", 10{str(power).translate(_RAISED)}")


@dataclass(frozen=True)
class ProbedRun:
    """A run with probes at its evaluations."""

    name: str
    described: Mapping[str, Mapping[str, Any]]
    """By probe, its description in the record."""
    curves: Mapping[str, Sequence[tuple[int, float]]]
    """By probe, pairs of a step and the score after it."""


def draw_curves(results: Results) -> list[str]:
    """Plot the deciding metric, the training loss, further metrics and watched texts.

    A plot without a run of two points is left out: it adds nothing to the table.
    """
    arms = results.arms
    label = f"validation, {results.metric.label}"
    drawn = [(axis, "deciding", label, [arm.curves for arm in arms]) for axis in _AXES]
    of_training = [arm.training_curves for arm in arms]
    drawn.append(("steps", "training", "training loss, nats", of_training))
    further = {
        extra.metric.name: (extra.metric.name, f"validation, {extra.metric.label}")
        for extra in results.further
    }
    for key in sorted({key for arm in arms for key in arm.further_curves if WATCHED in key}):
        text, _, metric = key.rpartition(WATCHED)
        name = metric.replace("_", " ")
        shown = f"zero-shot {name}" if text == PREFIX else f"{text} (watched), {name}"
        further[key] = "".join(char if char.isalnum() else "-" for char in key), shown
    for key, (name, shown) in further.items():
        drawn.append(("steps", name, shown, [arm.further_curves.get(key, ()) for arm in arms]))
    probed = []
    for arm in arms:
        scores = {}
        for probe in arm.probes:
            if arm_curves := arm.further_curves.get(f"{PREFIX}{WATCHED}{probe}"):
                steps, values = _aligned(arm, "steps", arm_curves)
                scores[probe] = list(zip(steps.tolist(), values.mean(axis=0).tolist(), strict=True))
        if scores:  # the mean of its seeds
            probed.append(ProbedRun(arm.name, arm.probes, scores))
    plots = [*(_draw_curves(results, *args) for args in drawn), draw_probes(probed)]
    return [plot for plot in plots if plot is not None]


def _draw_curves(
    results: Results, axis: str, name: str, label: str, curves: Sequence[Sequence[Curve]]
) -> str | None:
    """Plot curves of each arm over an axis, mean and range over seeds; None of single points.

    A mean ends with the arm's shortest curve; a single point is a dot with the arm's name.
    """
    drawn = [
        (arm, *_aligned(arm, axis, arm_curves))
        for arm, arm_curves in zip(results.arms, curves, strict=True)
        if arm_curves
    ]
    all_values = [curve.values for arm_curves in curves for curve in arm_curves]
    if max(map(len, all_values), default=0) < 2:
        return None
    scale, unit = _unit_of(max(x.max() for _, x, _ in drawn))
    # The fall of the first third would flatten the differences between arms.
    late = [value for values in all_values for value in values[len(values) // 3 :]]
    margin = 0.05 * (max(late) - min(late)) or 0.1

    def put(axes: Any) -> None:
        # The baseline on top.
        for arm, x, values in sorted(drawn, key=lambda line: line[0].name == results.baseline):
            style, means = looks(results)[arm.name], values.mean(axis=0)
            colour = style.placeholder
            if len(means) == 1:
                axes.plot(x / scale, means, "o", color=colour)
                text = {"textcoords": "offset points", "fontsize": 8, "parse_math": False}
                axes.annotate(_shortened(arm.name), (x[0] / scale, means[0]), (6, 6), **text)
                continue
            axes.plot(x / scale, means, style.line, color=colour)
            ends = values.min(axis=0), values.max(axis=0)
            axes.fill_between(x / scale, *ends, color=colour, alpha=0.16, linewidth=0)
        axes.set_xlim(left=0)
        axes.set_ylim(min(late) - margin, max(late) + margin)

    along = _LABELS.get(axis, axis)
    return _plot(put, f"{along}{unit}", label, f"{label}, against {along}", f"{name}-{axis}")


def _aligned(arm: ArmResult, axis: str, curves: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray]:
    """Return an axis's means and all seeds' values, up to the end of the shortest curve."""
    n = min(len(curve.values) for curve in curves)
    name, factor = axis, 1.0
    if axis == "operations":
        name, factor = "tokens", arm.costs.flops_per_token
    x = factor * np.array([getattr(curve, name)[:n] for curve in curves], dtype=float)
    return x.mean(axis=0), np.array([curve.values[:n] for curve in curves])


def probed_run(
    name: str, record: Mapping[str, Any] | None, lines: Sequence[Mapping[str, Any]]
) -> list[ProbedRun]:
    """Read the probes of a run from its record and its metrics; empty without any."""
    described = (record or {}).get("probes") or {}
    curves: dict[str, list[tuple[int, float]]] = {}
    for probe in described:
        points = [(line["step"], line.get(f"{PREFIX}/{probe}")) for line in lines]
        if curve := [(step, float(score)) for step, score in points if score is not None]:
            curves[probe] = curve
    return [ProbedRun(name, described, curves)] if curves else []


def draw_probes(runs: Sequence[ProbedRun]) -> str | None:
    """Plot probes with a reference, from chance to the reference; None without any.

    The band around 0 is chance with two standard errors of the probe with the fewest examples.
    """
    if not _drawn(runs):
        return None
    return page_svg(
        lambda figure: put_probes(figure, runs), _PROBES_SIZE, "zero-shot probes", "probes"
    )


def put_probes(figure: Any, runs: Sequence[ProbedRun]) -> None:
    """Put the curves of probes on a figure of matplotlib."""
    axes = figure.add_subplot()
    axes.grid(axis="y")
    widest = 0.0
    for index, probe in enumerate(_drawn(runs)):
        for style, run in zip(_STYLES, runs, strict=False):
            if probe not in run.curves:
                continue
            described = run.described[probe]
            span = described["reference"] - described["chance"]
            widest = max(widest, 2 * described["chance_error"] / span)
            steps, values = zip(*run.curves[probe], strict=True)
            shown = (np.array(values) - described["chance"]) / span
            label = described["title"] + (f", {run.name}" if len(runs) > 1 else "")
            axes.plot(steps, shown, style, color=look(index + 1).placeholder, label=label)
    axes.axhspan(-widest, widest, color=MUTED, alpha=0.12, linewidth=0, label="chance, ± 2 errors")
    axes.axhline(0.0, color=MUTED, linewidth=0.8)
    axes.set_xlim(left=0)
    axes.set_xlabel(_STEPS)
    axes.set_ylabel("from chance (0) to the reference (1)")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _drawn(runs: Sequence[ProbedRun]) -> list[str]:
    probes = [(probe, run.described[probe]) for run in runs for probe in run.curves]
    return list(dict.fromkeys(name for name, it in probes if it["reference"] is not None))


def draw_metrics(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Plot the logged metrics of training and validation; none of single points."""
    plots = []
    looks = {"training": look(1), "validation": look(0)}
    for name in dict.fromkeys(key for line in lines for key in line if key not in NO_METRIC):
        series = {
            kind: [
                (line["step"], line[name])
                for line in lines
                if kind.startswith(line["kind"]) and isinstance(line.get(name), int | float)
            ]
            for kind in looks
        }
        if all(len(points) < 2 for points in series.values()):
            continue

        def put(axes: Any, series: Mapping[str, Any] = series) -> None:
            for kind, points in series.items():
                if points:
                    colour, marker = looks[kind].placeholder, "o" if len(points) == 1 else ""
                    axes.plot(*zip(*points, strict=True), color=colour, marker=marker, label=kind)
            axes.set_xlim(left=0)
            axes.locator_params(axis="x", integer=True)
            if all(series.values()):
                axes.legend()

        label = {"lr": "learning rate"}.get(name, name.replace("_", " "))
        plots.append(_plot(put, _STEPS, label, escape(label), name))
    return plots


def draw_costs(results: Results) -> tuple[list[str], list[str]]:
    """Plot quality against each cost that differs between arms; also return the equal costs.

    Costs that differ by half a percent at most are equal.
    """
    plots, equal = [], []
    for name, (label, cost) in _COSTS.items():
        pairs = [(arm, cost(arm)) for arm in results.arms if arm.mean is not None]
        points = {arm.name: (value, arm.mean) for arm, value in pairs if value is not None}
        values = [value for value, _ in points.values()]
        if len(values) < 2:
            continue
        if max(values) <= (1 + TOLERANCE) * min(values):
            equal.append(name)
            continue
        scale, unit = _unit_of(max(values))

        def put(axes: Any, points: Mapping[str, Any] = points, scale: float = scale) -> None:
            if results.baseline in points:
                _, mean = points[results.baseline]
                axes.axhline(mean, color=MUTED, linestyle=":")
            drawn = set()
            for difference in results.differences if results.has_verdicts else ():
                if (
                    difference.low is None
                    or difference.arm not in points
                    or difference.arm in drawn
                ):
                    continue
                drawn.add(difference.arm)
                value, mean = points[difference.arm]
                style = looks(results)[difference.arm]
                ends = [
                    mean - difference.mean + difference.low,
                    mean - difference.mean + difference.high,
                ]
                axes.plot([value / scale] * 2, ends, style.line, color=style.placeholder)
            for name, (value, mean) in points.items():
                style = looks(results)[name]
                # Dashed arms repeat a colour: their points are squares.
                marker = "s" if style.is_dashed else "o"
                axes.plot([value / scale], [mean], marker, color=style.placeholder)
            axes.margins(0.12)

        split = f"{results.split}, " if is_scored_on_text(results) else ""
        metric = results.metric.label
        title, key = f"{metric} against {label}", f"cost-{name}"
        one = _plot(put, f"{label}{unit}", f"{split}{metric}", title, key, size=_COST_SIZE)
        plots.append(one)
    return plots, equal


def draw_courses(results: Results) -> list[str]:
    """Plot each difference over training with its pointwise interval."""
    plots = []
    for number, secondary in enumerate(secondary_analyses(results)):
        course = secondary.course
        if course is None:
            continue
        # The first third would flatten the differences of the last.
        ends = (course.lows, course.highs) if course.lows else (course.means,)
        late = [value for values in ends for value in values[len(course.steps) // 3 :]]
        reach = 1.15 * max(map(abs, [*late, results.margin or 0.0])) or 1.0

        def put(axes: Any, analysis: Any = secondary, reach: float = reach) -> None:
            course, colour = analysis.course, looks(results)[analysis.arm].placeholder
            axes.axhline(0.0, color=INK, linewidth=1.0)
            for margin in () if results.margin is None else (-results.margin, results.margin):
                axes.axhline(margin, color=MUTED, linewidth=0.8, linestyle="--")
            if course.lows:
                ends = course.lows, course.highs
                axes.fill_between(course.steps, *ends, color=colour, alpha=0.16, linewidth=0)
            axes.plot(course.steps, course.means, color=colour, marker="o")
            axes.set_ylim(-reach, reach)
            axes.set_xlim(left=0)
            title = f"{_shortened(analysis.arm)} − {_shortened(analysis.baseline)}"
            axes.set_title(title, loc="left", fontsize=10, parse_math=False)
            side = "worse" if results.metric.is_lower_better else "better"
            axes.set_title(f"↑ {side}", loc="right", fontsize=9, color=MUTED)

        y, title = f"difference, {secondary.course_label}", "difference over the course of training"
        plots.append(_plot(put, _STEPS, y, title, f"course-{number}"))
    return plots


def draw_power(results: Results) -> str | None:
    """Plot the power of each comparison over seeds; None if it is unknown, or certain."""
    powers = [
        (analysis.arm, analysis.power) for analysis in secondary_analyses(results) if analysis.power
    ]
    if all(min(power.power) > _CERTAIN for _, power in powers):
        return None

    def put(axes: Any) -> None:
        axes.axhline(POWER, color=RULE, linewidth=1.0, linestyle="--")
        for arm, power in powers:
            style = looks(results).get(arm)
            colour, line = (INK, ":") if style is None else (style.placeholder, style.line)
            axes.plot(power.seeds, power.power, line, color=colour)
            now = power.power[power.seeds.index(power.now)]
            axes.plot([power.now], [now], "o", color=colour)
        axes.set_ylim(0.0, 1.03)
        axes.locator_params(axis="x", integer=True)

    return _plot(put, "seeds of each arm", "power", "power over seeds", "power")


def draw_expected_best(results: Results) -> list[str]:
    """Plot the expected best of n trials of the arms, a plot for each tuned stage."""
    stages: dict[tuple[str, str], dict[str, list[float]]] = {}
    for arm in results.arms:
        for tuning in arm.tunings:
            if best := [tuning.factor * value for value in tuned_best(tuning)]:
                stages.setdefault((tuning.stage, tuning.label), {})[arm.name] = best
    plots = []
    for number, ((stage, label), tuned) in enumerate(stages.items()):

        def put(axes: Any, tuned: Mapping[str, Sequence[float]] = tuned) -> None:
            for name, best in tuned.items():
                style, trials = looks(results)[name], range(1, len(best) + 1)
                dots(axes, trials, best, style)
            axes.locator_params(axis="x", integer=True)

        x, title = f"trials, {stage}" if stage else "trials", "expected best of n trials"
        plots.append(_plot(put, x, f"validation, {label}", title, f"best-{number}"))
    return plots


def draw_layers(results: Results) -> list[str]:
    """Plot distance and angle against the block, a line for each arm; nothing without any.

    A line is the mean over tokens and runs; thin lines are single runs, if there are several.
    """
    lines = []
    for arm in results.arms:
        if arm.layers:
            runs = [run.changes for run in arm.layers.values()]
            thin = runs if len(runs) > 1 else ()
            lines.append(Line(looks(results)[arm.name], mean_layers(arm.layers), thin))
    plots = []
    for quantity, label in PANELS.items() if lines else ():

        def draw(figure: Any, quantity: str = quantity) -> None:
            put_lines(figure.add_subplot(), lines, quantity)

        title = f"{label}, of each block's input and output"
        plots.append(page_svg(draw, _SIZE, title, f"layers-{quantity}"))
    return plots


def layers_sheet(results: Results) -> Sheet:
    """Return the table of the inspected blocks: distances, then angles; no rows without any.

    For each: the mean, the change from block to block, the last, and, if any arm has them, the
    range over blocks beyond the model's number.
    """
    read = [run for arm in results.arms for run in arm.layers.values()]
    has_beyond = any(change.is_beyond for run in read for change in run.changes)
    columns = ["all blocks", "from block to block", "last block", "beyond, lowest to highest"]
    columns = columns if has_beyond else columns[:-1]
    rows = []
    for arm in results.arms:
        cells = [arm.name]
        for quantity in PANELS if arm.layers else ():
            summary = summarize(mean_layers(arm.layers), quantity)
            unit = "" if quantity == "distance" else "°"
            numbers = [summary.mean, summary.from_block_to_block, summary.last]
            cells += [DASH if number is None else f"{number:.3g}{unit}" for number in numbers]
            low, high = summary.lowest_beyond, summary.highest_beyond
            cells += [DASH if low is None else f"{low:.3g} to {high:.3g}{unit}"] * has_beyond
        if arm.layers:
            rows.append(cells)
    headings = [f"{name}, {column}" for name in ("L2 distance", "angle") for column in columns]
    return Sheet(["arm", *headings], rows)


def layers_read(results: Results) -> str:
    """Name the inspected tokens, to follow "over"; empty without an inspection."""
    inspected = [layer for arm in results.arms for layer in arm.layers.values()]
    if not inspected:
        return ""
    least, most = min(run.n_tokens for run in inspected), max(run.n_tokens for run in inspected)
    tokens = f"{least:,} to " * (least < most) + count(most, "token")
    split = "validation" if inspected[0].split == "valid" else inspected[0].split
    return f"{tokens} of the {split} split"
