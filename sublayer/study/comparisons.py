"""Comparisons of arms beside their verdicts: differing settings, budgets, secondary analyses."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from sublayer.config.catalog import HEADINGS
from sublayer.config.resolve_train import MEASURED
from sublayer.config.sources import FILE_ONLY
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
from sublayer.study.curves import common_metric, curves_by_seed
from sublayer.study.results import ArmResult, Results, Tuning

Origin = Literal["own", "matched", "tuned"]
"""The origin of an arm's value: its recipe, the matching of budgets, the tuning."""
_OF_A_RUN = ("train.seed", *FILE_ONLY, *HEADINGS)
"""Fields that differ between runs of an arm, or change nothing that is computed."""
_OF_TOKENIZER = {"data.tokenizer", "data.vocab_size"}
"""Fields that say nothing of the tokenizer of a model that ``init.run`` brings."""
_ORDER: tuple[Origin, ...] = ("own", "matched", "tuned")


@dataclass(frozen=True)
class Setting:
    """An arm's value of a field, as a recipe writes it; None where the field does not apply."""

    value: str | None
    origin: Origin


def differing_fields(arms: Sequence[ArmResult]) -> dict[str, dict[str, Setting]]:
    """Return the settings of arms, by name, for each field in which they differ.

    Fields are those of the resolved recipes, in their order, those matched and tuned last; what
    follows from the others in all arms is left out. Arms without a recipe, of which no run was
    begun, are left out too. Raises CheckpointError where a recipe is damaged.
    """
    recipes = {}
    for arm in arms:
        if arm.recipe:
            recipes[arm.name] = dict(
                _flat(parse_toml(arm.recipe, f"the recipe of {arm.name}", CheckpointError))
            )
    derived = [set(recipe.get("derived", ())) for recipe in recipes.values()]
    following = set[str].intersection(*derived).difference(MEASURED) if derived else set()
    if any("init.run" in recipe for recipe in recipes.values()):
        following |= _OF_TOKENIZER
    fields = dict.fromkeys(field for recipe in recipes.values() for field in recipe)
    by_name = {arm.name: arm for arm in arms}
    differing: dict[str, dict[str, Setting]] = {}
    for field in fields:
        texts = {name: _written(recipe.get(field)) for name, recipe in recipes.items()}
        if field in {*_OF_A_RUN, *following} or len(set(texts.values())) < 2:
            continue
        differing[field] = {}
        for name, text in texts.items():
            arm, origin = by_name[name], _ORDER[0]
            if any(setting.startswith(f"{field}=") for setting in arm.tuned):
                origin = "tuned"
            elif any(setting.startswith(f"{field}=") for setting in arm.matched):
                origin = "matched"
            differing[field][name] = Setting(text, origin)

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
    """Return the excess of one arm over another for each comparison of two arms, in order.

    Realised are operations by the tokens that the runs were trained on, medians over seeds, and
    time by their seconds of training, where it was matched. Planned operations are not known of
    studies with stages. A contrast of more than two arms has no excess.
    """
    by_name = {arm.name: arm for arm in results.arms}
    is_timed = results.match == "time"

    def budgets_of(arm: ArmResult) -> tuple[Budget, Budget]:
        total, costs = arm.parameters["total"], arm.costs
        assert total is not None, "every model has a number of parameters"
        seconds = costs.training_seconds if is_timed else None
        return Budget(total, costs.planned_operations), Budget(total, costs.operations, seconds)

    budgets = []
    for difference in results.differences:
        names = difference.arm, difference.baseline
        if by_name.keys() >= {*names}:
            pairs = zip(*(budgets_of(by_name[name]) for name in names), strict=True)
            budgets.append(ArmBudget(*names, *(excess_over(*pair) for pair in pairs)))
    return budgets


def arm_budgets(results: Results) -> list[ArmBudget]:
    """Return the excess of each arm over the one that it is compared with, in the arms' order.

    The baseline, and controls, are compared with none.
    """
    first: dict[str, ArmBudget] = {}
    for budget in compared_budgets(results):
        first.setdefault(budget.arm, budget)
    return [first.get(arm.name, ArmBudget(arm.name, None)) for arm in results.arms]


FEWEST_STEPS = 3
"""Evaluations that a difference over training takes."""


@dataclass(frozen=True)
class PublishedEffect:
    """The difference of two arms as published, in the unit of the results."""

    effect: float
    is_inside: bool | None
    """True where the interval of this study contains it; None without an interval."""
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
    analyses = []
    for difference in results.differences:
        names = difference.arm, difference.baseline
        if difference.verdict == "no verdict":
            analyses.append(Secondary(*names))
            continue
        arm, baseline = map(by_name.get, names)
        if arm is None or baseline is None:
            analyses.append(Secondary(*names, power=_power(results, difference, None)))
            continue
        published = _published(results, difference)
        common = sorted(set(arm.seeds) & set(baseline.seeds))
        pairs = [[one.values[one.seeds.index(seed)] for seed in common] for one in (arm, baseline)]
        label, over_training = _course(results, arm, baseline)
        analyses.append(
            Secondary(
                *names,
                paired_t=paired_t(*pairs),
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
        )
    return tuple(analyses)


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


def secondary_to_json(secondary: Secondary) -> dict[str, Any]:
    """Return the analyses of a comparison as plain values, None where one was not computed."""
    content = asdict(secondary)
    for name in ("arm", "baseline", "course_label"):
        del content[name]
    if secondary.course is not None:
        content["course"] = {"metric": secondary.course_label, **content["course"]}
        content["course"] |= {"turns": secondary.course.turns}
    return content


def _published(results: Results, difference: Difference) -> PublishedEffect | None:
    """Return the published effect in the deciding metric, where both arms have a score."""
    arm = _published_score(results, difference.arm)
    baseline = _published_score(results, difference.baseline)
    if arm is None or baseline is None:
        return None
    effect = arm - baseline
    low, high = difference.low, difference.high
    if low is None or high is None:
        return PublishedEffect(effect, None, None)
    return PublishedEffect(effect, low <= effect <= high, low <= 0.0 <= high)


def _published_score(results: Results, name: str) -> float | None:
    """Return an arm's published score; files keep it as printed, scorecards in its unit."""
    metric = results.metric
    for arm in results.arms:
        if arm.name == name and metric.name in arm.published:
            return arm.published[metric.name] / results.metric.factor
    card = results.scorecard
    if card is None:
        return None
    column = next((column for column in card.columns if column.name == metric.name), None)
    for row in card.rows:
        if row.kind == "published" and row.name == name and metric.name in row.cells and column:
            return row.cells[metric.name].mean * column.factor / results.metric.factor
    return None


def _course(results: Results, arm: ArmResult, baseline: ArmResult) -> tuple[str, Course | None]:
    """Return the difference at the evaluations that all runs of both arms share, and its label."""
    metric = common_metric(results, arm, baseline)
    if metric is None:
        return "", None
    of_arms = [curves_by_seed(one, metric, results) for one in (arm, baseline)]
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
    power = power_over_seeds(
        effect,
        seeds,
        seed_variance=parts.seeds**2 * n_now,
        apart=error**2 - parts.seeds**2,
        freedom_per_seed=implied_freedom((high - low) / 2 / error, level) / (n_now - 1),
        level=level,
    )
    return Power(of, effect, n_now, seeds, tuple(power.tolist()))
