"""Results of a study, collected from its folder without training, and the notes on them."""

import json
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.config.layers import RUN_RECIPE
from sublayer.config.load import read_run_recipe
from sublayer.data.prepare import Data
from sublayer.data.tasks.batches import TaskSplit, of_tasks
from sublayer.errors import CheckpointError, ConfigError
from sublayer.evaluation.items import Metric
from sublayer.files.cache_folder import content_key
from sublayer.files.parsing import Number, read_json_object, read_typed
from sublayer.files.storage import write_file
from sublayer.numbers import count
from sublayer.objective.supervised.family import example_batches
from sublayer.objective.supervised.scores import REMEDY, BaselineScores, part_name, trained_examples
from sublayer.runs.run import describe_small_test
from sublayer.statistics.contrasts import FEWEST_SEEDS
from sublayer.statistics.looks import Looks, fixed
from sublayer.study.arms import (
    FINETUNE,
    PRETRAINING,
    ArmFacts,
    Chain,
    Trial,
    planned_trials,
)
from sublayer.study.budget import tokens_per_step
from sublayer.study.columns import (
    SPEED,
    Column,
    list_columns,
    metric_columns,
    published_metric,
    run_scores,
    speed_metric,
)
from sublayer.study.comparisons import LOSS, read_curves
from sublayer.study.definition import Study
from sublayer.study.evidence import StudyJudge
from sublayer.study.inspection import LAYERS, read_layers, read_sample
from sublayer.study.jobs.run import ERROR, Outcome, SharedData
from sublayer.study.plan_file import StudyPlan, read_plan, sealing_of
from sublayer.study.question import WHOLE_TEST, Scoring
from sublayer.study.results import (
    RESULTS,
    SIGNATURE,
    ArmResult,
    Cell,
    Costs,
    Curve,
    Failure,
    Reproduction,
    Results,
    Scorecard,
    ScoreRow,
    StudyText,
    Tuning,
)
from sublayer.study.runs import (
    Runs,
    StageRuns,
    asked_arms,
    failed_runs,
    finder_of_chain,
    finder_of_plan,
    has_ended,
    trained_arms,
)
from sublayer.study.stage_recipes import ChainPlan, read_chain_file
from sublayer.tasks.scoring import MetricValue, TaskScore


def results_of_folder(folder: Path, *, command: str = "") -> Results:
    """Build the results of the study in a folder from the runs that have ended.

    The first note names missing runs. ``command`` reproduces the results, by default the original
    one. Raises ConfigError if the folder is damaged, or if the baseline has no ended run, and
    CheckpointError if a run is damaged.
    """
    plan = read_plan(folder)
    if not command:
        try:
            earlier = read_json_object(folder / RESULTS, CheckpointError)
        except FileNotFoundError:
            earlier = {}
        command = str(earlier.get("reproduction", {}).get("command", "")) or plan.command
    chain_plan = None if plan.asked.stages is None else read_chain_file(folder, plan)
    finder = (
        finder_of_plan(folder, plan) if chain_plan is None else finder_of_chain(folder, chain_plan)
    )
    runs = finder.gathered()
    if chain_plan is None:
        arms = trained_arms(plan, runs)
        begun = {arm.name for arm in arms}
    else:
        arms = asked_arms(folder, plan)
        begun = {arm for (arm, _), group in runs.items() if any(group.scored())}
    baseline = plan.settled[0].name
    if plan.about is None:
        raise ConfigError(
            f"{folder} was begun by an earlier version and lacks data for a report: rerun its "
            "compare command to complete it"
        )
    if baseline not in begun:
        raise ConfigError(
            f"{folder}: no run of the baseline, {baseline}, has ended: "
            "there is nothing to report yet"
        )
    study = plan.study(plan.about, arms)
    if chain_plan is None:
        judge, n_missing, n_made = _judge_arms(study, plan, runs)
        results = collect_results(judge, [arm.facts() for arm in arms], command=command)
        inspected = []
        for arm in results.arms:
            outcomes = dict(judge.runs[arm.name, PRETRAINING].seeded())
            scored = (run.path for run in outcomes.values() if run.test is not None)
            layers = {
                seed: of_run
                for seed, run in outcomes.items()
                if study.inspecting is not None
                and (of_run := read_layers(run.path, study.inspecting)) is not None
            }
            if len({len(of_run.changes) for of_run in layers.values()}) > 1:
                raise CheckpointError(
                    f"{LAYERS} of {arm.name} is damaged, as its runs differ in the number of "
                    "blocks: remove these files, and run the same command again"
                )
            sample = next(filter(None, map(read_sample, scored)), None)
            inspected.append(replace(arm, sample=sample, layers=layers))
        results = replace(results, arms=tuple(inspected))
        trials: Mapping[str, Sequence[Trial]]
        trials = {PRETRAINING: planned_trials(plan.asked.tune, plan.extended)}
        where = ""
    else:
        n_ended = finder.n_ended()
        missing = {stage: n - n_ended.get(stage, 0) for stage, n in chain_plan.n_runs.items()}
        missing = {stage: n for stage, n in missing.items() if n > 0}
        n_missing = sum(missing.values())
        n_made = sum(chain_plan.n_runs.values()) - n_missing
        chain = chain_plan.chain
        within = chain.n_seeds if chain.is_within(chain_plan.n_seeds) else 0
        n_seeds = chain.n_compared(chain_plan.n_seeds)
        judge = StudyJudge(
            replace(study, chain=chain),
            list_columns(study.name, chain, chain_plan.parts, chain_plan.kinds),
            runs,
            n_seeds,
            fixed(n_seeds),
            taken=() if within else tuple(plan.reported_seeds),
            is_unfinished=bool(missing),
            within=within,
        )
        baselines = read_baselines(folder, chain_plan.baselines, judge.columns)
        results = collect_results(judge, chain_plan.arms, command=command, baselines=baselines)
        of_stages = ", ".join(f"{n_runs:,} of {stage}" for stage, n_runs in missing.items())
        trials, where = chain_plan.trials, f"; missing are {of_stages}"
    notes = list_notes(results, judge, plan, trials, chain_plan)
    if n_missing:
        made = f"{n_made:,} of {count(n_made + n_missing, 'run')} have ended{where}."
        without = [arm.name for arm in plan.settled if chain_plan is None and arm.name not in begun]
        lacks = f"No run has ended of {', '.join(without)}." if without else ""
        resume = f"To resume: {plan.command}" if plan.command else ""
        notes.insert(0, " ".join(filter(None, ["Unfinished:", made, lacks, resume])))
    sealing = sealing_of(folder, chain_plan.stage_texts if chain_plan else None)
    return replace(results, notes=tuple(notes), sealing=sealing)


def _judge_arms(study: Study, plan: StudyPlan, runs: Runs) -> tuple[StudyJudge, int, int]:
    """Return the judge of a plain study, and the numbers of missing and of ended runs.

    ``study`` has the arms with an ended run.
    """
    request, names = plan.asked, [arm.name for arm in plan.settled]
    runs = {(arm.name, PRETRAINING): runs[arm.name, PRETRAINING] for arm in study.arms}
    without = set(names) - {arm.name for arm in study.arms}
    n_made = sum(has_ended(run) for group in runs.values() for _, run in group.seeded())
    n_seeds = plan.planned_seeds
    n_missing = n_seeds * len(names) - n_made
    looks = Looks(tuple(request.looks), is_sequential=True) if request.looks else fixed(n_seeds)
    # An arm against itself has no comparison.
    against = plan.about.against if plan.about else {}
    judge = StudyJudge(
        study,
        metric_columns(study),
        runs,
        n_seeds,
        looks,
        taken=tuple(plan.reported_seeds),
        n_tuning=len(request.tuning_seeds),
        n_awaited=sum(against.get(name) != name for name in without),
    )
    if not request.looks:
        return replace(judge, is_unfinished=n_missing > 0), n_missing, n_made
    look, n_missing, is_judged = judge.look_reached(names, request.seeds)
    return replace(judge, n_seeds=look, is_unfinished=not is_judged), n_missing, n_made


SCORE_ON = "data.score_on"


def collect_results(
    judge: StudyJudge,
    arms: Sequence[ArmFacts],
    *,
    command: str,
    baselines: Mapping[str, Mapping[str, Cell]] | None = None,
) -> Results:
    """Build the results of a study from its runs; ``command`` reproduces them.

    The first of ``arms`` is the baseline; ``baselines`` are scores of simple baselines by name and
    column. Reads metrics, recipes and items of the runs. Raises ConfigError for a margin in another
    unit.
    """
    study, runs, primary = judge.study, judge.runs, judge.primary
    results = [_arm_result(judge, arm) for arm in arms]
    baseline_seconds = results[0].costs.training_seconds
    if study.match == "time" and baseline_seconds:
        # The measured mismatch of the runs' time, not the predicted one.
        results = [
            arm if seconds is None else replace(arm, mismatch=seconds / baseline_seconds - 1.0)
            for arm in results
            for seconds in (arm.costs.training_seconds,)
        ]

    chain, scored_on = study.chain, "test split of the text, over pre-trainings"
    if chain is None:
        scored_on = study.scoring.describe(study.arms[0].loaded.recipe)
    elif chain.finetunes:
        by_test = [stage.name for stage in chain.stages if stage.settings.get(SCORE_ON) == "test"]
        beside = f" (test sets of {', '.join(by_test)})" if by_test else ""
        over = f"each pre-training by the {chain.nested} of its fine-tunings"
        if judge.within or chain.n_seeds == 1:
            over = f"over {'fine-tunings of one pre-training' if judge.within else 'pre-trainings'}"
        scored_on = f"development sets of the tasks{beside}, {over}"
    judged = judge.first()
    hypothesis = study.question.hypothesis
    return Results(
        name=study.name,
        title=study.title,
        metric=primary.metric,
        split="test" if study.chain else study.scoring.split,
        scored_on=scored_on,
        match=study.match,
        baseline=arms[0].name,
        n_seeds=judge.n_seeds,
        arms=tuple(results),
        differences=judged.differences,
        failures=tuple(
            Failure(f"{name}, {stage}" if study.chain else name, seed, outcome.failure)
            for name, stage, seed, outcome in failed_runs(runs)
        ),
        reproduction=describe_reproduction(
            [outcome for stage_runs in runs.values() for _, outcome in stage_runs.seeded()],
            study.texts,
            command,
        ),
        further=tuple(judge.further()),
        scorecard=_scorecard(judge, results, baselines or {}) if study.chain else None,
        n_awaited=judge.n_awaited,
        pairing=judged.pairing,
        margin=study.question.amount("margin", study.name, primary.metric),
        margin_reason=study.question.margin_reason,
        hypothesis=hypothesis.says if hypothesis else "",
        hypothesis_of=hypothesis.names if hypothesis else None,
        looks=judge.looks.all_after(judge.taken),
        is_sequential=judge.looks.is_sequential,
        n_metrics=1 + len(study.question.also),
    )


def _arm_result(judge: StudyJudge, arm: ArmFacts) -> ArmResult:
    """Build the result of an arm; costs are medians over finished runs of its recipe."""
    study, primary, is_plain = judge.study, judge.primary.name, judge.study.chain is None
    stages, (scores, _) = judge.stages(arm.name), judge.scored[arm.name]
    own_runs = stages.get(PRETRAINING, StageRuns({}))
    finished = [(seed, run) for seed, _, run in own_runs.scored()]
    records = [run.record for _, run in finished if run.record is not None]
    # Seconds of the optimizer steps only.
    training = [log["tokens"] / log["tokens_per_s"] for log in records if log["tokens_per_s"]]
    medians = {
        name: float(np.median(values)) if values else None
        for name, values in {
            "training_seconds": training,
            **{
                name: [log[name] for log in records if log.get(name) is not None]
                for name in ("tokens", "tokens_per_s", "peak_memory_bytes", "seconds")
            },
        }.items()
    }
    planned = operations = None
    if is_plain:
        recipe = next(trained.loaded.recipe for trained in study.arms if trained.name == arm.name)
        planned = float(arm.steps * tokens_per_step(recipe) * arm.flops_per_token)
        if medians["tokens"] is not None:
            operations = medians["tokens"] * arm.flops_per_token
    else:
        operations = trained_operations(judge.chain, stages)
    others = [column.name for column in judge.columns if column.name != primary]
    names = sorted({primary, *others, LOSS})
    # Curves of a study with stages would only be of its pre-training.
    curves = [read_curves(seed, run.path, names) for seed, run in finished if is_plain]
    by_metric: dict[str, tuple[Curve, ...]] = {}
    for validation, _ in curves:
        for name, curve in validation.items():
            by_metric[name] = (*by_metric.get(name, ()), curve)
    tuned: dict[str, None] = {}
    tunings = []
    for stage, runs in stages.items():
        is_own = stage == PRETRAINING
        prefix = "" if is_own else f"{FINETUNE}."
        tuned |= {f"{prefix}{key}={value}": None for key, value in runs.trial.settings.items()}
        if runs.losses:
            by = runs.chosen_by
            shown = ("loss", True, 1.0) if by is None else (by.label, by.is_lower_better, by.factor)
            # A trial of a stage of tasks is one run.
            n_runs = judge.n_tuning if is_own else 1
            tunings.append(Tuning(*shown, n_runs, runs.scores, "" if is_own else stage))
    recipes = (run.path / RUN_RECIPE for _, run in own_runs.seeded())
    values = scores.get(primary, {})
    return ArmResult(
        name=arm.name,
        parameters=arm.parameters,
        seeds=tuple(values),
        values=tuple(values.values()),
        costs=Costs(
            flops_per_token=arm.flops_per_token,
            steps=arm.steps,
            operations=operations,
            planned_operations=planned,
            **medians,
        ),
        mismatch=arm.mismatch,
        matched=arm.matched,
        tuned=tuple(tuned),
        curves=by_metric.pop(primary, ()),
        further_curves=by_metric,
        training_curves=tuple(training for _, training in curves if training is not None),
        recipe=next((path.read_text("utf-8") for path in recipes if path.is_file()), ""),
        further={name: scores.get(name, {}) for name in others if is_plain or name in scores},
        probes=records[0].get("probes", {}) if records and is_plain else {},
        published=study.published.get(arm.name, {}),
        tunings=tuple(tunings),
        paper=study.paper.get(arm.name, {}),
    )


def trained_operations(chain: Chain, runs: Mapping[str, StageRuns]) -> float | None:
    """Add up the operations of an arm's stages, each the median over its runs.

    ``runs`` are by stage. Operations follow from the trained tokens. None if a stage has no ended
    run. Ensembles train nothing.
    """
    total = 0.0
    for name, stage_runs in runs.items():
        if chain.stage(name).ensemble:
            continue
        spent = [
            float(outcome.record["tokens"] * outcome.record["flops_per_token"])
            for _, outcome in stage_runs.seeded()
            if outcome.record and outcome.record.get("flops_per_token") is not None
        ]
        if not spent:
            return None
        total += statistics.median(spent)
    return total


def _scorecard(
    judge: StudyJudge,
    arms: Sequence[ArmResult],
    baselines: Mapping[str, Mapping[str, Cell]],
) -> Scorecard:
    """Return the scores of arms, baselines and publications, with the speed of the arms.

    Speed is tokens per second in pre-training, relative to the arm with published speed 1.
    """
    metrics = {column.name: column.metric for column in judge.columns}
    published = judge.chain.published
    base = next((name for name, scores in published.items() if scores.get(SPEED) == 1.0), "")
    speeds = {arm.name: arm.costs.tokens_per_s or 0.0 for arm in arms}
    rows = []
    for name, speed in speeds.items():
        cells = dict(judge.scored[name][1])
        if speeds.get(base) and speed:
            metrics[SPEED] = speed_metric(base)
            cells[SPEED] = Cell(speed / speeds[base])
        rows.append(ScoreRow(name, "arm", cells))
    for name, scored in baselines.items():
        means = {column: cell.mean for column, cell in scored.items()}
        averages = {
            column.name: Cell(value)
            for column in judge.columns
            if column.members and (value := column.value_of(means)) is not None
        }
        rows.append(ScoreRow(name, "baseline", {**scored, **averages}))
    for name, printed in published.items():
        for title in printed:
            metrics.setdefault(title, published_metric(title))
        # Only published scores are shown as printed.
        cells = {title: Cell(value / metrics[title].factor) for title, value in printed.items()}
        rows.append(ScoreRow(name, "published", cells))
    return Scorecard(list(metrics.values()), rows)


_KEPT = "baselines"


def keep_baselines(folder: Path, chain_plan: ChainPlan, runs: Runs) -> None:
    """Score the baselines on the tasks of all stages, and keep the scores in a study's folder.

    Stages with scored baselines are skipped; ``runs`` have the data of the others.
    """
    shared = SharedData()
    files, cuts = dict(chain_plan.baselines), dict(chain_plan.cuts)
    for stage in chain_plan.chain.stages:
        if not stage.finetunes or stage.name in chain_plan.baselines:
            continue
        # An ensemble reads its members' files.
        name = stage.before[0] if stage.ensemble else stage.name
        outcomes = (run for arm in chain_plan.arms for _, run in runs[arm.name, name].seeded())
        done = next((outcome for outcome in outcomes if outcome.record is not None), None)
        if done is None:
            continue
        recipe = read_run_recipe(done.path / RUN_RECIPE)
        data = shared.of(recipe)
        key = content_key("baselines", data.checksums["train"], data.checksums["test"])
        path = folder / _KEPT / f"{key[:16]}.json"
        files[stage.name] = path.name
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, json.dumps(_baseline_scores(data), indent=1) + "\n")
        batches = example_batches(recipe, data.train)
        for cut in batches.split.describe_cuts(batches.rule)[:1]:
            cuts[stage.name] = f"{stage.name}: {cut}."
    if files != chain_plan.baselines:
        chain_plan.model_copy(update={"baselines": files, "cuts": cuts}).keep(folder)


def read_baselines(
    folder: Path, files: Mapping[str, str], columns: Sequence[Column]
) -> dict[str, dict[str, Cell]]:
    """Read the scores of the baselines by column; ``files`` are by stage.

    Raises ConfigError if they are damaged.
    """
    by_baseline: dict[str, dict[str, Cell]] = {}
    for stage, file in files.items():
        path = folder / _KEPT / file
        try:
            tests = read_typed(path, dict[str, dict[str, Number]], ConfigError)
        except (FileNotFoundError, ConfigError) as error:
            why = error if isinstance(error, ConfigError) else f"{path} is missing"
            raise ConfigError(
                f"{why}: it holds the baselines' scores; remove it if present, and run the "
                "study's command again to score them"
            ) from None
        for name, test in tests.items():
            cells = by_baseline.setdefault(name, {})
            scores = run_scores(columns, stage, test)
            for column, value in scores.items():
                if not column.endswith(ERROR):
                    cells[column] = Cell(value, error=scores.get(f"{column}{ERROR}"))
    return by_baseline


def _baseline_scores(data: Data) -> dict[str, dict[str, float]]:
    """Score the baselines on data, by baseline, part and metric."""
    baselines = BaselineScores(lambda: trained_examples(data))
    by_baseline: dict[str, dict[str, float]] = {}
    parts = of_tasks(data.test or data.train).parts
    for part in parts:
        name = part_name(part, parts)
        for baseline, score in baselines.of(part).items():
            scored: dict[str, TaskScore | MetricValue] = {name: score}
            scored |= {f"{name}:{metric}": value for metric, value in score.metrics.items()}
            scores = by_baseline.setdefault(baseline, {})
            for column, result in scored.items():
                scores[column] = result.value
                if result.standard_error is not None:
                    scores[f"{column}{ERROR}"] = result.standard_error
    for scores in by_baseline.values():
        of_parts = [score for name, score in scores.items() if ":" not in name]
        scores[""] = sum(of_parts) / len(of_parts)
    return by_baseline


def describe_reproduction(
    outcomes: Sequence[Outcome], texts: Sequence[str], command: str
) -> Reproduction:
    """Describe the environment and the text of runs; ``command`` repeats them.

    Facts are the first record's, except all commits and the last date. ``texts`` are the names of
    the first arm's texts. Without any record, only the command.
    """
    records = [outcome.record for outcome in outcomes if outcome.record is not None]
    if not records:
        return Reproduction(command)
    first = records[0]
    facts = {
        **first["versions"],
        "commit": ", ".join(sorted({log["commit"] for log in records if log["commit"]})) or None,
        **first["machine"],
        "precision": first["precision"],
        "threads": first["threads"],
    }
    # Signatures of translation scores, from the first record with them.
    signed = (
        outcome.test for outcome in outcomes if outcome.test and outcome.test.get("signature")
    )
    signatures: Any = next(signed, {}).get("signature", {})
    facts |= {f"{SIGNATURE}{measure}": value for measure, value in signatures.items()}
    # Records of earlier versions do not have all splits.
    splits = [split for split in ("train", "valid", "test") if split in first["data"]]
    return Reproduction(
        command,
        {name: str(value) for name, value in facts.items() if value is not None},
        {f"data, {name}": str(value) for name, value in first["data"]["checksums"].items()},
        text=StudyText(tuple(texts), {split: dict(first["data"][split]) for split in splits}),
        date=max(str(record.get("date", "")) for record in records),
    )


_FACTS = ("device", "gpu", "processor", "instructions")
"""Facts about a machine that may change the rounding of sums."""


def list_notes(
    results: Results,
    judge: StudyJudge,
    plan: StudyPlan,
    trials: Mapping[str, Sequence[Trial]],
    chain_plan: ChainPlan | None,
) -> list[str]:
    """Return the notes of a report in display order.

    ``plan`` and, for stages, ``chain_plan`` are from the study's folder; ``trials`` are by stage.
    """
    study, about = judge.study, plan.about
    assert about is not None, "it is written before the first run"
    notes = [] if chain_plan is None else [chain_plan.chain.explain_nesting(chain_plan.n_seeds)]
    notes += [*study.caveats, *about.layer_notes, *(chain_plan.cuts.values() if chain_plan else ())]
    if chain_plan is None and not results.has_verdicts:
        n_seeds = results.n_seeds
        few = "One seed gives" if n_seeds == 1 else f"{n_seeds} seeds give"
        enough = max([FEWEST_SEEDS, *plan.reported_seeds])
        notes.append(
            f"{few} values but no verdict, since the spread over seeds is unknown: --seeds "
            f"{enough} gives an interval."
        )
    notes += _explain_choices(judge, trials, chain_plan.tuning_number if chain_plan else 0)
    card = results.scorecard
    collapsed = [
        f"{cell.n_collapsed} of {cell.n_runs} of {row.name} on {column.label}"
        for row in (card.rows if card else ())
        for column in (card.columns if card else ())
        if (cell := row.cells.get(column.name)) is not None and cell.n_collapsed
    ]
    if collapsed:
        notes.append(
            "Collapsed runs, which give the same answer to every example: "
            f"{'; '.join(collapsed)}. A difference from such a mean is not a difference in "
            f"skill. Remedy: {REMEDY}."
        )
    chosen = []
    # If the last checkpoint is kept, none is selected.
    if {str(arm.loaded.recipe.train.best_by) for arm in study.arms} != {"last"}:
        chosen.append("the checkpoint of each run")
    if plan.asked.tune:
        tuned = ", ".join(text.partition("=")[0] for text in plan.asked.tune)
        chosen.append(f"each arm's {tuned}")
    if chain_plan is None and study.scoring.split == "valid" and chosen:
        notes.append(
            f"Scored on the validation split, which also chose {' and '.join(chosen)}: scores on "
            "other text would be worse."
        )
    notes += list_caveats(about.text_notes, results.metric, judge.elsewhere)
    if plan.jobs:
        notes.append(
            f"Up to {max(plan.jobs)} runs were trained in parallel on this machine: alone, each "
            "would have been faster."
        )
    if plan.clusters:
        notes.append(
            f"Runs were made on a cluster ({', '.join(plan.clusters)}), where nodes may have had "
            "other load: seconds and tokens/s may be worse than on an idle node."
        )
    # Records of earlier versions name no instructions.
    by_machine: dict[str, Counter[str]] = {}
    for (arm, stage), stage_runs in judge.runs.items():
        for _, outcome in stage_runs.seeded():
            if outcome.record is not None:
                facts = outcome.record["machine"]
                machine = ", ".join(str(facts[fact]) for fact in _FACTS if facts.get(fact))
                by_machine.setdefault(machine, Counter())[
                    f"{arm}, {stage}" if chain_plan else arm
                ] += 1
    if len(by_machine) > 1:
        parts = [
            f"{machine}: {', '.join(f'{n} of {name}' for name, n in counts.items())}"
            for machine, counts in by_machine.items()
        ]
        notes.append(
            "Runs were made on different machines, which may round differently: "
            f"{'; '.join(parts)}."
        )
    return notes


def list_caveats(texts: Sequence[str], metric: Metric, elsewhere: Sequence[str]) -> list[str]:
    """Return the caveats of the text and of arms scored on other items."""
    notes = list(texts)
    if elsewhere and metric.basis == "items":
        notes.append(
            f"{', '.join(elsewhere)}: scored on different targets than the baseline, so "
            f"{metric.label} cannot be compared, and there is no verdict."
        )
    return notes


def list_text_caveats(
    data: Mapping[str, Data],
    metric: Metric,
    scoring: Scoring = WHOLE_TEST,
    against: Mapping[str, str] | None = None,
) -> list[str]:
    """Return caveats of scores: small test text, differing texts, vocabularies, lossy tokenizers.

    ``data`` is by arm, the baseline first; ``metric`` is the deciding one; ``against`` names
    comparison partners other than the first arm; a control has itself.
    """
    against = against or {}
    notes: list[str] = []
    small = describe_small_test(next(iter(data.values()))) if scoring.split == "test" else None
    if small:
        notes.append(f"{small[0].upper()}{small[1:]}.")
    other_text = _others(data, scoring.split, against)
    if other_text:
        notes.append(
            f"{other_text}: scored on a different text than the baseline. Give all arms the same "
            f"text with data.{scoring.split}_path."
        )
    foreign = _others(data, "tokenizer", against)
    texts = {name: scoring.split_of(text) for name, text in data.items()}
    is_by_token = any(
        text.read_pairs is not None or text.sentence_starts is not None for text in texts.values()
    )
    if foreign and is_by_token:
        notes.append(
            f"{foreign}: the vocabulary differs from the baseline's, so nats per token and "
            "accuracies on masked tokens cannot be compared."
        )
    lossy = [name for name, text in texts.items() if not text.store.is_lossless]
    if lossy and metric.basis == "bytes":
        notes.append(
            f"The tokenizer of {', '.join(lossy)} drops some bytes of the text, at no cost in "
            "bits per byte."
        )
    return notes


def _others(data: Mapping[str, Data], what: str, against: Mapping[str, str]) -> str:
    """Name the arms whose text or tokenizer differs from their baseline's."""
    digests = {name: text.checksums.get(what) for name, text in data.items()}
    for name, text in data.items():
        for split in text.splits():
            if split.name == what and isinstance(split, TaskSplit):
                digests[name] = split.examples_digest
    first, *_ = data
    others = [name for name in data if digests[name] != digests[against.get(name, first)]]
    return ", ".join(others)


def _explain_choices(
    judge: StudyJudge, trials: Mapping[str, Sequence[Trial]], tuning_number: int
) -> Iterator[str]:
    """Yield the selected trial of each arm, the scores of all trials, and edges of the grid.

    A last note lists intervals that exclude tuning, since another metric selected.
    ``tuning_number`` is the seed of the trials of stages of tasks.
    """
    n_tuning = judge.n_tuning
    over = "" if n_tuning == 1 else f" (mean over {n_tuning} seeds)"
    other = ""
    for (arm, stage), stage_runs in judge.runs.items():
        if not stage_runs.losses:
            continue
        metric, chosen = stage_runs.chosen_by, stage_runs.trial
        label, factor, decimals = "loss", 1.0, 4
        if metric is not None:
            label, factor, decimals = metric.label, metric.factor, metric.decimals + 1
        who, by = arm, f"validation {label}{over}"
        if stage != PRETRAINING:
            who, decimals = f"{arm}, {stage}", decimals - 1
            by = f"score on held-out training examples (seed {tuning_number})"
        elif not stage_runs.is_chosen_by(judge.primary.metric):
            other = other or label
        scored = [
            f"{name}: {'failed' if score is None else f'{factor * score:z.{decimals}f}'}"
            for name, score in stage_runs.scores.items()
        ]
        text = f"{who}: {chosen.name} chosen by the {by}; {', '.join(scored)}."
        yield " ".join([text, *edges(chosen, trials[stage], stage_runs.losses)])
    if other and judge.n_seeds >= FEWEST_SEEDS:
        yield (
            f"Trials were chosen by their validation {other}, but the verdicts are on "
            f"{judge.primary.metric.label}: intervals do not include the uncertainty of tuning."
        )


def edges(
    chosen: Trial, trials: Sequence[Trial], scores: Mapping[str, float | None]
) -> Iterator[str]:
    """Yield notes on ties of the selected trial and on its values at an edge of the grid.

    ``scores`` are by trial. A value tied with another is at no edge.
    """
    best = scores.get(chosen.name)
    alike = [trial for trial in trials if best is not None and scores.get(trial.name) == best]
    if len(alike) > 1:
        names = " and ".join(trial.name for trial in alike)
        yield f"{names} scored the same: the lower validation loss decided."
    for field, value in chosen.settings.items():
        tried = [trial.settings[field] for trial in trials]
        if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in tried):
            continue
        for end, which, beyond in (
            (max(tried), "highest", "higher"),
            (min(tried), "lowest", "lower"),
        ):
            if value == end and all(trial.settings[field] == value for trial in alike):
                yield (
                    f"{field} = {value:g} is the {which} value tried: a better one may lie beyond "
                    f"the grid, so try {beyond} values."
                )
