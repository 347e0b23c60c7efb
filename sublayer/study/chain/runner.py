"""A chain study from beginning to end: stages, budgets, runs, verdicts, report."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from sublayer.config.layering.run_recipe import read_run_recipe
from sublayer.config.layering.sources import RUN_RECIPE
from sublayer.config.recipe import Recipe
from sublayer.config.text.tokenizers import TOKENIZERS
from sublayer.counts import count
from sublayer.data.prepare import Data
from sublayer.statistics.looks import fixed
from sublayer.study.arms import arm_notes
from sublayer.study.budget.match import MatchedArm, Rule, match_budgets
from sublayer.study.budget.shared_tokenizer import keep_tokenizer, kept_forms
from sublayer.study.chain.asked import as_asked, check_options
from sublayer.study.chain.baselines import score_baselines
from sublayer.study.chain.checks import check_chain, check_disk, check_question, planned_recipes
from sublayer.study.chain.collect import Runs
from sublayer.study.chain.evidence import has_items
from sublayer.study.chain.kept import (
    Kept,
    check_same_stages,
    describe_chain,
    keep_chain,
    with_baselines_of,
)
from sublayer.study.chain.keys import Keys, find_keys
from sublayer.study.chain.recipes import StageRecipes
from sublayer.study.chain.reporting import chain_results, find_columns
from sublayer.study.chain.stage_runs import ChainRuns
from sublayer.study.chain.stages import PRETRAINING, Chain, explain_nesting, n_compared
from sublayer.study.chain.trials import check_kept_steps, stage_trials
from sublayer.study.checks import check_compared, check_splits
from sublayer.study.cluster.computing import Computing
from sublayer.study.cluster.place import check_place
from sublayer.study.definition import DEFAULT_SEEDS, Overrides, Study
from sublayer.study.execution.jobs import check_jobs
from sublayer.study.facts import StudyFacts
from sublayer.study.folder import StudyFolder
from sublayer.study.folder_name import find_folder
from sublayer.study.foresight import foresee
from sublayer.study.header import budget_rows
from sublayer.study.options import Options, command_line
from sublayer.study.plan_file import About, Request
from sublayer.study.plan_of_seeds import with_margin
from sublayer.study.result_files import write_chain_results
from sublayer.study.results import Results
from sublayer.study.tuning import Trial
from sublayer.system.stages import note


def run_chain(
    study: Study, sources: Sequence[str], overrides: Overrides, options: Options
) -> tuple[Results, Path]:
    """Run a chain study, or what is missing of it; return its results and its report's path.

    Raises ConfigError and DataError before anything is trained, Interrupted in between.
    """
    rule = options.match or study.match
    n_seeds = options.seeds or study.n_seeds or DEFAULT_SEEDS
    study = as_asked(study, options.tune, options.finetunings, options.data)
    chain = study.chain
    assert chain is not None, "a study without stages is none of chains"
    check_options(options)
    study = with_margin(study, options.margin)
    check_chain(study, n_seeds)
    check_place(options.on, options.jobs, study.arms, rule)
    check_jobs(options.jobs, study.arms, rule)
    check_splits(study, n_trials=1)
    folder = find_folder(study, Request(study.arms, rule, (), study.scoring, chain), options.out)
    folder.check()
    computing = Computing(folder.path, jobs=options.jobs, on=options.on, device=options.device)
    facts = StudyFacts(computing.device, is_elsewhere=computing.cluster is not None)
    with folder.held():
        data = {arm.name: facts.data(arm.loaded.recipe) for arm in study.arms}
        matched = _settle(folder, study, rule, facts, data, computing, n_seeds)
        with _recipes(study, matched, data, folder.path) as recipes:
            kept = _describe(study, recipes, matched, data, facts, n_seeds)
            check_same_stages(folder.path, kept, recipes)
            columns, primary = find_columns(study, kept)  # refused before anything is trained
            check_question(study, columns, primary)
            margin = study.question.margin_of(study.name, primary.metric)
            folder.state_margin(margin, primary.metric.factor)
            check_disk(recipes, matched, data, kept, folder.path, options.jobs)
            planned = planned_recipes(recipes, matched, data, kept).values()
            every = [each for stage in planned for each in stage]
            computing.check_recipes(every, sum(kept.n_runs.values()))
            measures = facts.measures(len(study.arms))
            steps = [arm.steps or None for arm in kept.arms]
            budgets = budget_rows(matched, measures, rule, steps)
            for line in _header(study, kept, budgets, computing, folder.path):
                note(line)
            looks = fixed(n_compared(chain, n_seeds))
            of_items = has_items(chain, primary)
            for line in foresee(study, primary.metric, looks, has_items=of_items):
                note(line)
            resuming = command_line(sources, overrides, options, out=folder.path)
            kept = _begin(folder, study, matched, data, kept, resuming, computing)
            primary_name = study.metric or primary.metric.name
            folder.seal(primary_name, stage_texts=kept.stage_texts)
            run_all = computing.run_all(sum(kept.n_runs.values()), resuming)
            with closing(computing):
                runs = ChainRuns(
                    kept,
                    matched,
                    recipes,
                    data,
                    folder.path,
                    run_all,
                    scoring=study.scoring,
                    plan=folder.last_seal(),
                ).work()
        command = command_line(sources, overrides, options)
        results = _results(folder, study, kept, runs, rule, command)
        report = write_chain_results(folder.path, results)
    check_compared(results, report)
    return results, report


def _describe(
    study: Study,
    recipes: StageRecipes,
    arms: Sequence[MatchedArm],
    data: Mapping[str, Data],
    facts: StudyFacts,
    n_seeds: int,
) -> Kept:
    """Find out all that is kept of a chain before its runs."""
    chain = recipes.chain
    names = [arm.name for arm in study.arms]
    keys, parts = find_keys(recipes, names, data)
    trials = _trials(recipes, names)
    n_runs = _count_runs(chain, keys, trials, n_seeds)
    measures = facts.measures(len(names))
    return describe_chain(chain, arms, keys, parts, trials, n_runs, measures, n_seeds=n_seeds)


def _begin(
    folder: StudyFolder,
    study: Study,
    arms: Sequence[MatchedArm],
    data: Mapping[str, Data],
    kept: Kept,
    command: str,
    computing: Computing,
) -> Kept:
    """Write what the study is into its folder; return what is kept, earlier baselines with it."""
    if not folder.is_begun():
        folder.begin(arms, data)
    folder.add_computing(computing.jobs, computing.cluster)
    about = About.of(study, arm_notes(study.arms), ())
    n_runs = sum(kept.n_runs.values())
    folder.keep_command(command, about, n_runs=n_runs, n_seeds=kept.n_seeds)
    kept = with_baselines_of(folder.path, kept)
    keep_chain(folder.path, kept)
    return kept


def _results(
    folder: StudyFolder, study: Study, kept: Kept, runs: Runs, rule: Rule, command: str
) -> Results:
    """Score the baselines, and build the results of runs that have all ended."""
    folder.add_report(kept.n_seeds)
    # What was scored for the same stages is not asked of their data again.
    read = _tasks_read(kept, runs)
    missing = {stage: recipe for stage, recipe in read.items() if stage not in kept.baselines}
    if missing:
        files, cuts = score_baselines(folder.path, missing)
        found = {"baselines": {**kept.baselines, **files}, "cuts": {**kept.cuts, **cuts}}
        kept = kept.model_copy(update=found)
        keep_chain(folder.path, kept)
    return chain_results(
        study,
        kept,
        runs,
        folder.path,
        rule=rule,
        command=command,
        layer_notes=arm_notes(study.arms),
        looks=folder.reported_seeds(),
        jobs=folder.jobs(),
        clusters=folder.clusters(),
    )


def _settle(
    folder: StudyFolder,
    study: Study,
    rule: Rule,
    facts: StudyFacts,
    data: Mapping[str, Data],
    computing: Computing,
    n_seeds: int,
) -> list[MatchedArm]:
    """Return what was settled when the study began, or what is settled now."""
    folder.check_inputs(study.arms, data)
    settled = folder.matched_arms(study.arms)
    if settled is not None:
        return settled
    computing.check_precision(study.arms)
    measures = facts.measures(len(study.arms), is_new=True)
    threads = computing.threads(max(computing.jobs, n_seeds * len(study.arms)))
    matched = match_budgets(study.arms, rule, measures, threads=threads)
    if computing.cluster is None:
        computing.check(matched, data, len(study.arms))
    return matched


def _recipes(
    study: Study, arms: Sequence[MatchedArm], data: Mapping[str, Data], folder: Path
) -> StageRecipes:
    assert study.chain is not None, "a study without stages is none of chains"
    tokenizers = {}
    for arm in arms:
        name = arm.arm.name
        kind = arm.loaded.recipe.data.tokenizer
        if not study.chain.of(name).pretrains and kind in TOKENIZERS and kind != "bytes":
            kept = keep_tokenizer(folder.absolute(), *kept_forms(data[name].tokenizer))
            tokenizers[name] = str(kept)
    recipes = {arm.arm.name: arm.loaded for arm in arms}
    return StageRecipes(study.name, study.chain, recipes, tokenizers)


def _trials(recipes: StageRecipes, arms: Sequence[str]) -> dict[str, list[Trial]]:
    trials = {stage.name: stage_trials(recipes, arms, stage) for stage in recipes.chain.stages}
    check_kept_steps(recipes, arms, trials)
    return trials


def _count_runs(
    chain: Chain,
    keys: Keys,
    trials: Mapping[str, Sequence[Trial]],
    n_seeds: int,
) -> dict[str, int]:
    """Count the runs of each stage, those that arms share once."""
    total = {PRETRAINING: n_seeds * len(keys.distinct(PRETRAINING))}
    for stage in chain.stages:
        n_runs = n_seeds * chain.n_runs(stage)
        n_trials = len(trials[stage.name])
        n_tried = n_trials if n_trials > 1 else 0
        total[stage.name] = (n_runs + n_tried) * len(keys.distinct(stage.name))
    return total


def _header(
    study: Study,
    kept: Kept,
    budgets: Sequence[tuple[str, str]],
    computing: Computing,
    folder: Path,
) -> Iterator[str]:
    chain, total = kept.chain, kept.n_runs
    names = ", ".join(arm.name for arm in study.arms)
    yield f"arms        {names}"
    for stage, n_runs in total.items():
        if not n_runs:
            continue
        n_distinct = len(kept.stage_keys.distinct(stage))
        shared = ""
        if n_distinct < len(study.arms):
            shared = f", {n_distinct} for {count(len(study.arms), 'arm')}"
        yield f"{stage:<11} {count(n_runs, 'run')}{shared}{_after(chain, stage)}"
    yield f"runs        {sum(total.values()):,} in all{computing.where}"
    for label, text in budgets:
        yield f"{label:<11} {text} (pre-training)"
    yield f"seeds       {explain_nesting(chain, kept.n_seeds)}"
    starts = [f"{name} from {arm.start}" for name, arm in chain.arms.items() if arm.start]
    if starts:
        yield f"starts      each pre-training from another of its seed: {', '.join(starts)}"
    yield f"folder      {folder}"


def _after(chain: Chain, stage: str) -> str:
    if stage == PRETRAINING:
        return ""
    own = chain.stage(stage)
    return f", averages of {own.start}" if own.ensemble else f" after {own.start}"


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
