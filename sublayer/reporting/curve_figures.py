"""The report's learning curves: of what decides, of the training loss and of other metrics."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sublayer.config.probes import PREFIX
from sublayer.plot import page_svg
from sublayer.reporting.figures import SIZE, looks, shortened, unit_of
from sublayer.reporting.probe_figures import ProbedRun, draw_probes
from sublayer.study.findings.curves import WATCHED
from sublayer.study.results import ArmResult, Curve, Results


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
