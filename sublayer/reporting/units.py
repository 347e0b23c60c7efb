"""Display units and decimals of results: shares in percent; files keep the metric's unit."""

import math
from collections.abc import Sequence
from dataclasses import replace

from sublayer.objective.metric import Metric
from sublayer.statistics.difference import Difference
from sublayer.statistics.simultaneous import Parts
from sublayer.study.results import ArmResult, Curve, Further, Results


def in_display_units(results: Results) -> Results:
    """Multiply scores by the display factor of their metric; displayed results stay as they are."""
    further = []
    for each in results.further:
        differences = _differences(each.differences, each.metric)
        further.append(Further(_as_shown(each.metric), differences))
    return replace(
        results,
        metric=_as_shown(results.metric),
        arms=tuple(_arm(arm, results) for arm in results.arms),
        differences=_differences(results.differences, results.metric),
        further=tuple(further),
        margin=None if results.margin is None else results.margin * results.metric.factor,
    )


def n_decimals(results: Results) -> int:
    """Choose the decimals of a study's differences."""
    return decimals_for(results.differences, results.metric)


def decimals_for(differences: Sequence[Difference], metric: Metric) -> int:
    """Choose the decimals that show the narrowest of some intervals with two digits.

    They are 5 at most, and never fewer than the metric's own.
    """
    widths = []
    for difference in differences:
        if difference.low is None or difference.high is None:
            continue
        width = difference.high - difference.low
        if width > 0:
            widths.append(width)
    if not widths:
        return metric.decimals
    needed = 1 - math.floor(math.log10(min(widths)))
    return min(5, max(metric.decimals, needed))


def _parts(parts: Parts, factor: float) -> Parts:
    items = None if parts.items is None else parts.items * factor
    return Parts(parts.seeds * factor, items, parts.tuning * factor)


def _as_shown(metric: Metric) -> Metric:
    # So that displayed results are not multiplied once more.
    return replace(metric, factor=1.0)


def _arm(arm: ArmResult, results: Results) -> ArmResult:
    factor = results.metric.factor
    factors = {each.metric.name: each.metric.factor for each in results.further}
    further = {}
    for name, values in arm.further.items():
        own_factor = factors.get(name, 1.0)
        further[name] = {seed: own_factor * value for seed, value in values.items()}
    further_curves = {}
    for name, curves in arm.further_curves.items():
        own_factor = factors.get(name, 1.0)
        further_curves[name] = tuple(_curve(curve, own_factor) for curve in curves)
    return replace(
        arm,
        values=tuple(factor * value for value in arm.values),
        curves=tuple(_curve(curve, factor) for curve in arm.curves),
        further=further,
        further_curves=further_curves,
    )


def _curve(curve: Curve, factor: float) -> Curve:
    return replace(curve, values=tuple(factor * value for value in curve.values))


def _differences(differences: Sequence[Difference], metric: Metric) -> tuple[Difference, ...]:
    def scaled(value: float | None) -> float | None:
        return None if value is None else metric.factor * value

    shown = []
    for each in differences:
        in_units = replace(
            each,
            mean=scaled(each.mean),
            sd=scaled(each.sd),
            low=scaled(each.low),
            high=scaled(each.high),
            detectable=scaled(each.detectable),
            excluded=scaled(each.excluded),
            equivalent=scaled(each.equivalent),
            standard_error=scaled(each.standard_error),
            parts=None if each.parts is None else _parts(each.parts, metric.factor),
        )
        shown.append(in_units)
    return tuple(shown)
