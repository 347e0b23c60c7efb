"""Curves of runs, final losses, and costs of equal quality."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.counts import count
from sublayer.objective.metric import Metric
from sublayer.statistics.secondary import Ratio, mean_ratio
from sublayer.study.results import ArmResult, Curve, Results
from sublayer.training.log import METRICS, read_metrics

LOSS = "loss"
"""The metric common to training and evaluations, in nats."""
WATCHED = "/"
"""The separator between a watched text and its metric, as in ``squad/loss``."""
_PLACE = ("step", "tokens", "seconds")


@dataclass(frozen=True)
class RunCurves:
    """The validation curves of a run by metric, and its training loss curve."""

    validation: Mapping[str, Curve] = field(default_factory=dict)
    training: Curve | None = None


def read_curves(seed: int, run: Path, metrics: Sequence[str]) -> RunCurves:
    """Read the validation curves of a run in these metrics, and its training loss.

    Watched texts' metrics are read, too. The training loss at an evaluation is the mean over the
    steps since the previous one, from the logged lines.
    """
    lines = [line for line in read_metrics(run / METRICS) if line.keys() >= {*_PLACE}]
    valid = [line for line in lines if line["kind"] == "valid"]
    trained = [line for line in lines if line["kind"] == "train" and LOSS in line]
    watched = sorted({key for line in valid for key in line if WATCHED in key})
    curves = {}
    for name in (*metrics, *watched):
        measured = [(line, line[name]) for line in valid if name in line]
        if measured:
            curves[name] = _curve(seed, measured)
    means = []
    begin = 0
    for line in valid:
        # A logged line is the mean over the steps since the previous line.
        total, previous = 0.0, begin
        for logged in trained:
            if previous < logged["step"] <= line["step"]:
                total += logged[LOSS] * (logged["step"] - begin)
                begin = logged["step"]
        if begin > previous:
            means.append((line, total / (begin - previous)))
        begin = line["step"]
    return RunCurves(curves, _curve(seed, means) if means else None)


def curves_by_metric(runs: Sequence[RunCurves]) -> dict[str, tuple[Curve, ...]]:
    """Group the validation curves of runs by metric."""
    by_metric: dict[str, tuple[Curve, ...]] = {}
    for run in runs:
        for name, curve in run.validation.items():
            by_metric[name] = (*by_metric.get(name, ()), curve)
    return by_metric


def _curve(seed: int, points: Sequence[tuple[Mapping[str, Any], float]]) -> Curve:
    steps, tokens, seconds = (tuple(line[name] for line, _ in points) for name in _PLACE)
    return Curve(seed, steps, tokens, seconds, tuple(value for _, value in points))


@dataclass(frozen=True)
class FinalLosses:
    """Losses at the last evaluation, in nats: means over seeds that have both, else None."""

    training: float | None
    """The mean over the steps since the previous evaluation, with dropout and changing weights."""
    validation: float | None
    gap: float | None
    """Validation minus training: both in nats, without smoothing and other terms."""


def final_losses(arm: ArmResult, metric: Metric) -> FinalLosses:
    """Read the final losses of an arm; ``metric`` is the deciding one."""
    curves = arm.curves if metric.name == LOSS else arm.further_curves.get(LOSS, ())
    valid = {curve.seed: curve for curve in curves}
    ends = [
        (trained.values[-1], valid[trained.seed].values[-1])
        for trained in arm.training_curves
        if trained.seed in valid and valid[trained.seed].steps[-1] == trained.steps[-1]
    ]
    if not ends:
        return FinalLosses(None, None, None)
    training, validation = (math.fsum(losses) / len(ends) for losses in zip(*ends, strict=True))
    return FinalLosses(training, validation, validation - training)


FEWEST_EVALUATIONS = 4
"""Fewest evaluations of a run for linear interpolation of its curve."""


@dataclass(frozen=True)
class SeedShares:
    """Costs of a run up to the final quality of another, as shares of the other's costs.

    None if the run did not reach it.
    """

    seed: int
    steps: float | None
    flops: float | None
    seconds: float | None
    is_at_first: bool = False
    """True if the first evaluation had reached it: then, or earlier."""


@dataclass(frozen=True)
class Summary:
    """Shares over seeds, with runs that did not reach the quality above all that did."""

    median: float | None
    """None: at least half of the runs did not reach it, or none was compared."""
    low: float | None
    high: float | None
    """None: a run did not reach it."""
    ratio: Ratio | None = None
    """The geometric mean with its 95% CI, if all of at least three runs reached it after their
    first evaluation."""


@dataclass(frozen=True)
class SameQuality:
    """Costs of ``arm`` up to the final quality of ``whose``, as shares of the costs of ``whose``.

    The two are an arm and its baseline. If the arm ends better or equal, its curve reaches the
    baseline's final quality; else the reverse.
    """

    arm: str
    """The arm whose curve reaches the quality."""
    whose: str
    """The arm of the final quality, whose run's costs are 1."""
    metric: Metric
    """The metric of the curves."""
    seeds: tuple[SeedShares, ...] = ()
    parameters: float | None = None
    """The arm's parameters as a share of those of ``whose``."""
    problem: str = field(default="", kw_only=True)
    """Reason why nothing was computed; else empty."""

    def summary(self, cost: str) -> Summary:
        """Return the median and the ends of ``steps``, ``flops`` or ``seconds`` over the seeds."""
        known = [getattr(seed, cost) for seed in self.seeds]
        shares = [math.inf if share is None else share for share in known]
        if not shares:
            return Summary(None, None, None)
        ends = (statistics.median(shares), min(shares), max(shares))
        ratio = None
        if math.isfinite(max(shares)) and not any(seed.is_at_first for seed in self.seeds):
            ratio = mean_ratio(shares)
        median, low, high = (end if math.isfinite(end) else None for end in ends)
        return Summary(median, low, high, ratio)

    @property
    def n_reached(self) -> int:
        """Count the seeds that reached it."""
        return sum(seed.steps is not None for seed in self.seeds)


def same_quality(results: Results) -> tuple[SameQuality, ...]:
    """Compute the costs of equal quality for each comparison, in order.

    The metric is the deciding one, or the first other with curves of both arms.
    """
    pairs = [(diff.arm, diff.baseline) for diff in results.differences if diff.baseline]
    return tuple(_compared(results, *pair) for pair in pairs)


def cost_at(curve: Curve, target: float, costs: Sequence[float], *, is_lower: bool) -> float | None:
    """Return the cost at which a curve first reaches a value, linearly interpolated.

    ``costs`` are at its evaluations; ``is_lower``: lower values are better. None if it never does.
    A curve that begins there reaches it at its first evaluation.
    """
    sign = 1.0 if is_lower else -1.0
    gaps = [sign * (value - target) for value in curve.values]
    index = next((index for index, gap in enumerate(gaps) if not gap > 0), None)
    if not index:
        return costs[0] if index == 0 else None
    before = gaps[index - 1]
    fraction = before / (before - gaps[index])
    return costs[index - 1] + fraction * (costs[index] - costs[index - 1])


def _compared(results: Results, arm: str, baseline: str) -> SameQuality:
    """Compare the costs of two arms, or give the reason why they cannot be compared."""
    by_name = {result.name: result for result in results.arms}
    one, other = by_name.get(arm), by_name.get(baseline)
    if one is None or other is None:
        problem = "it is a contrast of more than two arms"
        return SameQuality(arm, baseline, results.metric, problem=problem)
    metric, curves = common_curves(results, one, other)
    if metric is None:
        problem = "the two arms have no validation curves of the same metric"
        return SameQuality(arm, baseline, results.metric, problem=problem)
    seeds = [seed for seed in curves[0] if seed in curves[1]]
    fewest = min((len(of_arm[seed].values) for of_arm in curves for seed in seeds), default=0)
    if fewest < FEWEST_EVALUATIONS:
        problem = "no seed finished in both arms"
        if seeds:
            evaluations = count(fewest, "evaluation")
            problem = f"a run has only {evaluations}, and {FEWEST_EVALUATIONS} are needed"
        return SameQuality(arm, baseline, metric, problem=problem)
    ends = [np.mean([of_arm[seed].values[-1] for seed in seeds]) for of_arm in curves]
    reaching, reached = one, other
    if (ends[0] > ends[1]) if metric.is_lower_better else (ends[0] < ends[1]):
        reaching, reached, curves = other, one, curves[::-1]
    flops = reaching.costs.flops_per_token, reached.costs.flops_per_token

    def shares(curve: Curve, whole: Curve) -> SeedShares:
        target, is_lower = whole.values[-1], metric.is_lower_better

        def share(costs: Sequence[float], total: float) -> float | None:
            return _ratio(cost_at(curve, target, costs, is_lower=is_lower), total)

        first = curve.values[0]
        return SeedShares(
            curve.seed,
            steps=share(curve.steps, whole.steps[-1]),
            flops=share([n * flops[0] for n in curve.tokens], whole.tokens[-1] * flops[1]),
            seconds=share(curve.seconds, whole.seconds[-1]),
            is_at_first=bool(first <= target if is_lower else first >= target),
        )

    return SameQuality(
        reaching.name,
        reached.name,
        metric,
        tuple(shares(curves[0][seed], curves[1][seed]) for seed in seeds),
        parameters=_ratio(reaching.parameters["total"], reached.parameters["total"]),
    )


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


def common_curves(
    results: Results, *arms: ArmResult
) -> tuple[Metric | None, list[dict[int, Curve]]]:
    """Return the deciding metric, or the first other with validation curves of all arms.

    The second value is these curves of each arm, by seed; None and empty without such a metric.
    """
    for metric in (results.metric, *(further.metric for further in results.further)):
        is_first = metric.name == results.metric.name
        curves = [
            {curve.seed: curve for curve in series}
            for arm in arms
            for series in (arm.curves if is_first else arm.further_curves.get(metric.name, ()),)
        ]
        if all(curves):
            return metric, curves
    return None, []
