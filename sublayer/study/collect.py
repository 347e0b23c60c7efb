"""The results of a study, collected from its runs."""

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.config.recipe import Recipe
from sublayer.config.run_recipe import read_run_recipe
from sublayer.config.sources import RUN_RECIPE
from sublayer.data.cache import content_key
from sublayer.data.tasks.split_notes import describe_cuts
from sublayer.data.tasks.task_split import of_tasks
from sublayer.errors import ConfigError
from sublayer.files.parsing import Number, read_typed
from sublayer.files.storage import write_file
from sublayer.objective.metric import Metric
from sublayer.objective.supervised.batches import row_rule, supervised
from sublayer.objective.supervised.evaluation import trained_examples
from sublayer.objective.supervised.scores import BaselineScores, part_name
from sublayer.study.arm_runs import ArmFacts, Runs, StageRuns, failed_runs
from sublayer.study.budget.expected import tokens_per_step
from sublayer.study.columns import (
    SPEED,
    Column,
    published_metric,
    run_scores,
    speed_metric,
    value_of,
)
from sublayer.study.definition import Study
from sublayer.study.findings.curves import LOSS, curves_by_metric, read_curves
from sublayer.study.findings.reproduction import describe_reproduction
from sublayer.study.items import RunItems
from sublayer.study.jobs.run import COLLAPSED, ERROR, Outcome, SharedData
from sublayer.study.results import ArmResult, Costs, Failure, Further, Results, Tuning
from sublayer.study.scorecard import Cell, Row, Scorecard
from sublayer.study.stage_plan import trained_operations
from sublayer.study.stage_runs import Kept, keep_chain
from sublayer.study.stages import FINETUNE, PRETRAINING, Chain
from sublayer.study.verdicts import Looking, StudyJudge
from sublayer.tasks.scoring import Score

SCORE_ON = "data.score_on"


@dataclass(frozen=True)
class ArmScores:
    """The scores of an arm by column, for each seed that is compared."""

    by_seed: Mapping[str, Mapping[int, float]]
    cells: Mapping[str, Cell]


def collect_results(
    study: Study,
    arms: Sequence[ArmFacts],
    runs: Runs,
    columns: Sequence[Column],
    primary: Column,
    *,
    n_seeds: int,
    command: str,
    looking: Looking,
    items: Sequence[RunItems] = (),
    n_awaited: int = 0,
    baselines: Mapping[str, Mapping[str, Cell]] | None = None,
    within: bool = False,
) -> Results:
    """Build the results of a study of ``n_seeds`` planned seeds; ``command`` makes them again.

    ``arms`` are those of ``runs``, the baseline first; ``n_awaited`` further ones have no run yet.
    ``primary`` is the column that decides. ``items`` are those of the tests of a study without
    stages, ``baselines`` the scores of others by name and column. ``within``: fine-tunings of one
    pre-training are compared. Reads the runs' metrics and recipes. Raises ConfigError for a margin
    of another unit.
    """
    chain = study.chain or Chain(())
    scores = {}
    results = []
    for arm in arms:
        stages = {
            stage: stage_runs for (name, stage), stage_runs in runs.items() if name == arm.name
        }
        scores[arm.name] = arm_scores(chain, stages, columns, within=within)
        result = _arm_result(study, arm, stages, scores[arm.name], columns, primary, looking)
        results.append(result)
    if study.match == "time":
        results = [_as_timed(result, results[0]) for result in results]
    others = [column for column in columns if column is not primary]
    judge = StudyJudge(
        study, [primary, *others], runs, items, n_seeds, looking, n_awaited, within=within
    )
    values = {name: own.by_seed.get(primary.name, {}) for name, own in scores.items()}
    judged = judge.first(values)
    further = []
    for column in others:
        shown = _measured(study, results, column.metric)
        values = {name: scores[name].by_seed.get(column.name, {}) for name in shown}
        if any(values.values()):
            further.append(Further(column.metric, judge.further(column, values).differences))
    hypothesis = study.question.hypothesis
    failures = [
        Failure(f"{arm}, {stage}" if study.chain else arm, seed, outcome.failure)
        for arm, stage, seed, outcome in failed_runs(runs)
    ]
    outcomes = [outcome for stage_runs in runs.values() for _, outcome in stage_runs.seeded()]
    scorecard = None
    if study.chain is not None:
        speeds = _speeds(chain, results)
        scorecard = _scorecard(chain, arms, scores, columns, baselines or {}, speeds)
    return Results(
        name=study.name,
        title=study.title,
        metric=primary.metric,
        split="test" if study.chain else study.scoring.split,
        scored_on=_scored_on(study, within=within),
        match=study.match,
        baseline=arms[0].name,
        n_seeds=n_seeds,
        arms=tuple(results),
        differences=judged.differences,
        failures=tuple(failures),
        reproduction=describe_reproduction(outcomes, study.texts, command),
        further=tuple(further),
        scorecard=scorecard,
        n_awaited=n_awaited,
        pairing=judged.pairing,
        margin=judged.margin,
        margin_reason=study.question.margin_reason,
        hypothesis=hypothesis.says if hypothesis else "",
        hypothesis_of=hypothesis.names if hypothesis else None,
        looks=looking.looks.all_after(looking.taken),
        is_sequential=looking.looks.is_sequential,
        n_metrics=1 + len(study.question.also),
    )


def _as_timed(arm: ArmResult, baseline: ArmResult) -> ArmResult:
    """Return an arm with the measured mismatch of its runs' time, not the predicted one."""
    own, expected = arm.costs.training_seconds, baseline.costs.training_seconds
    if own is None or not expected:
        return arm
    return replace(arm, mismatch=own / expected - 1.0)


def _measured(study: Study, arms: Sequence[ArmResult], metric: Metric) -> list[str]:
    """Return the arms that have a further metric, and those that they are against.

    What cannot be measured by it has no values, and its differences are missing.
    """
    if study.chain is not None:
        return [arm.name for arm in arms]
    measured = {arm.name for arm in study.arms if metric.has_head(arm.loaded.recipe)}
    shown: set[str] = set()
    for arm in arms:
        other = study.against.get(arm.name, arms[0].name)
        if {arm.name, other} & measured:
            shown |= {arm.name, other}
    return [arm.name for arm in arms if arm.name in shown]


def _arm_result(
    study: Study,
    arm: ArmFacts,
    stages: Mapping[str, StageRuns],
    scores: ArmScores,
    columns: Sequence[Column],
    primary: Column,
    looking: Looking,
) -> ArmResult:
    """Build an arm's result. Costs are medians over the runs of its own recipe that finished."""
    own_recipe = stages.get(PRETRAINING, StageRuns({}))
    finished = [(seed, run) for seed, run in own_recipe.seeded() if run.test is not None]
    records = [run.record for _, run in finished if run.record is not None]
    tokens = _median(records, "tokens")
    costs = Costs(
        flops_per_token=arm.flops_per_token,
        steps=arm.steps,
        tokens=tokens,
        tokens_per_s=_median(records, "tokens_per_s"),
        peak_memory_bytes=_median(records, "peak_memory_bytes"),
        seconds=_median(records, "seconds"),
        training_seconds=_training_seconds(records),
    )
    values = scores.by_seed.get(primary.name, {})
    others = [column.name for column in columns if column is not primary]
    tuned = []
    tunings = []
    for stage, runs in stages.items():
        is_own = stage == PRETRAINING
        prefix = "" if is_own else f"{FINETUNE}."
        tuned += [f"{prefix}{key}={value}" for key, value in runs.trial.settings.items()]
        if runs.losses:
            by = runs.chosen_by
            label, is_lower, factor = "loss", True, 1.0
            if by is not None:
                label, is_lower, factor = by.label, by.is_lower_better, by.factor
            # Each trial of a stage of tasks is one run.
            n_runs = looking.n_tuning if is_own else 1
            name = "" if is_own else stage
            tunings.append(Tuning(label, is_lower, factor, n_runs, runs.scores, name))
    result = ArmResult(
        name=arm.name,
        parameters=arm.parameters,
        seeds=tuple(values),
        values=tuple(values.values()),
        costs=costs,
        mismatch=arm.mismatch,
        matched=arm.matched,
        tuned=tuple(dict.fromkeys(tuned)),
        recipe=_recipe_text(run for _, run in own_recipe.seeded()),
        published=study.published.get(arm.name, {}),
        tunings=tuple(tunings),
        paper=study.paper.get(arm.name, {}),
    )
    if study.chain is not None:
        operations = trained_operations(study.chain, stages)
        return replace(
            result,
            costs=replace(costs, operations=operations),
            further={name: scores.by_seed[name] for name in others if name in scores.by_seed},
        )
    recipe = next(each.loaded.recipe for each in study.arms if each.name == arm.name)
    names = sorted({primary.name, *others, LOSS})
    curves = [read_curves(seed, run.path, names) for seed, run in finished]
    by_metric = curves_by_metric(curves)
    planned = float(arm.steps * tokens_per_step(recipe) * arm.flops_per_token)
    operations = None if tokens is None else tokens * arm.flops_per_token
    return replace(
        result,
        costs=replace(costs, operations=operations, planned_operations=planned),
        further={name: scores.by_seed.get(name, {}) for name in others},
        curves=by_metric.pop(primary.name, ()),
        further_curves=by_metric,
        training_curves=tuple(curve.training for curve in curves if curve.training is not None),
        probes=records[0].get("probes", {}) if records else {},
    )


def _training_seconds(records: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the median seconds of the runs' optimizer steps alone; None without any run."""
    seconds = [
        record["tokens"] / record["tokens_per_s"] for record in records if record["tokens_per_s"]
    ]
    return float(np.median(seconds)) if seconds else None


def _median(records: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [record[name] for record in records if record.get(name) is not None]
    return float(np.median(values)) if values else None


def _recipe_text(outcomes: Iterable[Outcome]) -> str:
    for outcome in outcomes:
        path = outcome.path / RUN_RECIPE
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return ""


def _scored_on(study: Study, *, within: bool) -> str:
    chain = study.chain
    if chain is None:
        return study.scoring.describe(study.arms[0].loaded.recipe)
    if not chain.finetunes:
        return "test split of the text, over pre-trainings"
    by_test = [stage.name for stage in chain.stages if stage.settings.get(SCORE_ON) == "test"]
    sets = "development sets of the tasks"
    if by_test:
        sets += f" (test sets of {', '.join(by_test)})"
    if within:
        return f"{sets}, over fine-tunings of one pre-training"
    if chain.n_seeds == 1:
        return f"{sets}, over pre-trainings"
    return f"{sets}, each pre-training by the {chain.nested} of its fine-tunings"


def arm_scores(
    chain: Chain, runs: Mapping[str, StageRuns], columns: Sequence[Column], *, within: bool
) -> ArmScores:
    """Compute an arm's scores; ``runs`` are by stage."""
    by_start: dict[str, dict[int, list[float]]] = {}
    by_seed: dict[int, dict[str, list[float]]] = {}
    for stage, seed, number, outcome in _scored(runs):
        # A single run counts for every fine-tuning.
        is_alone = len(runs[stage].outcomes[seed]) == 1
        compared = (range(chain.n_seeds) if is_alone else (number,)) if within else (seed,)
        for name, value in run_scores(columns, stage, outcome.test or {}).items():
            by_start.setdefault(name, {}).setdefault(seed, []).append(value)
            for each in compared:
                by_seed.setdefault(each, {}).setdefault(name, []).append(value)
    compared_scores: dict[str, dict[int, float]] = {}
    cells = {}
    for column in columns:
        of_seeds = {}
        for seed, values in sorted(by_seed.items()):
            scores = {name: _nested(chain, own) for name, own in values.items()}
            shown = value_of(column, scores)
            if shown is not None:
                of_seeds[seed] = shown
        if of_seeds:
            compared_scores[column.name] = of_seeds
            cells[column.name] = _cell(column.name, list(of_seeds.values()), by_start, within)
    return ArmScores(compared_scores, cells)


def _scored(runs: Mapping[str, StageRuns]) -> Iterator[tuple[str, int, int, Outcome]]:
    """Yield each run that was scored, with its stage, pre-training and number under that."""
    for stage, stage_runs in runs.items():
        for seed, outcomes in stage_runs.outcomes.items():
            for number, outcome in enumerate(outcomes):
                if outcome.test is not None:
                    yield stage, seed, number, outcome


def _cell(
    name: str,
    values: Sequence[float],
    by_start: Mapping[str, Mapping[int, Sequence[float]]],
    within: bool,
) -> Cell:
    """Return a column's cell: ``values`` are compared, ``by_start`` all runs' by pre-training."""

    def every(key: str) -> list[float]:
        return [value for own in by_start.get(key, {}).values() for value in own]

    errors = every(f"{name}{ERROR}")
    return Cell(
        mean=statistics.fmean(values),
        sd=statistics.stdev(values) if len(values) > 1 else None,
        inner_sd=None if within else _pooled(list(by_start.get(name, {}).values())),
        error=statistics.fmean(errors) if errors else None,
        n_runs=len(every(name)) or len(values),
        n_collapsed=round(sum(every(f"{name}{COLLAPSED}"))),
    )


def _nested(chain: Chain, values: Sequence[float]) -> float:
    return statistics.median(values) if chain.nested == "median" else statistics.fmean(values)


def _pooled(groups: Sequence[Sequence[float]]) -> float | None:
    """Return the standard deviation within groups; None where each has one value."""
    freedom = sum(len(group) - 1 for group in groups)
    if not freedom:
        return None
    squares = 0.0
    for group in groups:
        mean = statistics.fmean(group)
        squares += math.fsum((value - mean) ** 2 for value in group)
    return math.sqrt(squares / freedom)


def _compared_speed(chain: Chain) -> str:
    """Return what published speeds are held against: the row whose is 1; "" where there is none."""
    for name, published in chain.published.items():
        if published.get(SPEED) == 1.0:
            return name
    return ""


def _speeds(chain: Chain, arms: Sequence[ArmResult]) -> dict[str, float]:
    """Return arms' tokens a second in pre-training, over those of the arm that speeds are over."""
    measured = {arm.name: arm.costs.tokens_per_s for arm in arms if arm.costs.tokens_per_s}
    base = measured.get(_compared_speed(chain))
    return {name: each / base for name, each in measured.items()} if base else {}


def _scorecard(
    chain: Chain,
    arms: Sequence[ArmFacts],
    scores: Mapping[str, ArmScores],
    columns: Sequence[Column],
    baselines: Mapping[str, Mapping[str, Cell]],
    speeds: Mapping[str, float],
) -> Scorecard:
    rows = []
    for arm in arms:
        own = dict(scores[arm.name].cells)
        if arm.name in speeds:
            own[SPEED] = Cell(speeds[arm.name])
        rows.append(Row(arm.name, "arm", own))
    for name, cells in baselines.items():
        # Of baselines averages are of columns as those of arms.
        means = {column: cell.mean for column, cell in cells.items()}
        whole = dict(cells)
        for column in columns:
            value = value_of(column, means)
            if column.members and value is not None:
                whole[column.name] = Cell(value)
        rows.append(Row(name, "baseline", whole))
    metrics = {column.name: column.metric for column in columns}
    if speeds:
        metrics[SPEED] = speed_metric(_compared_speed(chain))
    for name, published in chain.published.items():
        cells = {}
        for title, value in published.items():
            # Published scores alone are shown as printed.
            metric = metrics.setdefault(title, published_metric(title))
            cells[title] = Cell(value / metric.factor)
        rows.append(Row(name, "published", cells))
    return Scorecard(list(metrics.values()), rows)


_KEPT = "baselines"


def keep_baselines(folder: Path, kept: Kept, runs: Runs) -> None:
    """Score every baseline on the tasks of stages, and keep the scores in a study's folder.

    Stages that have baselines are not scored again: ``runs`` have the data of the others.
    """
    shared = SharedData()
    files, cuts = dict(kept.baselines), dict(kept.cuts)
    for stage, recipe in _tasks_read(kept, runs).items():
        if stage in kept.baselines:
            continue
        files[stage] = _keep(folder, recipe, shared)
        split = of_tasks(shared.of(recipe).train)
        rule = row_rule(
            supervised(recipe),
            split,
            context=recipe.data.context,
            kind=recipe.model.kind,
            starts_with_pad=recipe.model.decoder_start == "pad",
        )
        if notes := describe_cuts(split, rule):
            cuts[stage] = f"{stage}: {notes[0]}."
    if files != kept.baselines:
        keep_chain(folder, kept.model_copy(update={"baselines": files, "cuts": cuts}))


def _tasks_read(kept: Kept, runs: Runs) -> dict[str, Recipe]:
    """Return the recipe of a run of each stage of tasks, whose data the baselines are scored on."""
    read: dict[str, Recipe] = {}
    for stage in kept.chain.stages:
        if not stage.finetunes:
            continue
        # An ensemble reads what its members do.
        name = stage.before[0] if stage.ensemble else stage.name
        for arm in kept.arms:
            own = runs[arm.name, name].outcomes
            outcomes = [each for seed in own.values() for each in seed]
            done = next((outcome for outcome in outcomes if outcome.record is not None), None)
            if done is not None:
                read[stage.name] = read_run_recipe(done.path / RUN_RECIPE)
                break
    return read


def read_baselines(
    folder: Path, files: Mapping[str, str], columns: Sequence[Column]
) -> dict[str, dict[str, Cell]]:
    """Read what every baseline scored, by column; ``files`` are by stage.

    Raises ConfigError where they are damaged.
    """
    by_baseline: dict[str, dict[str, Cell]] = {}
    for stage, file in files.items():
        for name, test in _read(folder / _KEPT / file).items():
            cells = by_baseline.setdefault(name, {})
            scores = run_scores(columns, stage, test)
            for column, value in scores.items():
                if not column.endswith(ERROR):
                    cells[column] = Cell(value, error=scores.get(f"{column}{ERROR}"))
    return by_baseline


def _read(path: Path) -> dict[str, dict[str, float]]:
    """Read what baselines score on a stage's tasks by ``part`` and ``part:metric``."""
    remedy = "remove it, and the study's command scores them anew"
    try:
        return read_typed(path, dict[str, dict[str, Number]], ConfigError)
    except FileNotFoundError:
        raise ConfigError(
            f"{path} is not there, which has the baselines' scores: the study's command scores them"
        ) from None
    except ConfigError as error:
        raise ConfigError(f"{error}: {remedy}") from None


def _keep(folder: Path, recipe: Recipe, shared: SharedData) -> str:
    """Score the baselines on a recipe's tasks, unless they are kept; return the file's name."""
    data = shared.of(recipe)
    key = content_key("baselines", data.checksums["train"], data.checksums["test"])
    path = folder / _KEPT / f"{key[:16]}.json"
    if path.is_file():
        return path.name
    baselines = BaselineScores(lambda: trained_examples(data))
    found: dict[str, dict[str, float]] = {}
    parts = of_tasks(data.test or data.train).parts
    for part in parts:
        for name, score in baselines.of(part).items():
            found.setdefault(name, {}).update(_scores(part_name(part, parts), score))
    for scores in found.values():
        own = [scores[part_name(part, parts)] for part in parts if part_name(part, parts) in scores]
        scores[""] = sum(own) / len(own)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, json.dumps(found, indent=1) + "\n")
    return path.name


def _scores(part: str, score: Score) -> dict[str, float]:
    scores = {part: score.value}
    if score.standard_error is not None:
        scores[f"{part}{ERROR}"] = score.standard_error
    for name, metric in score.metrics.items():
        scores[f"{part}:{name}"] = metric.value
        if metric.standard_error is not None:
            scores[f"{part}:{name}{ERROR}"] = metric.standard_error
    return scores
