"""Differing settings, budgets and secondary analyses of compared arms."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from sublayer.config.layers import FILE_ONLY
from sublayer.config.recipe import HEADINGS
from sublayer.config.resolve import MEASURED
from sublayer.errors import CheckpointError
from sublayer.files.parsing import parse_toml
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
from sublayer.study.budget.match import ArmBudget, Budget, excess_over
from sublayer.study.curves import common_curves
from sublayer.study.results import ArmResult, Results, Tuning

Origin = Literal["own", "matched", "tuned"]
"""Origins of an arm's value: its recipe, the matching of budgets, the tuning."""
_OF_A_RUN = ("train.seed", *FILE_ONLY, *HEADINGS)
"""Fields that differ between runs of an arm, or do not affect the computation."""
_OF_TOKENIZER = {"data.tokenizer", "data.vocab_size"}
"""Fields that say nothing about the tokenizer of a model from ``init.run``."""
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
    for field in dict.fromkeys(field for recipe in recipes.values() for field in recipe):
        texts = {name: _written(recipe.get(field)) for name, recipe in recipes.items()}
        if field not in ignored and len(set(texts.values())) > 1:
            differing[field] = {
                name: ArmSetting(text, origins[name].get(field, _ORDER[0]))
                for name, text in texts.items()
            }

    def last_origin(field: str) -> int:
        return max(_ORDER.index(setting.origin) for setting in differing[field].values())

    return {field: differing[field] for field in sorted(differing, key=last_origin)}


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
        ArmBudget(*pair, *(excess_over(*map(of.__getitem__, pair)) for of in (planned, realised)))
        for pair in pairs
        if planned.keys() >= {*pair}
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


def secondary_to_json(secondary: Secondary) -> dict[str, Any]:
    """Return the analyses of a comparison as plain values, None for those not computed."""
    content = asdict(secondary)
    label, _, _ = (content.pop(name) for name in ("course_label", "arm", "baseline"))
    if secondary.course is not None:
        turns = secondary.course.turns
        content["course"] = {"metric": label, **content["course"], "turns": turns}
    return content


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
