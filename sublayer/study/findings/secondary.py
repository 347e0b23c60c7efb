"""Secondary analyses beside each verdict: t tests, P(A beats B), the published effect, power."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from sublayer.statistics.difference import DECIDED, Difference
from sublayer.statistics.secondary import (
    Course,
    Superiority,
    TTest,
    course,
    expected_best,
    implied_freedom,
    paired_t,
    power_over_seeds,
    superiority,
    welch_t,
)
from sublayer.study.findings.same_quality import common_metric, curves_by_seed
from sublayer.study.results import ArmResult, Results, Tuning

FEWEST_STEPS = 3
"""Evaluations that a difference over training takes."""


@dataclass(frozen=True)
class PublishedEffect:
    """The difference of two arms as published, in the unit of the results."""

    effect: float
    is_inside: bool | None
    """Whether the interval found here contains it; None without an interval."""
    is_zero_inside: bool | None


@dataclass(frozen=True)
class Power:
    """The probability of finding a difference, by the number of seeds of each arm."""

    of: Literal["margin", "published", "excluded"]
    """The margin, the published effect, or the largest difference that the interval includes."""
    difference: float
    now: int
    """The seeds of each arm that there are."""
    seeds: tuple[int, ...]
    power: tuple[float, ...]


@dataclass(frozen=True)
class Secondary:
    """Secondary analyses of one comparison, each None where it cannot be computed.

    Effects and intervals are ``arm - baseline``, in the unit of the results. A contrast of more
    than two arms has none but ``power``; a comparison without a verdict has none at all: before all
    planned runs have ended they would be a look that is not counted.
    """

    arm: str
    baseline: str
    paired_t: TTest | None = None
    """Over the seeds that both finished."""
    welch_t: TTest | None = None
    superiority: Superiority | None = None
    """Of ``arm`` over ``baseline``."""
    published: PublishedEffect | None = None
    course: Course | None = None
    """On validation, in the metric whose label is ``course_label``."""
    course_label: str = ""
    power: Power | None = None


def secondary_analyses(results: Results) -> tuple[Secondary, ...]:
    """Compute the secondary analyses of each comparison, in the order of the differences."""
    by_name = {arm.name: arm for arm in results.arms}
    found = []
    for each in results.differences:
        if each.verdict == "no verdict":
            found.append(Secondary(each.arm, each.baseline))
            continue
        arm, baseline = by_name.get(each.arm), by_name.get(each.baseline)
        published = None
        if arm is None or baseline is None:
            power = _power(results, each, None)
            found.append(Secondary(each.arm, each.baseline, power=power))
            continue
        published = _published(results, each)
        common = sorted(set(arm.seeds) & set(baseline.seeds))
        pairs = [[own.values[own.seeds.index(seed)] for seed in common] for own in (arm, baseline)]
        label, over_training = _course(results, arm, baseline)
        found.append(
            Secondary(
                each.arm,
                each.baseline,
                paired_t=paired_t(*pairs),
                welch_t=welch_t(arm.values, baseline.values),
                superiority=superiority(
                    arm.values,
                    baseline.values,
                    is_lower_better=results.metric.is_lower_better,
                    n_failed=each.n_failed,
                ),
                published=published,
                course=over_training,
                course_label=label,
                power=_power(results, each, published),
            )
        )
    return tuple(found)


def tuned_best(tuning: Tuning) -> tuple[float, ...]:
    """Return the expected best of 1, 2, ... trials; a failed one scored as the worst did.

    Empty where fewer than two trials ended.
    """
    ended = [score for score in tuning.scores.values() if score is not None]
    if len(ended) < 2:
        return ()
    worst = max(ended) if tuning.is_lower_better else min(ended)
    scores = [worst if score is None else score for score in tuning.scores.values()]
    best = expected_best(scores, better="lower" if tuning.is_lower_better else "higher")
    return tuple(best.tolist())


def secondary_to_json(found: Secondary) -> dict[str, Any]:
    """Return the analyses of a comparison as plain values, None for what was not computed."""
    content = asdict(found)
    for name in ("arm", "baseline", "course_label"):
        del content[name]
    if found.course is not None:
        content["course"] = {"metric": found.course_label, **content["course"]}
        content["course"] |= {"turns": found.course.turns}
    return content


def _published(results: Results, difference: Difference) -> PublishedEffect | None:
    """Return the published effect in the deciding metric, where both arms have a score."""
    scores = [_published_score(results, name) for name in (difference.arm, difference.baseline)]
    arm, baseline = scores
    if arm is None or baseline is None:
        return None
    effect = arm - baseline
    low, high = difference.low, difference.high
    if low is None or high is None:
        return PublishedEffect(effect, None, None)
    return PublishedEffect(effect, low <= effect <= high, low <= 0.0 <= high)


def _published_score(results: Results, name: str) -> float | None:
    """Return an arm's published score; files keep it as printed, scorecards in its own unit."""
    metric = results.metric
    for arm in results.arms:
        if arm.name == name and metric.name in arm.published:
            return arm.published[metric.name] / results.metric.factor
    card = results.scorecard
    if card is None:
        return None
    (column,) = [each for each in card.columns if each.name == metric.name] or (None,)
    for row in card.rows:
        if row.kind == "published" and row.name == name and metric.name in row.cells and column:
            return row.cells[metric.name].mean * column.factor / results.metric.factor
    return None


def _course(results: Results, arm: ArmResult, baseline: ArmResult) -> tuple[str, Course | None]:
    """Return the difference at the evaluations that all runs of both arms share, and its label."""
    metric = common_metric(results, arm, baseline)
    if metric is None:
        return "", None
    own, other = (curves_by_seed(each, metric, results) for each in (arm, baseline))
    is_paired = results.pairing is not None and results.pairing.is_paired
    common = [seed for seed in own if seed in other]
    if is_paired and len(common) > 1:
        own, other = ({seed: each[seed] for seed in common} for each in (own, other))
    else:
        is_paired = False
    curves = [*own.values(), *other.values()]
    steps = sorted(set.intersection(*(set(curve.steps) for curve in curves)))
    if len(steps) < FEWEST_STEPS:
        return "", None
    tables = []
    for each in (own, other):
        at = [dict(zip(curve.steps, curve.values, strict=True)) for curve in each.values()]
        tables.append(np.array([[values[step] for step in steps] for values in at]))  # [S, E]
    return metric.label, course(steps, *tables, is_paired=is_paired)


def _power(
    results: Results, difference: Difference, published: PublishedEffect | None
) -> Power | None:
    """Return the power over seeds at the level of the difference's interval, and its spread.

    It is of the margin, the published effect, or where a comparison is open the largest difference
    that its interval includes.
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
    found = power_over_seeds(
        effect,
        seeds,
        seed_variance=parts.seeds**2 * n_now,
        apart=error**2 - parts.seeds**2,
        freedom_per_seed=implied_freedom((high - low) / 2 / error, level) / (n_now - 1),
        level=level,
    )
    return Power(of, effect, n_now, seeds, tuple(found.tolist()))
