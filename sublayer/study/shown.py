"""Results in the units in which people read them: shares in percent; files keep them as they are."""

from collections.abc import Sequence
from dataclasses import replace

from sublayer.study.results import ArmResult, Curve, Further, Results
from sublayer.study.statistics import Difference, Metric


def shown(results: Results) -> Results:
    """Multiply what was scored by the factor of its metric; what is shown already stays as it is."""
    return replace(
        results,
        metric=_as_shown(results.metric),
        arms=tuple(_arm(arm, results) for arm in results.arms),
        differences=_differences(results.differences, results.metric),
        further=tuple(
            Further(_as_shown(each.metric), _differences(each.differences, each.metric)) for each in results.further
        ),
    )


def _as_shown(metric: Metric) -> Metric:
    return replace(metric, factor=1.0)


def _arm(arm: ArmResult, results: Results) -> ArmResult:
    factor = results.metric.factor
    factors = {each.metric.name: each.metric.factor for each in results.further}
    return replace(
        arm,
        values=tuple(factor * value for value in arm.values),
        curves=tuple(_curve(curve, factor) for curve in arm.curves),
        further={
            name: {seed: factors.get(name, 1.0) * value for seed, value in values.items()}
            for name, values in arm.further.items()
        },
    )


def _curve(curve: Curve, factor: float) -> Curve:
    return replace(curve, values=tuple(factor * value for value in curve.values))


def _differences(differences: Sequence[Difference], metric: Metric) -> tuple[Difference, ...]:
    def scaled(value: float | None) -> float | None:
        return None if value is None else metric.factor * value

    return tuple(
        replace(
            each,
            mean=scaled(each.mean),
            sd=scaled(each.sd),
            low=scaled(each.low),
            high=scaled(each.high),
            detectable=scaled(each.detectable),
        )
        for each in differences
    )
