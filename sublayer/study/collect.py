"""Build the results of a study from its runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from sublayer.config.resolved import ResolvedModel
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.objective.metric import Metric
from sublayer.study.budget.expected import tokens_per_step
from sublayer.study.budget.match import Measures, Rule, arm_model, arm_steps
from sublayer.study.definition import Study
from sublayer.study.evidence import Values
from sublayer.study.execution.arm_runs import ArmRuns
from sublayer.study.execution.one_run import Outcome
from sublayer.study.findings.reproduction import describe_reproduction
from sublayer.study.findings.run_curves import LOSS, curves_by_metric, read_curves
from sublayer.study.items.file_header import RunItems
from sublayer.study.judging import Looking, StudyJudge
from sublayer.study.metrics import study_metrics
from sublayer.study.results import ArmResult, Costs, Failure, Further, Results, Tuning


def collect_results(
    study: Study,
    rule: Rule,
    n_seeds: int,
    runs: Sequence[ArmRuns],
    measures: Measures,
    *,
    command: str,
    items: Sequence[RunItems],
    looking: Looking,
    n_awaited: int = 0,
) -> Results:
    """Build the results of a study of ``n_seeds`` planned seeds; ``command`` makes them again.

    The first arm is the baseline; ``n_awaited`` further ones have no run yet. ``items`` are those
    of the runs' tests, and ``looking`` is when they are judged. Reads each run's metrics and
    recipe. Raises ConfigError as ``study_metrics`` does, and for a margin of another unit.
    """
    metrics = study_metrics(study)
    arms = []
    for each in runs:
        loaded = each.matched_arm.loaded
        model = arm_model(loaded, measures)
        steps = arm_steps(loaded, measures)
        arm = collect_arm(each, model, metrics, steps=steps)
        arms.append(
            replace(
                arm,
                published=study.published.get(arm.name, {}),
                paper=study.paper.get(arm.name, {}),
                tunings=_tunings(each, looking.n_tuning),
            )
        )
    if rule == "time":
        arms = [as_timed(arm, arms[0]) for arm in arms]
    judge = StudyJudge(study, metrics, runs, items, n_seeds, looking, n_awaited)
    values = {arm.name: dict(zip(arm.seeds, arm.values, strict=True)) for arm in arms}
    judged = judge.first(values)
    further = []
    for metric in metrics[1:]:
        further_values = _measured(study, arms, metric)
        if any(further_values.values()):
            further.append(Further(metric, judge.further(metric, further_values).differences))
    hypothesis = study.question.hypothesis
    return Results(
        name=study.name,
        title=study.title,
        metric=metrics[0],
        split=study.scoring.split,
        scored_on=study.scoring.describe(study.arms[0].loaded.recipe),
        match=rule,
        baseline=arms[0].name,
        n_seeds=n_seeds,
        arms=tuple(arms),
        differences=judged.differences,
        failures=collect_failures(runs),
        reproduction=describe_reproduction(
            [outcome for each in runs for outcome in each.outcomes.values()],
            runs[0].matched_arm.loaded.recipe,
            command,
        ),
        further=tuple(further),
        n_awaited=n_awaited,
        pairing=judged.pairing,
        margin=judged.margin,
        margin_reason=study.question.margin_reason,
        hypothesis=hypothesis.says if hypothesis else "",
        hypothesis_of=judge.hypothesis_of,
        looks=judge.looks,
        is_sequential=looking.looks.is_sequential,
        n_metrics=1 + len(study.question.also),
    )


def as_timed(arm: ArmResult, baseline: ArmResult) -> ArmResult:
    """Return an arm with the mismatch of its runs' time, in place of what was predicted."""
    own, expected = arm.costs.training_seconds, baseline.costs.training_seconds
    if own is None or not expected:
        return arm
    return replace(arm, mismatch=own / expected - 1.0)


def _measured(study: Study, arms: Sequence[ArmResult], metric: Metric) -> Values:
    """Return a further metric of the arms that it measures, and of those that they are against.

    What cannot be measured by it has no values, and its differences are missing.
    """
    measured = {arm.name for arm in study.arms if metric.has_head(arm.loaded.recipe)}
    shown: set[str] = set()
    for arm in arms:
        other = study.against.get(arm.name, arms[0].name)
        if {arm.name, other} & measured:
            shown |= {arm.name, other}
    return {arm.name: arm.further[metric.name] for arm in arms if arm.name in shown}


def collect_arm(
    runs: ArmRuns, model: ResolvedModel, metrics: Sequence[Metric], *, steps: int
) -> ArmResult:
    """Build an arm's result from its runs of ``steps`` steps each; the first metric decides.

    ``model`` is the arm's, resolved. Costs are medians over the seeds that finished.
    """
    metric, *others = metrics
    records = []
    curves = []
    names = {*(each.name for each in metrics), LOSS}
    for seed, outcome in runs.outcomes.items():
        if outcome.test is None:
            continue
        if outcome.record is not None:
            records.append(outcome.record)
        curves.append(read_curves(seed, outcome.path, sorted(names)))
    values = runs.values(metric)
    further = {each.name: runs.values(each) for each in others}
    matched_arm = runs.matched_arm
    recipe = matched_arm.loaded.recipe
    objective = recipe.objective
    parameters = count_parameters(model, objective)
    by_metric = curves_by_metric(curves)
    per_token = flops_per_token(model, recipe.data.context, objective)
    tokens = _median(records, "tokens")
    costs = Costs(
        flops_per_token=per_token,
        steps=steps,
        tokens=tokens,
        tokens_per_s=_median(records, "tokens_per_s"),
        peak_memory_bytes=_median(records, "peak_memory_bytes"),
        seconds=_median(records, "seconds"),
        training_seconds=training_seconds(records),
        operations=None if tokens is None else tokens * per_token,
        planned_operations=float(steps * tokens_per_step(recipe) * per_token),
    )
    arm = matched_arm.arm
    return ArmResult(
        name=arm.name,
        parameters=asdict(parameters),
        seeds=tuple(values),
        values=tuple(values.values()),
        costs=costs,
        mismatch=matched_arm.mismatch,
        matched=matched_arm.matched,
        tuned=tuple(f"{key}={value}" for key, value in runs.trial.settings.items()),
        curves=by_metric.pop(metric.name, ()),
        further_curves=by_metric,
        training_curves=tuple(each.training for each in curves if each.training is not None),
        recipe=_recipe(runs.outcomes.values()),
        further=further,
        probes=records[0].get("probes", {}) if records else {},
    )


def _tunings(runs: ArmRuns, n_runs: int) -> tuple[Tuning, ...]:
    """Return an arm's trials, of which the one that was chosen had the best score."""
    if not runs.losses:
        return ()
    metric = runs.chosen_by
    if metric is None:
        return (Tuning("loss", True, 1.0, n_runs, runs.losses),)
    sign = 1.0 if metric.is_lower_better else -1.0
    scores = {name: None if loss is None else sign * loss for name, loss in runs.losses.items()}
    return (Tuning(metric.label, metric.is_lower_better, metric.factor, n_runs, scores),)


def training_seconds(records: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the median seconds of the runs' optimizer steps alone; None without any run."""
    seconds = [
        record["tokens"] / record["tokens_per_s"] for record in records if record["tokens_per_s"]
    ]
    return float(np.median(seconds)) if seconds else None


def collect_failures(arms: Sequence[ArmRuns]) -> tuple[Failure, ...]:
    """Return the runs that failed, arm by arm, with why."""
    failures = []
    for runs in arms:
        name = runs.matched_arm.arm.name
        for seed, outcome in runs.outcomes.items():
            if outcome.failure:
                failures.append(Failure(name, seed, outcome.failure))
    return tuple(failures)


def _median(records: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [record[name] for record in records if record.get(name) is not None]
    if not values:
        return None
    return float(np.median(values))


def _recipe(outcomes: Iterable[Outcome]) -> str:
    for outcome in outcomes:
        path = outcome.path / "recipe.toml"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return ""
