"""Curves of runs, the losses at their ends, and the cost of the same quality in another arm."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.counts import count
from sublayer.objective.metric import Metric
from sublayer.statistics.difference import Difference
from sublayer.statistics.secondary import Ratio, mean_ratio
from sublayer.study.results import ArmResult, Curve, Results
from sublayer.training.metrics import METRICS, read_metrics

LOSS = "loss"
"""The metric that training and every evaluation have, in nats."""
WATCHED = "/"
"""The separator between a watched text and its metric, as in ``squad/loss``."""
_PLACE = ("step", "tokens", "seconds")


@dataclass(frozen=True)
class RunCurves:
    """The validation curves of a run by metric, and the curve of its training loss."""

    validation: Mapping[str, Curve] = field(default_factory=dict)
    training: Curve | None = None


def read_curves(seed: int, run: Path, metrics: Sequence[str]) -> RunCurves:
    """Read the validation curves of a run, of the metrics that it measured, and its training loss.

    Every metric of the texts that are watched is read too.

    The training loss has a value for each evaluation: the mean over the steps since the one before,
    from the lines that were logged.
    """
    lines = [line for line in read_metrics(run / METRICS) if line.keys() >= {*_PLACE}]
    valid = [line for line in lines if line["kind"] == "valid"]
    trained = [line for line in lines if line["kind"] == "train" and LOSS in line]
    curves = {}
    watched = {key for line in valid for key in line if WATCHED in key}
    for name in (*metrics, *sorted(watched)):
        measured = [line for line in valid if name in line]
        if measured:
            curves[name] = _curve(seed, measured, [line[name] for line in measured])
    return RunCurves(curves, _training_curve(seed, valid, trained))


def curves_by_metric(runs: Sequence[RunCurves]) -> dict[str, tuple[Curve, ...]]:
    """Gather the validation curves of an arm's runs by metric, those that have it."""
    by_metric: dict[str, tuple[Curve, ...]] = {}
    for run in runs:
        for name, curve in run.validation.items():
            by_metric[name] = (*by_metric.get(name, ()), curve)
    return by_metric


def _training_curve(
    seed: int, valid: Sequence[Mapping[str, Any]], trained: Sequence[Mapping[str, Any]]
) -> Curve | None:
    places = []
    means = []
    previous = 0
    for line in valid:
        # A line is the mean over the steps since the line before.
        total = 0.0
        n_steps = 0
        begin = previous
        for logged in trained:
            if previous < logged["step"] <= line["step"]:
                total += logged[LOSS] * (logged["step"] - begin)
                n_steps += logged["step"] - begin
                begin = logged["step"]
        previous = line["step"]
        if n_steps:
            places.append(line)
            means.append(total / n_steps)
    return _curve(seed, places, means) if places else None


def _curve(seed: int, lines: Sequence[Mapping[str, Any]], values: Sequence[float]) -> Curve:
    return Curve(
        seed,
        steps=tuple(line["step"] for line in lines),
        tokens=tuple(line["tokens"] for line in lines),
        seconds=tuple(line["seconds"] for line in lines),
        values=tuple(values),
    )


@dataclass(frozen=True)
class FinalLosses:
    """Losses at the last evaluation, in nats: means over the seeds that have both; None without."""

    training: float | None
    """The mean over the steps since the evaluation before, with dropout and as weights change."""
    validation: float | None
    gap: float | None
    """Validation minus training: both are of the same nats, without smoothing and other terms."""


def final_losses(arm: ArmResult, metric: Metric) -> FinalLosses:
    """Read the losses at the end of an arm's curves; ``metric`` is the one that decides."""
    curves = arm.curves if metric.name == LOSS else arm.further_curves.get(LOSS, ())
    valid = {curve.seed: curve for curve in curves}
    ends = []
    for trained in arm.training_curves:
        curve = valid.get(trained.seed)
        if curve is not None and curve.steps[-1] == trained.steps[-1]:
            ends.append((trained.values[-1], curve.values[-1]))
    if not ends:
        return FinalLosses(None, None, None)
    training = _mean([trained for trained, _ in ends])
    validation = _mean([value for _, value in ends])
    return FinalLosses(training, validation, validation - training)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


FEWEST_EVALUATIONS = 4
"""Of a run; between fewer a straight line says nothing of where a curve reaches a value."""


@dataclass(frozen=True)
class SeedShares:
    """Costs of one run up to the quality that the other ended with, as shares of the other's costs.

    Each is None where the run did not reach it.
    """

    seed: int
    steps: float | None
    flops: float | None
    seconds: float | None
    is_at_first: bool = False
    """True where the first evaluation was there already: it was reached then, or earlier."""


@dataclass(frozen=True)
class Summary:
    """Shares over seeds, where runs that did not reach the quality stand above all that did."""

    median: float | None
    """None: half of the runs or more did not reach it, or none was compared."""
    low: float | None
    high: float | None
    """None: a run did not reach it."""
    ratio: Ratio | None = None
    """The geometric mean with its 95% CI, where all runs reached it after their first evaluation,
    and are at least three."""


@dataclass(frozen=True)
class SameQuality:
    """Costs of ``arm`` up to the final quality of ``whose``, as shares of the costs of ``whose``.

    The two are an arm and its baseline. Where the arm ends better, or equal, it is the one that
    reaches; where it ends worse, the baseline is.
    """

    arm: str
    """Whose curve reaches the quality."""
    whose: str
    """Whose final quality it is, and whose run's costs are 1."""
    metric: Metric
    """The one whose curves are read."""
    seeds: tuple[SeedShares, ...] = ()
    parameters: float | None = None
    """The arm's as a share of those of ``whose``."""
    problem: str = field(default="", kw_only=True)
    """Why nothing was computed; empty where it was."""

    def summary(self, cost: str) -> Summary:
        """Return the median and the ends of ``steps``, ``flops`` or ``seconds`` over the seeds."""
        shares = []
        for seed in self.seeds:
            share = getattr(seed, cost)
            shares.append(math.inf if share is None else share)
        if not shares:
            return Summary(None, None, None)

        def known(value: float) -> float | None:
            return value if math.isfinite(value) else None

        middle = statistics.median(shares)
        ratio = None
        if math.isfinite(max(shares)) and not any(seed.is_at_first for seed in self.seeds):
            ratio = mean_ratio(shares)
        return Summary(known(middle), known(min(shares)), known(max(shares)), ratio)

    @property
    def n_reached(self) -> int:
        """Count the seeds that reached it."""
        return sum(seed.steps is not None for seed in self.seeds)


def same_quality(results: Results) -> tuple[SameQuality, ...]:
    """Read the cost of the same quality off the curves of each two arms compared, in order.

    By the metric that decides, or the first other whose curve both arms have.
    """
    by_name = {arm.name: arm for arm in results.arms}
    return tuple(
        _compared(results, by_name, difference)
        for difference in results.differences
        if difference.baseline
    )


def cost_at(curve: Curve, target: float, costs: Sequence[float], *, is_lower: bool) -> float | None:
    """Return the cost at which a curve first reaches a value, between evaluations on a line.

    ``costs`` are those of its evaluations; ``is_lower``: lower values are better. None where it
    never does. A curve that begins there reaches it at its first evaluation.
    """
    sign = 1.0 if is_lower else -1.0
    gaps = [sign * (value - target) for value in curve.values]
    for index, gap in enumerate(gaps):
        if gap > 0:
            continue
        if index == 0:
            return costs[0]
        before = gaps[index - 1]
        fraction = before / (before - gap)
        return costs[index - 1] + fraction * (costs[index] - costs[index - 1])
    return None


def _compared(
    results: Results, by_name: dict[str, ArmResult], difference: Difference
) -> SameQuality:
    names = difference.arm, difference.baseline
    if not by_name.keys() >= {*names}:
        problem = "it is a contrast of more than two arms"
        return SameQuality(*names, results.metric, problem=problem)
    arm, baseline = (by_name[name] for name in names)
    metric = common_metric(results, arm, baseline)
    if metric is None:
        problem = "the two arms have no validation curves of the same metric"
        return SameQuality(*names, results.metric, problem=problem)
    curves = curves_by_seed(arm, metric, results), curves_by_seed(baseline, metric, results)
    seeds = [seed for seed in curves[0] if seed in curves[1]]
    fewest = min((len(of_arm[seed].values) for of_arm in curves for seed in seeds), default=0)
    if fewest < FEWEST_EVALUATIONS:
        problem = "no seed finished in both arms"
        if seeds:
            evaluations = count(fewest, "evaluation")
            problem = f"a run has only {evaluations}, and {FEWEST_EVALUATIONS} are needed"
        return SameQuality(*names, metric, problem=problem)
    ends = [[of_arm[seed].values[-1] for seed in seeds] for of_arm in curves]
    ahead = float(np.mean(ends[0]) - np.mean(ends[1]))
    if not metric.is_lower_better:
        ahead = -ahead
    reaching, reached = (arm, baseline) if ahead <= 0 else (baseline, arm)
    first, second = curves if ahead <= 0 else curves[::-1]
    shares = [_shares(first[seed], reaching, second[seed], reached, metric) for seed in seeds]
    return SameQuality(
        reaching.name,
        reached.name,
        metric,
        tuple(shares),
        parameters=_ratio(reaching.parameters["total"], reached.parameters["total"]),
    )


def _shares(
    curve: Curve, arm: ArmResult, other: Curve, whose: ArmResult, metric: Metric
) -> SeedShares:
    target = other.values[-1]

    def share(costs: Sequence[float], total: float) -> float | None:
        cost = cost_at(curve, target, costs, is_lower=metric.is_lower_better)
        return None if cost is None else _ratio(cost, total)

    flops = [tokens * arm.costs.flops_per_token for tokens in curve.tokens]
    sign = 1 if metric.is_lower_better else -1
    return SeedShares(
        curve.seed,
        steps=share(curve.steps, other.steps[-1]),
        flops=share(flops, other.tokens[-1] * whose.costs.flops_per_token),
        seconds=share(curve.seconds, other.seconds[-1]),
        is_at_first=bool(sign * (curve.values[0] - target) <= 0),
    )


def _ratio(one: float | None, other: float | None) -> float | None:
    if one is None or not other:
        return None
    return one / other


def common_metric(results: Results, arm: ArmResult, baseline: ArmResult) -> Metric | None:
    """Return the deciding metric, or the first other of which both arms have validation curves."""
    for metric in (results.metric, *(further.metric for further in results.further)):
        if curves_by_seed(arm, metric, results) and curves_by_seed(baseline, metric, results):
            return metric
    return None


def curves_by_seed(arm: ArmResult, metric: Metric, results: Results) -> dict[int, Curve]:
    """Return an arm's validation curves of a metric by seed; empty where it has none."""
    curves = arm.curves
    if metric.name != results.metric.name:
        curves = arm.further_curves.get(metric.name, ())
    return {curve.seed: curve for curve in curves}
