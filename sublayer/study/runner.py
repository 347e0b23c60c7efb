"""A comparison from beginning to end: arms, budgets, runs, verdicts, report."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sublayer.data.prepare import Data
from sublayer.study.arms import arm_notes
from sublayer.study.asked import is_run, load_asked
from sublayer.study.budget.budget import MatchedArm, match_budgets
from sublayer.study.budget.match import Rule
from sublayer.study.budget.shared_tokenizer import share_tokenizer
from sublayer.study.chain.asked import as_asked
from sublayer.study.chain.runner import run_chain
from sublayer.study.checks import (
    check_compared,
    check_held_out,
    check_pairs,
    check_runs,
    check_splits,
    check_study,
    check_windows,
)
from sublayer.study.collect import collect_results
from sublayer.study.definition import DEFAULT_SEEDS, Overrides, Study
from sublayer.study.execution.arm_runs import ArmRuns, ArmWork, RunAll
from sublayer.study.execution.in_turn import InTurn
from sublayer.study.execution.jobs import check_jobs, shared_threads
from sublayer.study.execution.shares import describe_share
from sublayer.study.execution.side_by_side import SideBySide
from sublayer.study.facts import StudyFacts
from sublayer.study.findings.samples import add_samples
from sublayer.study.finished_runs import compare_runs
from sublayer.study.folder import StudyFolder
from sublayer.study.folder_name import find_folder
from sublayer.study.foresight import foresee
from sublayer.study.header import list_study_header
from sublayer.study.inspection.arms import with_layers
from sublayer.study.items.collecting import collect_items
from sublayer.study.items.file_header import RunItems
from sublayer.study.judgement.evidence import scored_elsewhere
from sublayer.study.judgement.of_study import Looking
from sublayer.study.judgement.stopping import run_looks
from sublayer.study.metrics import study_metrics
from sublayer.study.options import Options, command_line
from sublayer.study.plan_file import About, Request
from sublayer.study.plan_of_seeds import asked_looks, asked_seeds, with_margin
from sublayer.study.report.budget_words import time_caveats
from sublayer.study.report.caveats import explain_one_seed, list_caveats
from sublayer.study.report.choices import chosen_by_validation, explain_choices
from sublayer.study.report.text_caveats import list_text_caveats
from sublayer.study.result_files import write_results
from sublayer.study.results import Results
from sublayer.study.tuned_arms import tune_arms
from sublayer.study.tuning import Trial, check_extensible, make_trials
from sublayer.system.stages import note


def run_study(
    sources: Sequence[str], overrides: Overrides, options: Options
) -> tuple[Results, Path]:
    """Run a study, or what is missing of it, and return its results and the path of its report.

    Runs that exist, two or more, are compared as they are. Runs that fail are part of the results.
    Raises ConfigError and DataError before anything is trained, Interrupted in between, and
    TrainingError, the report written, where no arm is left with two seeds to compare, or with the
    one that was planned.
    """
    if len(sources) > 1 and any(map(is_run, sources)):
        check_runs(sources, overrides, options)
        return compare_runs([Path(source) for source in sources], options.out, options.device)
    study = load_asked(sources, overrides, vary_texts=options.vary, scale=options.scale)
    if study.chain is not None:
        return run_chain(study, sources, overrides, options)
    as_asked(study, options.tune, options.finetunings, options.data)
    rule = options.match or study.match
    study = with_margin(study, options.margin)
    looks = asked_looks(options, study.n_seeds or DEFAULT_SEEDS)
    n_seeds = looks.planned[-1]
    check_study(study, looks)
    check_jobs(options.jobs, study.arms, rule)
    tune = options.tune or study.tune
    trials = make_trials(study.arms, tune)
    seeds = asked_seeds(options, n_seeds, is_tuned=len(trials) > 1)
    if options.extend:
        check_extensible(trials)
    check_splits(study, n_trials=len(trials))
    metric, *_ = study_metrics(study)
    request = Request(
        study.arms,
        rule,
        tune,
        study.scoring,
        seeds=seeds,
        margin=study.question.margin_of(study.name, metric),
        margin_factor=metric.factor,
        looks=looks.planned if looks.is_sequential else (),
    )
    folder = find_folder(study, request, options.out)
    folder.check()
    layer_notes = arm_notes(study.arms)
    if len(sources) > 1:
        for difference in study.caveats:
            note(difference)
    facts = StudyFacts(options.device)
    with folder.held():
        study = replace(study, arms=share_tokenizer(study.arms, facts.data, folder.path))
        data = {arm.name: facts.data(arm.loaded.recipe) for arm in study.arms}
        check_held_out(study, data)
        check_pairs(study, data)
        check_windows(study, data)
        n_trial_runs = 0
        if len(trials) > 1:
            n_trial_runs = (len(trials) + (options.extend or 0)) * seeds.n_tuning
        n_runs = len(study.arms) * (n_trial_runs + n_seeds)
        matched_arms = _settle(folder, study, rule, facts, data, options=options, n_runs=n_runs)
        header = list_study_header(
            matched_arms,
            data,
            facts.measures(len(study.arms)),
            rule=rule,
            looks=looks,
            n_trials=n_trial_runs,
            n_runs=n_runs,
            jobs=options.jobs,
            device=options.device,
            folder=folder.path,
        )
        for line in header:
            note(line)
        for line in foresee(study, metric, looks, folder.path):
            note(line)
        resuming = command_line(sources, overrides, options, out=folder.path)
        texts = list_text_caveats(data, metric, study.scoring, study.against)
        about = About.of(study, layer_notes, texts)
        folder.keep_command(resuming, about, n_runs=n_runs, n_seeds=n_seeds)
        run_all: RunAll = InTurn(n_runs, options.device)
        if options.jobs > 1:
            run_all = SideBySide(n_runs, options.jobs, options.device)
        work = ArmWork(
            folder,
            matched_arms,
            data,
            run_all,
            scoring=study.scoring,
            inspecting=study.inspecting,
        )
        if len(trials) > 1:
            trials = tune_arms(
                work, folder, trials, seeds, metric, n_extensions=options.extend or 0
            )
        looking = Looking(looks, tuple(folder.reported_seeds()), n_tuning=seeds.n_tuning)
        runs, n_seeds = run_looks(work, study, seeds, looking)
        folder.add_report(n_seeds)
        n_made = sum(len(each.outcomes) + len(each.losses) * seeds.n_tuning for each in runs)
        folder.keep_command(resuming, about, n_runs=n_made, n_seeds=n_seeds)
        looking = replace(looking, taken=tuple(folder.reported_seeds()))
        items = collect_items(runs)
        results = collect_results(
            study,
            rule,
            n_seeds,
            runs,
            facts.measures(len(runs)),
            command=command_line(sources, overrides, options),
            items=items[0],
            looking=looking,
        )
        arms = add_samples(results.arms, runs, data, device=options.device)
        arms = with_layers(arms, runs, study.inspecting)
        chosen = chosen_by_validation(study.arms, tune)
        notes = _notes(
            folder, study, runs, trials, texts, results, items[0], chosen, seeds.n_tuning
        )
        results = replace(results, arms=arms, notes=(*study.caveats, *layer_notes, *notes))
        objective = study.arms[0].loaded.recipe.objective
        report = write_results(folder.path, results, objective, *items)
    check_compared(results, report)
    return results, report


def _notes(
    folder: StudyFolder,
    study: Study,
    runs: Sequence[ArmRuns],
    trials: Sequence[Trial],
    texts: Sequence[str],
    results: Results,
    items: Sequence[RunItems],
    chosen: Sequence[str],
    n_tuning: int,
) -> tuple[str, ...]:
    """List what a reader should know of a comparison's runs, what tuning chose first."""
    notes = list_caveats(
        texts,
        metric=results.metric,
        elsewhere=scored_elsewhere(items, results.baseline, results.metric, study.against),
        jobs=folder.jobs(),
        scoring=study.scoring,
        chosen=chosen,
    )
    notes = (*explain_choices(runs, trials, n_tuning), *time_caveats(results), *notes)
    if results.has_verdicts:
        return notes
    return (explain_one_seed(results, folder.reported_seeds()), *notes)


def _settle(
    folder: StudyFolder,
    study: Study,
    rule: Rule,
    facts: StudyFacts,
    data: Mapping[str, Data],
    *,
    options: Options,
    n_runs: int,
) -> list[MatchedArm]:
    """Return what the study settled for its arms when it began, or settle it now."""
    checksums = data[study.arms[0].name].checksums
    folder.check_text(checksums)
    settled = folder.matched_arms(study.arms)
    matched_arms = settled
    jobs = options.jobs
    if matched_arms is None:
        measures = facts.measures(len(study.arms), is_new=True)
        threads = shared_threads(min(jobs, n_runs)) if jobs > 1 else None
        matched_arms = match_budgets(study.arms, rule, measures, threads=threads)
    if jobs > 1:
        text = describe_share(
            matched_arms, data, n_runs=n_runs, jobs=jobs, device=options.device, folder=folder.path
        )
        note(text)
    # Nothing is settled by what is refused.
    if settled is None:
        folder.begin(matched_arms, checksums)
    folder.add_jobs(jobs)
    return matched_arms
