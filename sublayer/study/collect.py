"""The results of a study, collected from its runs."""

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.config.layering.run_recipe import read_run_recipe
from sublayer.config.layering.sources import RUN_RECIPE
from sublayer.config.recipe import Recipe
from sublayer.config.resolved import ResolvedModel
from sublayer.data.cache import content_key
from sublayer.data.tasks.split_notes import describe_cuts
from sublayer.data.tasks.task_split import of_tasks
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.files.storage import write_file
from sublayer.files.typed import Number, read_typed
from sublayer.objective.metric import Metric
from sublayer.objective.supervised.batches import row_rule, supervised
from sublayer.objective.supervised.evaluation import trained_examples
from sublayer.objective.supervised.scores import BaselineScores, part_name
from sublayer.statistics.difference import FEWEST_SEEDS, Judgement
from sublayer.statistics.judge import judge
from sublayer.statistics.looks import fixed, unfinished, without_verdicts
from sublayer.statistics.scores import against_baseline
from sublayer.study.arm_runs import ArmRuns
from sublayer.study.budget.expected import tokens_per_step
from sublayer.study.budget.match import Measures, Rule, arm_model, arm_steps
from sublayer.study.columns import (
    SPEED,
    Column,
    Values,
    column_units,
    published_metric,
    run_scores,
    scores_of,
    speed_metric,
    study_metrics,
    value_of,
)
from sublayer.study.definition import Study
from sublayer.study.findings.curves import LOSS, curves_by_metric, read_curves
from sublayer.study.findings.reproduction import describe_reproduction
from sublayer.study.items import RunItems
from sublayer.study.jobs.run import COLLAPSED, ERROR, Outcome, SharedData
from sublayer.study.question import further_contrasts
from sublayer.study.results import ArmResult, Costs, Failure, Further, Results, Tuning
from sublayer.study.scorecard import Cell, Row, Scorecard
from sublayer.study.stage_plan import trained_operations
from sublayer.study.stage_runs import ArmFacts, Kept, StageRuns, keep_chain
from sublayer.study.stages import FINETUNE, PRETRAINING, Chain, is_within, n_compared
from sublayer.study.verdicts import Looking, StudyJudge
from sublayer.tasks.metrics.score import Score

Runs = Mapping[tuple[str, str], StageRuns]
"""By arm and stage."""


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
            study.texts,
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


_KEPT = "baselines"


def keep_baselines(folder: Path, kept: Kept, runs: Runs) -> None:
    """Score every baseline on the tasks of stages, and keep the scores in a study's folder.

    What was scored for the same stages is not scored again: ``runs`` are asked for the others'
    data.
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
            done = next((each for each in outcomes if each.record is not None), None)
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


SCORE_ON = "data.score_on"


@dataclass(frozen=True)
class ArmScores:
    """The scores of an arm by column, for each seed that is compared."""

    by_seed: Mapping[str, Mapping[int, float]]
    cells: Mapping[str, Cell]


def collect_chain(
    study: Study,
    rule: Rule,
    n_seeds: int,
    arms: Sequence[ArmFacts],
    runs: Runs,
    columns: Sequence[Column],
    primary: Column,
    baselines: Mapping[str, Mapping[str, Cell]],
    *,
    command: str,
    looks: Sequence[int] = (),
    is_unfinished: bool = False,
) -> Results:
    """Build the results of a chain; ``baselines`` are scores by name and column.

    ``n_seeds`` are pre-trainings. The first arm is the baseline of the comparison. ``looks`` are
    the numbers of seeds that were reported, in turn; of an unfinished one there is no verdict.
    """
    chain = study.chain
    assert chain is not None, "a chain is collected"
    within = is_within(chain, n_seeds)
    n_planned = n_compared(chain, n_seeds)
    scores = {}
    for arm in arms:
        name = arm.name
        own = {stage: each for (of, stage), each in runs.items() if of == name}
        scores[name] = arm_scores(chain, own, columns, within=within)

    def judge_column(
        column: Column, values: Mapping[str, Mapping[int, float]], *, is_primary: bool
    ) -> Judgement:
        found = _judge(
            study,
            column,
            columns,
            values,
            runs,
            n_planned,
            looks,
            is_primary=is_primary,
            within=within,
        )
        is_early = is_unfinished and n_planned >= FEWEST_SEEDS
        return unfinished(found, n_planned) if is_early else found

    others = [column for column in columns if column is not primary]
    baseline = arms[0].name
    further = []
    for column in others:
        values = {name: each.by_seed.get(column.name, {}) for name, each in scores.items()}
        if any(values.values()):
            judged = judge_column(column, values, is_primary=False)
            if column.name not in study.question.also:
                judged = without_verdicts(judged)
            further.append(Further(column.metric, judged.differences))
    values = {name: each.by_seed.get(primary.name, {}) for name, each in scores.items()}
    judged = judge_column(primary, values, is_primary=True)
    hypothesis = study.question.hypothesis
    outcomes = [each for stage in runs.values() for own in stage.outcomes.values() for each in own]
    made = [_arm_result(chain, arm, runs, scores[arm.name], primary) for arm in arms]
    made = [replace(arm, paper=study.paper.get(arm.name, {})) for arm in made]
    if rule == "time":
        made = [as_timed(arm, made[0]) for arm in made]
    return Results(
        name=study.name,
        title=study.title,
        metric=primary.metric,
        split="test",
        scored_on=_scored_on(chain, within=within),
        match=rule,
        baseline=baseline,
        n_seeds=n_planned,
        arms=tuple(made),
        differences=judged.differences,
        failures=tuple(_failures(runs)),
        reproduction=describe_reproduction(outcomes, study.texts, command),
        further=tuple(further),
        scorecard=_scorecard(chain, arms, scores, columns, baselines, _speeds(chain, made)),
        pairing=judged.pairing,
        margin=judged.margin,
        margin_reason=study.question.margin_reason,
        hypothesis=hypothesis.says if hypothesis else "",
        hypothesis_of=hypothesis.names if hypothesis else None,
        looks=fixed(n_planned).all_after(looks),
        n_metrics=1 + len(study.question.also),
    )


def _judge(
    study: Study,
    column: Column,
    columns: Sequence[Column],
    values: Mapping[str, Mapping[int, float]],
    runs: Runs,
    n_planned: int,
    taken: Sequence[int],
    *,
    is_primary: bool,
    within: bool,
) -> Judgement:
    """Judge a column; ``taken`` are the numbers of seeds that were reported, in turn."""
    question = study.question
    margin = question.margin_of(study.name, column.metric) if is_primary else None
    failed_arms = {failure.arm.partition(", ")[0] for failure in _failures(runs)}
    failed = {
        arm: [seed for seed in range(n_planned) if seed not in own]
        for arm, own in values.items()
        if arm in failed_arms
    }
    chain = study.chain
    assert chain is not None, "a chain is judged"
    units = column_units(chain, runs, list(values), columns, column, within=within)
    scores = scores_of(values, failed, units)
    baseline = study.arms[0].name
    contrasts = against_baseline(values, baseline, study.against)
    contrasts += further_contrasts(question, values, baseline, study.against)
    n_own = len(contrasts)
    looks = fixed(n_planned)
    return judge(
        scores,
        contrasts,
        is_lower_better=column.metric.is_lower_better,
        n_seeds=n_planned,
        level=looks.level_of(n_planned, taken, n_own),
        next_level=looks.next_level(taken, n_own),
        margin=margin,
        n_awaited=n_own * len(question.also),
        resolution=10.0 ** -(column.metric.decimals + 1) / column.metric.factor,
    )


def _scored_on(chain: Chain, *, within: bool) -> str:
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
        # What is done once stands beside every fine-tuning.
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
    for stage, own in runs.items():
        for seed, outcomes in own.outcomes.items():
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


def _tuned(arm: str, runs: Runs) -> tuple[str, ...]:
    """Return what an arm's stages of tasks have chosen, each value once."""
    chosen = [own.trial.settings for (name, _), own in runs.items() if name == arm and own.tried]
    settings = [f"{FINETUNE}.{key}={value}" for each in chosen for key, value in each.items()]
    return tuple(dict.fromkeys(settings))


def _stage_tunings(arm: str, runs: Runs) -> tuple[Tuning, ...]:
    """Return the trials of an arm's stages, a run each, scored on what was held out of training."""
    label = "score on what was held out"
    return tuple(
        Tuning(label, False, 100.0, 1, own.tried, stage)
        for (name, stage), own in runs.items()
        if name == arm and own.tried
    )


def _arm_result(
    chain: Chain, arm: ArmFacts, runs: Runs, scores: ArmScores, primary: Column
) -> ArmResult:
    own = {stage: each for (of, stage), each in runs.items() if of == arm.name}
    records = []
    text = ""
    for outcome in _outcomes(own.get(PRETRAINING)):
        if outcome.record is not None:
            records.append(outcome.record)
            text = text or (outcome.path / "recipe.toml").read_text(encoding="utf-8")

    def median(key: str) -> float | None:
        values = [float(record[key]) for record in records if record.get(key) is not None]
        return statistics.median(values) if values else None

    costs = Costs(
        flops_per_token=arm.flops_per_token,
        steps=arm.steps,
        tokens=median("tokens"),
        tokens_per_s=median("tokens_per_s"),
        peak_memory_bytes=median("peak_memory_bytes"),
        seconds=median("seconds"),
        training_seconds=training_seconds(records),
        operations=trained_operations(chain, own),
    )
    values = scores.by_seed.get(primary.name, {})
    return ArmResult(
        name=arm.name,
        parameters=arm.parameters,
        seeds=tuple(values),
        values=tuple(values.values()),
        costs=costs,
        mismatch=arm.mismatch,
        matched=arm.matched,
        tuned=_tuned(arm.name, runs),
        tunings=_stage_tunings(arm.name, runs),
        recipe=text,
        further={
            column: found for column, found in scores.by_seed.items() if column != primary.name
        },
    )


def _outcomes(runs: StageRuns | None) -> Iterator[Outcome]:
    if runs is not None:
        for own in runs.outcomes.values():
            yield from own


def _failures(runs: Runs) -> Iterator[Failure]:
    seen = set()
    for (arm, stage), own in runs.items():
        for seed, outcomes in own.outcomes.items():
            for outcome in outcomes:
                if outcome.failure and outcome.path not in seen:
                    seen.add(outcome.path)
                    yield Failure(f"{arm}, {stage}", seed, outcome.failure)


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
            # What is not measured here is shown as it is printed.
            metric = metrics.setdefault(title, published_metric(title))
            cells[title] = Cell(value / metric.factor)
        rows.append(Row(name, "published", cells))
    return Scorecard(list(metrics.values()), rows)
