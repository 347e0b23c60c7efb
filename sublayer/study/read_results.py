"""Results of a study, read from its folder, without training or reading a text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sublayer.counts import count
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.parsing import read_json_object
from sublayer.statistics.looks import Looks, fixed
from sublayer.study.arms import Trial, planned_trials
from sublayer.study.chain_file import Kept, read_chain_file
from sublayer.study.collect import collect_results, read_baselines
from sublayer.study.columns import list_columns, metric_columns
from sublayer.study.definition import Study
from sublayer.study.evidence import StudyJudge
from sublayer.study.notes import list_notes
from sublayer.study.plan_file import StudyPlan, read_plan, sealing_of, study_of
from sublayer.study.results import RESULTS, Results
from sublayer.study.runs import (
    Runs,
    asked_arms,
    describe_arm,
    finder_of_plan,
    has_ended,
    trained_arms,
)
from sublayer.study.samples import with_kept
from sublayer.study.stages import PRETRAINING, is_within, n_compared
from sublayer.study.verdicts import look_reached


def results_of_folder(folder: Path, *, command: str = "") -> Results:
    """Build the results of the study in a folder from the runs that have ended.

    The first note names missing runs. ``command`` reproduces the results, by default the original
    one. Raises ConfigError if the folder is damaged, or if the baseline has no ended run, and
    CheckpointError if a run is damaged.
    """
    plan = read_plan(folder)
    command = command or _earlier_command(folder) or plan.command
    kept = None if plan.asked.stages is None else read_chain_file(folder, plan)
    finder = finder_of_plan(folder, plan) if kept is None else kept.finder(folder)
    runs = finder.gathered()
    if kept is None:
        arms = trained_arms(plan, runs)
        begun = {arm.name for arm in arms}
    else:
        arms = asked_arms(folder, plan)
        begun = {arm for (arm, _), group in runs.items() if any(group.scored())}
    baseline = plan.settled[0].name
    if plan.about is None:
        raise ConfigError(
            f"{folder} was begun by an earlier version, which kept too little for a report: the "
            "same compare command completes it"
        )
    if baseline not in begun:
        raise ConfigError(
            f"{folder}: no run of the baseline, {baseline}, has ended: "
            "there is nothing to report yet"
        )
    study = study_of(plan, plan.about, arms)
    if kept is None:
        judge, n_missing, n_made = _judge_arms(study, plan, runs)
        results = collect_results(judge, list(map(describe_arm, arms)), command=command)
        results = replace(results, arms=with_kept(results.arms, judge.runs, study.inspecting))
        trials: Mapping[str, Sequence[Trial]]
        trials = {PRETRAINING: planned_trials(plan.asked.tune, plan.extended)}
        where = ""
    else:
        n_ended = finder.n_ended()
        missing = {stage: n - n_ended.get(stage, 0) for stage, n in kept.n_runs.items()}
        missing = {stage: n for stage, n in missing.items() if n > 0}
        n_missing = sum(missing.values())
        n_made = sum(kept.n_runs.values()) - n_missing
        judge = _judge_stages(study, plan, kept, runs, is_unfinished=bool(missing))
        baselines = read_baselines(folder, kept.baselines, judge.columns)
        results = collect_results(judge, kept.arms, command=command, baselines=baselines)
        of_stages = ", ".join(f"{n_runs:,} of {stage}" for stage, n_runs in missing.items())
        trials, where = kept.trials, f"; missing are {of_stages}"
    notes = list_notes(results, judge, plan, trials, kept)
    if n_missing:
        made = f"{n_made:,} of {count(n_made + n_missing, 'run')} have ended{where}."
        without = [arm.name for arm in plan.settled if kept is None and arm.name not in begun]
        lacks = f"No run has ended of {', '.join(without)}." if without else ""
        resume = f"To resume: {plan.command}" if plan.command else ""
        notes.insert(0, " ".join(filter(None, ["Unfinished:", made, lacks, resume])))
    sealing = sealing_of(folder, kept.stage_texts if kept else None)
    return replace(results, notes=tuple(notes), sealing=sealing)


def _earlier_command(folder: Path) -> str:
    """Return the command of the results in a folder; empty without any."""
    try:
        earlier = read_json_object(folder / RESULTS, CheckpointError)
    except FileNotFoundError:
        return ""
    return str(earlier.get("reproduction", {}).get("command", ""))


def _judge_arms(study: Study, plan: StudyPlan, runs: Runs) -> tuple[StudyJudge, int, int]:
    """Return the judge of a plain study, and the numbers of missing and of ended runs.

    ``study`` has the arms with an ended run.
    """
    asked, names = plan.asked, [arm.name for arm in plan.settled]
    runs = {(arm.name, PRETRAINING): runs[arm.name, PRETRAINING] for arm in study.arms}
    without = set(names) - {arm.name for arm in study.arms}
    n_made = sum(has_ended(run) for group in runs.values() for _, run in group.seeded())
    n_seeds = plan.planned_seeds
    n_missing = n_seeds * len(names) - n_made
    looks = Looks(tuple(asked.looks), is_sequential=True) if asked.looks else fixed(n_seeds)
    # An arm against itself has no comparison.
    against = plan.about.against if plan.about else {}
    judge = StudyJudge(
        study,
        metric_columns(study),
        runs,
        n_seeds,
        looks,
        taken=tuple(plan.reported_seeds),
        n_tuning=len(asked.tuning_seeds),
        n_awaited=sum(against.get(name) != name for name in without),
    )
    if not asked.looks:
        return replace(judge, is_unfinished=n_missing > 0), n_missing, n_made
    reached = look_reached(judge, names, asked.seeds)
    judge = replace(judge, n_seeds=reached.look, is_unfinished=not reached.is_judged)
    return judge, reached.n_missing, n_made


def _judge_stages(
    study: Study, plan: StudyPlan, kept: Kept, runs: Runs, *, is_unfinished: bool
) -> StudyJudge:
    """Return the judge of a study with stages."""
    chain = kept.chain
    columns = list_columns(study.name, chain, kept.parts, kept.kinds)
    within = chain.n_seeds if is_within(chain, kept.n_seeds) else 0
    n_seeds = n_compared(chain, kept.n_seeds)
    return StudyJudge(
        replace(study, chain=chain),
        columns,
        runs,
        n_seeds,
        fixed(n_seeds),
        taken=() if within else tuple(plan.reported_seeds),
        is_unfinished=is_unfinished,
        within=within,
    )
