"""The results of a study, collected from its runs."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from sublayer.config.recipe import Recipe
from sublayer.config.run_recipe import read_run_recipe
from sublayer.config.sources import RUN_RECIPE
from sublayer.data.cache import content_key
from sublayer.data.tasks.batches import describe_cuts, of_tasks
from sublayer.errors import ConfigError
from sublayer.files.parsing import Number, read_typed
from sublayer.files.storage import write_file
from sublayer.objective.metric import Metric
from sublayer.objective.supervised.batches import row_rule, supervised
from sublayer.objective.supervised.evaluation import trained_examples
from sublayer.objective.supervised.scores import BaselineScores, part_name
from sublayer.study.budget.expected import tokens_per_step
from sublayer.study.chain_file import Kept, keep_chain
from sublayer.study.columns import (
    SPEED,
    Column,
    published_metric,
    run_scores,
    speed_metric,
    value_of,
)
from sublayer.study.curves import LOSS, curves_by_metric, read_curves
from sublayer.study.definition import Study
from sublayer.study.evidence import Looking, StudyJudge
from sublayer.study.jobs.run import COLLAPSED, ERROR, SharedData
from sublayer.study.notes import describe_reproduction
from sublayer.study.results import (
    ArmResult,
    Cell,
    Costs,
    Failure,
    Further,
    Results,
    Row,
    Scorecard,
    Tuning,
)
from sublayer.study.runs import ArmFacts, Runs, StageRuns, failed_runs
from sublayer.study.stages import FINETUNE, PRETRAINING, Chain

SCORE_ON = "data.score_on"


def collect_results(
    asked: StudyJudge,
    arms: Sequence[ArmFacts],
    primary: Column,
    *,
    command: str,
    baselines: Mapping[str, Mapping[str, Cell]] | None = None,
) -> Results:
    """Build the results of a study's runs; ``command`` makes them again.

    ``arms`` are those of the runs, the baseline first; ``primary`` is the column that decides.
    ``baselines`` are the scores of others by name and column. Reads the runs' metrics, recipes and
    items. Raises ConfigError for a margin of another unit.
    """
    study, chain, columns, runs = asked.study, asked.chain, asked.columns, asked.runs
    looking, within = asked.looking, asked.within
    others = [column for column in columns if column is not primary]
    judge = replace(asked, columns=[primary, *others])
    scores: dict[str, dict[str, dict[int, float]]] = {}
    cells: dict[str, dict[str, Cell]] = {}
    results = []
    for arm in arms:
        stages = {
            stage: stage_runs for (name, stage), stage_runs in runs.items() if name == arm.name
        }
        scores[arm.name], cells[arm.name] = arm_scores(chain, stages, columns, within=within)
        results.append(_arm_result(study, arm, stages, scores[arm.name], columns, primary, looking))
    if study.match == "time":
        # The measured mismatch of the runs' time, not the predicted one.
        expected = results[0].costs.training_seconds
        for number, arm_result in enumerate(results):
            seconds = arm_result.costs.training_seconds
            if seconds is not None and expected:
                results[number] = replace(arm_result, mismatch=seconds / expected - 1.0)
    values = {name: by_column.get(primary.name, {}) for name, by_column in scores.items()}
    judged = judge.first(values)
    further = []
    for column in others:
        shown = _measured(study, results, column.metric)
        values = {name: scores[name].get(column.name, {}) for name in shown}
        if any(values.values()):
            further.append(Further(column.metric, judge.further(column, values).differences))
    hypothesis = study.question.hypothesis
    failures = [
        Failure(f"{name}, {stage}" if study.chain else name, seed, outcome.failure)
        for name, stage, seed, outcome in failed_runs(runs)
    ]
    outcomes = [outcome for stage_runs in runs.values() for _, outcome in stage_runs.seeded()]
    scorecard = None
    if study.chain is not None:
        scorecard = _scorecard(chain, results, cells, columns, baselines or {})
    return Results(
        name=study.name,
        title=study.title,
        metric=primary.metric,
        split="test" if study.chain else study.scoring.split,
        scored_on=_scored_on(study, within=bool(within)),
        match=study.match,
        baseline=arms[0].name,
        n_seeds=asked.n_seeds,
        arms=tuple(results),
        differences=judged.differences,
        failures=tuple(failures),
        reproduction=describe_reproduction(outcomes, study.texts, command),
        further=tuple(further),
        scorecard=scorecard,
        n_awaited=asked.n_awaited,
        pairing=judged.pairing,
        margin=judged.margin,
        margin_reason=study.question.margin_reason,
        hypothesis=hypothesis.says if hypothesis else "",
        hypothesis_of=hypothesis.names if hypothesis else None,
        looks=looking.looks.all_after(looking.taken),
        is_sequential=looking.looks.is_sequential,
        n_metrics=1 + len(study.question.also),
    )


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
    scores: Mapping[str, Mapping[int, float]],
    columns: Sequence[Column],
    primary: Column,
    looking: Looking,
) -> ArmResult:
    """Build an arm's result. Costs are medians over the runs of its own recipe that finished."""
    own_runs = stages.get(PRETRAINING, StageRuns({}))
    finished = [(seed, run) for seed, _, run in own_runs.scored()]
    records = [run.record for _, run in finished if run.record is not None]

    def median(name: str) -> float | None:
        values = [record[name] for record in records if record.get(name) is not None]
        return float(np.median(values)) if values else None

    tokens = median("tokens")
    # Of the optimizer steps alone.
    seconds = [each["tokens"] / each["tokens_per_s"] for each in records if each["tokens_per_s"]]
    planned = None
    if study.chain is None:
        recipe = next(each.loaded.recipe for each in study.arms if each.name == arm.name)
        planned = float(arm.steps * tokens_per_step(recipe) * arm.flops_per_token)
        operations = None if tokens is None else tokens * arm.flops_per_token
    else:
        operations = trained_operations(study.chain, stages)
    values = scores.get(primary.name, {})
    others = [column.name for column in columns if column is not primary]
    # The curves of a study with stages would be of its pre-training alone.
    names = sorted({primary.name, *others, LOSS})
    with_curves = finished if study.chain is None else []
    curves = [read_curves(seed, run.path, names) for seed, run in with_curves]
    by_metric = curves_by_metric(curves)
    tuned: dict[str, None] = {}
    tunings = []
    for stage, runs in stages.items():
        is_own = stage == PRETRAINING
        prefix = "" if is_own else f"{FINETUNE}."
        tuned |= {f"{prefix}{key}={value}": None for key, value in runs.trial.settings.items()}
        if runs.losses:
            by = runs.chosen_by
            shown = ("loss", True, 1.0) if by is None else (by.label, by.is_lower_better, by.factor)
            # Each trial of a stage of tasks is one run.
            n_runs = looking.n_tuning if is_own else 1
            tunings.append(Tuning(*shown, n_runs, runs.scores, "" if is_own else stage))
    texts = (run.path / RUN_RECIPE for _, run in own_runs.seeded())
    text = next((path.read_text(encoding="utf-8") for path in texts if path.is_file()), "")
    return ArmResult(
        name=arm.name,
        parameters=arm.parameters,
        seeds=tuple(values),
        values=tuple(values.values()),
        costs=Costs(
            flops_per_token=arm.flops_per_token,
            steps=arm.steps,
            tokens=tokens,
            tokens_per_s=median("tokens_per_s"),
            peak_memory_bytes=median("peak_memory_bytes"),
            seconds=median("seconds"),
            training_seconds=float(np.median(seconds)) if seconds else None,
            operations=operations,
            planned_operations=planned,
        ),
        mismatch=arm.mismatch,
        matched=arm.matched,
        tuned=tuple(tuned),
        curves=by_metric.pop(primary.name, ()),
        further_curves=by_metric,
        training_curves=tuple(curve.training for curve in curves if curve.training is not None),
        recipe=text,
        further={
            name: scores.get(name, {}) for name in others if study.chain is None or name in scores
        },
        probes=records[0].get("probes", {}) if records and study.chain is None else {},
        published=study.published.get(arm.name, {}),
        tunings=tuple(tunings),
        paper=study.paper.get(arm.name, {}),
    )


def trained_operations(chain: Chain, runs: Mapping[str, StageRuns]) -> float | None:
    """Add up the operations of an arm's stages, by the tokens that their runs were trained on.

    ``runs`` are an arm's by stage; of each stage it is the median over its runs. None where a stage
    has no run that has ended. Ensembles train nothing.
    """
    total = 0.0
    for name, stage_runs in runs.items():
        if name != PRETRAINING and chain.stage(name).ensemble:
            continue
        records = [outcome.record or {} for _, outcome in stage_runs.seeded()]
        spent = [
            float(record["tokens"] * record["flops_per_token"])
            for record in records
            if record.get("flops_per_token") is not None
        ]
        if not spent:
            return None
        total += statistics.median(spent)
    return total


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
    chain: Chain, runs: Mapping[str, StageRuns], columns: Sequence[Column], *, within: int
) -> tuple[dict[str, dict[int, float]], dict[str, Cell]]:
    """Compute an arm's scores by column, for each seed that is compared, and their cells.

    ``runs`` are by stage.
    """
    by_start: dict[str, dict[int, list[float]]] = {}
    by_seed: dict[int, dict[str, list[float]]] = {}
    for stage, stage_runs in runs.items():
        for start, seeds, outcome in stage_runs.scored(within):
            for name, value in run_scores(columns, stage, outcome.test or {}).items():
                by_start.setdefault(name, {}).setdefault(start, []).append(value)
                for seed in seeds:
                    by_seed.setdefault(seed, {}).setdefault(name, []).append(value)
    average = statistics.median if chain.nested == "median" else statistics.fmean
    compared: dict[str, dict[int, float]] = {}
    for seed, values in sorted(by_seed.items()):
        scores = {name: average(scored) for name, scored in values.items()}
        for column in columns:
            shown = value_of(column, scores)
            if shown is not None:
                compared.setdefault(column.name, {})[seed] = shown
    cells = {}
    for name, of_seeds in compared.items():
        errors, every, collapsed = (
            [value for scored in by_start.get(f"{name}{what}", {}).values() for value in scored]
            for what in (ERROR, "", COLLAPSED)
        )
        cells[name] = Cell(
            mean=statistics.fmean(of_seeds.values()),
            sd=statistics.stdev(of_seeds.values()) if len(of_seeds) > 1 else None,
            inner_sd=None if within else _pooled(list(by_start.get(name, {}).values())),
            error=statistics.fmean(errors) if errors else None,
            n_runs=len(every) or len(of_seeds),
            n_collapsed=round(sum(collapsed)),
        )
    return compared, cells


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


def _scorecard(
    chain: Chain,
    arms: Sequence[ArmResult],
    scores: Mapping[str, Mapping[str, Cell]],
    columns: Sequence[Column],
    baselines: Mapping[str, Mapping[str, Cell]],
) -> Scorecard:
    """Return the scores of arms, baselines and publications, with the arms' speeds.

    Those are tokens a second in pre-training, over those of the arm whose published speed is 1.
    """
    metrics = {column.name: column.metric for column in columns}
    is_base = (name for name, published in chain.published.items() if published.get(SPEED) == 1.0)
    base = next(is_base, "")
    speeds = {arm.name: arm.costs.tokens_per_s or 0.0 for arm in arms}
    rows = []
    for arm in arms:
        cells = dict(scores[arm.name])
        if speeds.get(base) and speeds[arm.name]:
            metrics[SPEED] = speed_metric(base)
            cells[SPEED] = Cell(speeds[arm.name] / speeds[base])
        rows.append(Row(arm.name, "arm", cells))
    for name, scored in baselines.items():
        # Of baselines averages are of columns as those of arms.
        means = {column: cell.mean for column, cell in scored.items()}
        cells = dict(scored)
        for column in columns:
            value = value_of(column, means)
            if column.members and value is not None:
                cells[column.name] = Cell(value)
        rows.append(Row(name, "baseline", cells))
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
    for stage in kept.chain.stages:
        if not stage.finetunes or stage.name in kept.baselines:
            continue
        # An ensemble reads what its members do.
        name = stage.before[0] if stage.ensemble else stage.name
        outcomes = (run for arm in kept.arms for _, run in runs[arm.name, name].seeded())
        done = next((outcome for outcome in outcomes if outcome.record is not None), None)
        if done is None:
            continue
        recipe = read_run_recipe(done.path / RUN_RECIPE)
        files[stage.name] = _keep(folder, recipe, shared)
        split = of_tasks(shared.of(recipe).train)
        rule = row_rule(
            supervised(recipe),
            split,
            context=recipe.data.context,
            kind=recipe.model.kind,
            starts_with_pad=recipe.model.decoder_start == "pad",
        )
        if notes := describe_cuts(split, rule):
            cuts[stage.name] = f"{stage.name}: {notes[0]}."
    if files != kept.baselines:
        keep_chain(folder, kept.model_copy(update={"baselines": files, "cuts": cuts}))


def read_baselines(
    folder: Path, files: Mapping[str, str], columns: Sequence[Column]
) -> dict[str, dict[str, Cell]]:
    """Read what every baseline scored, by column; ``files`` are by stage.

    Raises ConfigError where they are damaged.
    """
    by_baseline: dict[str, dict[str, Cell]] = {}
    for stage, file in files.items():
        path = folder / _KEPT / file
        try:
            tests = read_typed(path, dict[str, dict[str, Number]], ConfigError)
        except FileNotFoundError:
            raise ConfigError(
                f"{path} is not there, which has the baselines' scores: the study's command scores "
                "them"
            ) from None
        except ConfigError as error:
            remedy = "remove it, and the study's command scores them anew"
            raise ConfigError(f"{error}: {remedy}") from None
        for name, test in tests.items():
            cells = by_baseline.setdefault(name, {})
            scores = run_scores(columns, stage, test)
            for column, value in scores.items():
                if not column.endswith(ERROR):
                    cells[column] = Cell(value, error=scores.get(f"{column}{ERROR}"))
    return by_baseline


def _keep(folder: Path, recipe: Recipe, shared: SharedData) -> str:
    """Score the baselines on a recipe's tasks, unless they are kept; return the file's name."""
    data = shared.of(recipe)
    key = content_key("baselines", data.checksums["train"], data.checksums["test"])
    path = folder / _KEPT / f"{key[:16]}.json"
    if path.is_file():
        return path.name
    baselines = BaselineScores(lambda: trained_examples(data))
    by_baseline: dict[str, dict[str, float]] = {}
    parts = of_tasks(data.test or data.train).parts
    names = {part_name(part, parts): part for part in parts}
    for name, part in names.items():
        for baseline, score in baselines.of(part).items():
            scores = by_baseline.setdefault(baseline, {})
            pairs = [(name, score.value, score.standard_error)]
            for metric, each in score.metrics.items():
                pairs.append((f"{name}:{metric}", each.value, each.standard_error))
            for column, value, error in pairs:
                scores[column] = value
                if error is not None:
                    scores[f"{column}{ERROR}"] = error
    for scores in by_baseline.values():
        scores_of_parts = [scores[name] for name in names if name in scores]
        scores[""] = sum(scores_of_parts) / len(scores_of_parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, json.dumps(by_baseline, indent=1) + "\n")
    return path.name
