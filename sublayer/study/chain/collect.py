"""The results of a chain: the scores of nested seeds, verdicts over pre-trainings, a scorecard."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sublayer.statistics.difference import FEWEST_SEEDS, Judgement
from sublayer.statistics.judge import judge
from sublayer.statistics.looks import fixed, unfinished, without_verdicts
from sublayer.statistics.scores import against_baseline
from sublayer.study.budget.match import Rule
from sublayer.study.chain.columns import (
    SPEED,
    Column,
    published_metric,
    run_scores,
    speed_metric,
    value_of,
)
from sublayer.study.chain.evidence import column_units
from sublayer.study.chain.gathering import StageRuns
from sublayer.study.chain.kept import ArmFacts
from sublayer.study.chain.operations import trained_operations
from sublayer.study.chain.stages import FINETUNE, PRETRAINING, Chain, is_within, n_compared
from sublayer.study.collect import as_timed, training_seconds
from sublayer.study.definition import Study
from sublayer.study.evidence import scores_of
from sublayer.study.execution.finetuned_run import COLLAPSED, ERROR
from sublayer.study.execution.one_run import Outcome
from sublayer.study.findings.reproduction import describe_reproduction
from sublayer.study.question import further_contrasts
from sublayer.study.results import ArmResult, Costs, Failure, Further, Results, Tuning
from sublayer.study.scorecard import Cell, Row, Scorecard

SCORE_ON = "data.score_on"
Runs = Mapping[tuple[str, str], StageRuns]
"""By arm and stage."""


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
        reproduction=describe_reproduction(outcomes, study.arms[0].loaded.recipe, command),
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


def _tunings(arm: str, runs: Runs) -> tuple[Tuning, ...]:
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
        tunings=_tunings(arm.name, runs),
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
