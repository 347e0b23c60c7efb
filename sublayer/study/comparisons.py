"""Compared arms: curves, equal quality, differing settings, budgets, secondary analyses."""

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sublayer.config.layers import FILE_ONLY
from sublayer.config.recipe import HEADINGS
from sublayer.config.resolve import MEASURED
from sublayer.errors import CheckpointError
from sublayer.evaluation.items import Metric
from sublayer.files.parsing import parse_toml
from sublayer.numbers import count, enumerate_names, format_excess, format_factor
from sublayer.statistics.contrasts import DECIDED, Difference
from sublayer.statistics.secondary import (
    Course,
    Ratio,
    Superiority,
    TTest,
    course,
    expected_best,
    implied_freedom,
    mean_ratio,
    paired_t,
    power_over_seeds,
    superiority,
    welch_t,
)
from sublayer.study.budget import ArmBudget, Budget, Currency, Excess
from sublayer.study.results import ArmResult, Curve, Results, Tuning
from sublayer.training.log import METRICS, mean_losses, read_metrics

LOSS = "loss"
"""The metric common to training and evaluations, in nats."""
WATCHED = "/"
"""The separator between a watched text and its metric, as in ``squad/loss``."""
_PLACE = ("step", "tokens", "seconds")


def read_curves(
    seed: int, run: Path, metrics: Sequence[str]
) -> tuple[dict[str, Curve], Curve | None]:
    """Return the validation curves of a run in these metrics, by name, and its training loss.

    Watched texts' metrics are read, too. The training loss at an evaluation is the mean over the
    steps since the previous one, from the logged lines.
    """
    lines = [line for line in read_metrics(run / METRICS) if line.keys() >= {*_PLACE}]
    valid = [line for line in lines if line["kind"] == "valid"]
    watched = sorted({key for line in valid for key in line if WATCHED in key})
    curves = {}
    for name in (*metrics, *watched):
        measured = [(line, line[name]) for line in valid if name in line]
        if measured:
            curves[name] = _curve(seed, measured)
    means = mean_losses(lines)
    return curves, _curve(seed, means) if means else None


def _curve(seed: int, points: Sequence[tuple[Mapping[str, Any], float]]) -> Curve:
    steps, tokens, seconds = (tuple(line[name] for line, _ in points) for name in _PLACE)
    return Curve(seed, steps, tokens, seconds, tuple(value for _, value in points))


def final_losses(
    arm: ArmResult, metric: Metric
) -> tuple[float, float, float] | tuple[None, None, None]:
    """Return the training and validation loss at the last evaluation, and their gap, in nats.

    Means over seeds that have both, None without any; ``metric`` is the deciding one. The training
    loss is the mean over the steps since the previous evaluation, with dropout and changing
    weights. The gap is validation minus training, both without smoothing and other terms.
    """
    curves = arm.curves if metric.name == LOSS else arm.further_curves.get(LOSS, ())
    valid = {curve.seed: curve for curve in curves}
    ends = [
        (trained.values[-1], valid[trained.seed].values[-1])
        for trained in arm.training_curves
        if trained.seed in valid and valid[trained.seed].steps[-1] == trained.steps[-1]
    ]
    if not ends:
        return None, None, None
    training, validation = (math.fsum(losses) / len(ends) for losses in zip(*ends, strict=True))
    return training, validation, validation - training


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
    """Shares over seeds; runs that did not reach the quality rank above all others."""

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
    """The arm that sets the final quality; the costs of its run are 1."""
    metric: Metric
    """The metric of the curves."""
    seeds: tuple[SeedShares, ...] = ()
    parameters: float | None = None
    """The arm's parameters as a share of those of ``whose``."""
    problem: str = field(default="", kw_only=True)
    """Reason why nothing was computed; else empty."""

    def summary(self, cost: str) -> Summary:
        """Return the median and the ends of ``steps``, ``flops`` or ``seconds`` over the seeds."""
        reached = [getattr(seed, cost) for seed in self.seeds]
        shares = [math.inf if share is None else share for share in reached]
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


Origin = Literal["own", "matched", "tuned"]
"""Origins of an arm's value: its recipe, the matching of budgets, the tuning."""
_OF_A_RUN = ("train.seed", *FILE_ONLY, *HEADINGS)
"""Fields that differ between runs of an arm, or do not affect the computation."""
_OF_TOKENIZER = {"data.tokenizer", "data.vocab_size"}
"""Fields without meaning for the tokenizer of a model from ``init.run``."""
_ORDER: tuple[Origin, ...] = ("own", "matched", "tuned")


@dataclass(frozen=True)
class ArmSetting:
    """An arm's value of a field, as written in a recipe; None if the field does not apply."""

    value: str | None
    origin: Origin


def differing_fields(arms: Sequence[ArmResult]) -> dict[str, dict[str, ArmSetting]]:
    """Return the settings of all arms in each differing field of the recipe.

    Fields keep the order of the resolved recipes, matched and tuned ones last; fields derived in
    all arms, and arms without any run, are left out. Raises CheckpointError if a recipe is damaged.
    """
    recipes = {
        arm.name: dict(_flat(parse_toml(arm.recipe, f"the recipe of {arm.name}", CheckpointError)))
        for arm in arms
        if arm.recipe
    }
    origins: dict[str, dict[str, Origin]] = {
        arm.name: {
            **{text.partition("=")[0]: "matched" for text in arm.matched},
            **{text.partition("=")[0]: "tuned" for text in arm.tuned},
        }
        for arm in arms
    }
    derived = [set(recipe.get("derived", ())) for recipe in recipes.values()]
    ignored = set(_OF_A_RUN)
    if derived:
        ignored |= set[str].intersection(*derived).difference(MEASURED)
    if any("init.run" in recipe for recipe in recipes.values()):
        ignored |= _OF_TOKENIZER
    differing = {}
    for key in dict.fromkeys(key for recipe in recipes.values() for key in recipe):
        texts = {name: _written(recipe.get(key)) for name, recipe in recipes.items()}
        if key not in ignored and len(set(texts.values())) > 1:
            differing[key] = {
                name: ArmSetting(text, origins[name].get(key, _ORDER[0]))
                for name, text in texts.items()
            }

    last = {
        key: max(_ORDER.index(setting.origin) for setting in settings.values())
        for key, settings in differing.items()
    }
    return {key: differing[key] for key in sorted(differing, key=last.__getitem__)}


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _written(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def compared_budgets(results: Results) -> list[ArmBudget]:
    """Return the excess budget of each comparison of two arms, in order.

    Realised operations follow from the runs' trained tokens, and realised time, if matched, from
    their seconds of training: medians over seeds. Planned operations of studies with stages are
    unknown. A contrast of more than two arms has no excess.
    """
    planned, realised = {}, {}
    for arm in results.arms:
        total, costs = arm.parameters["total"], arm.costs
        assert total is not None, "every model has a number of parameters"
        seconds = costs.training_seconds if results.match == "time" else None
        planned[arm.name] = Budget(total, costs.planned_operations)
        realised[arm.name] = Budget(total, costs.operations, seconds)
    pairs = [(difference.arm, difference.baseline) for difference in results.differences]
    return [
        ArmBudget(arm, other, *(of[arm].excess_over(of[other]) for of in (planned, realised)))
        for arm, other in pairs
        if planned.keys() >= {arm, other}
    ]


def arm_budgets(results: Results) -> list[ArmBudget]:
    """Return the excess budget of each arm over its baseline, in the order of the arms.

    The baseline and controls have no comparison.
    """
    first: dict[str, ArmBudget] = {}
    for budget in compared_budgets(results):
        first.setdefault(budget.arm, budget)
    return [first.get(arm.name, ArmBudget(arm.name, None)) for arm in results.arms]


FEWEST_STEPS = 3
"""Fewest evaluations for a difference over training."""


@dataclass(frozen=True)
class PublishedEffect:
    """The published difference of two arms, in the unit of the results."""

    effect: float
    is_inside: bool | None
    """True if this study's interval contains it; None without an interval."""
    is_zero_inside: bool | None


@dataclass(frozen=True)
class Power:
    """The power to detect a difference, by the number of seeds of each arm."""

    of: Literal["margin", "published", "excluded"]
    """The margin, the published effect, or the largest difference in the interval."""
    difference: float
    now: int
    """Present number of seeds of each arm."""
    seeds: tuple[int, ...]
    power: tuple[float, ...]


@dataclass(frozen=True)
class Secondary:
    """Secondary analyses of one comparison, each None if it cannot be computed.

    Effects and intervals are ``arm - baseline``, in the unit of the results. A contrast of more
    than two arms has only ``power``; a comparison without a verdict has none: before all planned
    runs have ended they would be an uncounted look.
    """

    arm: str
    baseline: str
    paired_t: TTest | None = None
    """Over common finished seeds."""
    welch_t: TTest | None = None
    superiority: Superiority | None = None
    """Superiority of ``arm`` over ``baseline``."""
    published: PublishedEffect | None = None
    course: Course | None = None
    """On validation, in the metric with the label ``course_label``."""
    course_label: str = ""
    power: Power | None = None


def secondary_analyses(results: Results) -> tuple[Secondary, ...]:
    """Compute the secondary analyses of each comparison, in the order of the differences."""
    by_name = {arm.name: arm for arm in results.arms}
    analyses = []
    for difference in results.differences:
        names = difference.arm, difference.baseline
        analysis = Secondary(*names)
        arm, baseline = map(by_name.get, names)
        if difference.verdict == "no verdict":
            pass
        elif arm is None or baseline is None:
            analysis = replace(analysis, power=_power(results, difference, None))
        else:
            published = _published(results, difference)
            values = [dict(zip(one.seeds, one.values, strict=True)) for one in (arm, baseline)]
            common = sorted(values[0].keys() & values[1].keys())
            label, over_training = _course(results, arm, baseline)
            analysis = Secondary(
                *names,
                paired_t=paired_t(*([by_seed[seed] for seed in common] for by_seed in values)),
                welch_t=welch_t(arm.values, baseline.values),
                superiority=superiority(
                    arm.values,
                    baseline.values,
                    is_lower_better=results.metric.is_lower_better,
                    n_failed=difference.n_failed,
                ),
                published=published,
                course=over_training,
                course_label=label,
                power=_power(results, difference, published),
            )
        analyses.append(analysis)
    return tuple(analyses)


def tuned_best(tuning: Tuning) -> tuple[float, ...]:
    """Return the expected best of 1, 2, ... trials; a failed trial counts as the worst.

    Empty if fewer than two trials ended.
    """
    ended = [score for score in tuning.scores.values() if score is not None]
    if len(ended) < 2:
        return ()
    worst = max(ended) if tuning.is_lower_better else min(ended)
    scores = [worst if score is None else score for score in tuning.scores.values()]
    best = expected_best(scores, better="lower" if tuning.is_lower_better else "higher")
    return tuple(best.tolist())


def _published(results: Results, difference: Difference) -> PublishedEffect | None:
    """Return the published effect in the deciding metric, if both arms have a score."""
    name, factor = results.metric.name, results.metric.factor
    # Files keep scores as printed, scorecards in the column's unit.
    scores = {arm.name: arm.published.get(name) for arm in results.arms}
    card = results.scorecard
    columns = {column.name: column for column in card.columns} if card else {}
    for row in card.rows if card else ():
        if row.kind == "published" and name in row.cells and scores.get(row.name) is None:
            scores[row.name] = row.cells[name].mean * columns[name].factor
    pair = scores.get(difference.arm), scores.get(difference.baseline)
    if pair[0] is None or pair[1] is None:
        return None
    effect = pair[0] / factor - pair[1] / factor
    low, high = difference.low, difference.high
    if low is None or high is None:
        return PublishedEffect(effect, None, None)
    return PublishedEffect(effect, low <= effect <= high, low <= 0.0 <= high)


def _course(results: Results, arm: ArmResult, baseline: ArmResult) -> tuple[str, Course | None]:
    """Return the difference over training at evaluations of all runs, and its metric's label."""
    metric, of_arms = common_curves(results, arm, baseline)
    if metric is None:
        return "", None
    common = [seed for seed in of_arms[0] if seed in of_arms[1]]
    is_paired = results.pairing is not None and results.pairing.is_paired and len(common) > 1
    if is_paired:
        of_arms = [{seed: curves[seed] for seed in common} for curves in of_arms]
    steps = sorted(
        set.intersection(*(set(curve.steps) for curves in of_arms for curve in curves.values()))
    )
    if len(steps) < FEWEST_STEPS:
        return "", None
    tables = []
    for curves in of_arms:
        at = [dict(zip(curve.steps, curve.values, strict=True)) for curve in curves.values()]
        tables.append(np.array([[values[step] for step in steps] for values in at]))  # [S, E]
    return metric.label, course(steps, *tables, is_paired=is_paired)


def _power(
    results: Results, difference: Difference, published: PublishedEffect | None
) -> Power | None:
    """Return the power by number of seeds, at the level of the difference's interval.

    The effect is the margin, else the published one, else, if undecided, the largest difference in
    the interval.
    """
    low, high, error, parts = (
        difference.low, difference.high, difference.standard_error, difference.parts,
    )  # fmt: skip
    if low is None or high is None or not error or parts is None or difference.by_ranks:
        return None
    of: Literal["margin", "published", "excluded"] = "excluded"
    effect = max(abs(low), abs(high))
    if results.margin is not None:
        of, effect = "margin", results.margin
    elif published is not None and published.effect:
        of, effect = "published", abs(published.effect)
    elif difference.verdict in DECIDED:
        return None
    n_now, level = len(difference.seeds), difference.single_level
    if n_now < 2 or level is None:
        return None
    seeds = tuple(range(2, max(20, 2 * n_now) + 1))
    power = power_over_seeds(
        effect,
        seeds,
        seed_variance=parts.seeds**2 * n_now,
        apart=error**2 - parts.seeds**2,
        freedom_per_seed=implied_freedom((high - low) / 2 / error, level) / (n_now - 1),
        level=level,
    )
    return Power(of, effect, n_now, seeds, tuple(power.tolist()))


COLUMNS: dict[Currency, str] = {
    "parameters": "parameters",
    "operations": "operations",
    "time": "training time",
}

DOUBLE = 2.0
"""Ratio from which on a factor replaces a percentage."""


def describe_excesses(excesses: Sequence[Excess]) -> str:
    """Format the largest difference of budgets in each currency; empty if they are equal."""
    parts = []
    for currency, name in COLUMNS.items():
        largest = max((one.beyond.get(currency, 0.0) for one in excesses), key=_times, default=0)
        if largest:
            parts.append(f"{_size(largest)} in {name}")
    if not parts:
        return ""
    up_to = "up to " if len(excesses) > 1 else ""
    return f"differ by {up_to}{enumerate_names(parts)}"


def _times(share: float) -> float:
    """Return the ratio of the larger cost to the smaller one."""
    factor = 1.0 + share
    return max(factor, 1.0 / factor) if factor > 0.0 else math.inf


def _size(share: float) -> str:
    factor = _times(share)
    return f"a factor of {format_factor(factor)}" if factor >= DOUBLE else format_excess(share)
