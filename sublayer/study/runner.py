"""A comparison from beginning to end: arms, budgets, runs, verdicts, report."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from sublayer.config.layering.paths import absolute_paths
from sublayer.config.layering.run_recipe import read_run_recipe
from sublayer.config.layering.sources import RUN_RECIPE
from sublayer.config.recipe import Recipe
from sublayer.config.text.tokenizers import TOKENIZERS
from sublayer.counts import count
from sublayer.data.prepare import Data
from sublayer.objective.metric import Metric
from sublayer.runs.header import lay_out, text_rows
from sublayer.runs.pace import recall_run_pace
from sublayer.runs.session import Place
from sublayer.statistics.looks import Looks, fixed
from sublayer.study.arm_runs import ArmWork, tune_arms
from sublayer.study.arms import NO_TRIAL, Trial, arm_notes, check_extensible, make_trials
from sublayer.study.budget.excess import plan_budgets
from sublayer.study.budget.expected import tokens_per_step
from sublayer.study.budget.match import (
    MatchedArm,
    Measures,
    Rule,
    arm_model,
    arm_steps,
    match_budgets,
)
from sublayer.study.budget.shared_tokenizer import keep_tokenizer, kept_forms, share_tokenizer
from sublayer.study.checks import (
    check_chain,
    check_compared,
    check_disk,
    check_held_out,
    check_pairs,
    check_question,
    check_runs,
    check_splits,
    check_study,
    check_windows,
    planned_recipes,
)
from sublayer.study.cluster.computing import Computing
from sublayer.study.cluster.place import check_place
from sublayer.study.collect import Runs, score_baselines
from sublayer.study.columns import has_items, study_metrics
from sublayer.study.definition import DEFAULT_SEEDS, Overrides, Study, is_run, load_asked
from sublayer.study.execution.jobs import check_jobs
from sublayer.study.facts import StudyFacts
from sublayer.study.findings.samples import draw_samples
from sublayer.study.finished_runs import compare_runs
from sublayer.study.folder import StudyFolder, find_folder
from sublayer.study.options import (
    Options,
    as_asked,
    asked_looks,
    asked_seeds,
    check_options,
    command_line,
    with_margin,
)
from sublayer.study.plan_file import About, Request
from sublayer.study.question import Seeds
from sublayer.study.read_results import find_columns, results_of_folder
from sublayer.study.report.budget_words import describe_planned
from sublayer.study.report.notes import list_text_caveats
from sublayer.study.report.number_format import format_share
from sublayer.study.results import Results
from sublayer.study.results_json import write_results
from sublayer.study.stage_recipes import (
    Keys,
    StageRecipes,
    check_kept_steps,
    find_keys,
    stage_trials,
)
from sublayer.study.stage_runs import (
    ChainRuns,
    Kept,
    check_same_stages,
    describe_chain,
    keep_chain,
    with_baselines_of,
)
from sublayer.study.stages import PRETRAINING, Chain, explain_nesting, n_compared
from sublayer.study.verdicts import Looking, foresee, run_looks
from sublayer.system.machine import choose_device
from sublayer.system.stage_displays import format_seconds
from sublayer.system.stages import note
from sublayer.training.processes.world import World

_MOST_ARMS = 6


def list_study_header(
    arms: Sequence[MatchedArm],
    data: Mapping[str, Data],
    measures: Measures,
    *,
    rule: Rule,
    looks: Looks,
    n_trials: int,
    n_runs: int,
    computing: Computing,
    folder: Path,
) -> list[str]:
    """Return the lines of a comparison's header; ``data`` is each arm's by name.

    ``n_trials`` are the runs of each arm that tune, ``n_runs`` all runs, at most.
    """
    baseline = arms[0]
    recipe = baseline.loaded.recipe
    steps = [arm_steps(arm.loaded, measures) for arm in arms]
    train = recipe.train
    on = [computing.runs_device, train.precision]
    if train.threads is not None:
        on.append(count(train.threads, "thread"))
    tuned = f", {count(n_trials, 'run')} of each arm to tune, with other seeds" if n_trials else ""
    rows = [
        ("arms", _arms([arm.arm.name for arm in arms])),
        ("runs", f"{_runs(looks, n_runs)}{tuned}{computing.where}"),
        ("matched by", "nothing" if rule == "none" else rule),
        *text_rows(recipe, data[baseline.arm.name]),
        ("device", ", ".join(on)),
        ("length", f"{_range(steps)} a run"),
        *budget_rows(arms, measures, rule, steps),
        ("folder", str(folder)),
        ("expected", _expected(arms, steps, measures, n_runs, computing)),
    ]
    return lay_out(rows)


def _runs(looks: Looks, n_runs: int) -> str:
    n_seeds = looks.planned[-1]
    if not looks.is_sequential:
        return f"{count(n_runs, 'run')} with {count(n_seeds, 'seed')} each"
    *earlier, _ = looks.planned
    at = ", ".join(map(str, earlier))
    return (
        f"{count(n_runs, 'run')} at most, with {n_seeds} seeds each; an arm stops once it is "
        f"decided, with {at} or {n_seeds} seeds"
    )


def budget_rows(
    arms: Sequence[MatchedArm], measures: Measures, rule: Rule, steps: Sequence[int | None]
) -> list[tuple[str, str]]:
    """Return what a header says of budgets: by how much each arm is planned to exceed another.

    ``steps`` are those of a run of each arm, None where it has none. Of many arms the largest
    differences are told.
    """
    recipes = [arm.loaded.recipe for arm in arms]
    tokens = [
        None if n is None else n * tokens_per_step(recipe)
        for n, recipe in zip(steps, recipes, strict=True)
    ]
    models = [arm_model(arm.loaded, measures) for arm in arms]
    budgets = plan_budgets([arm.arm for arm in arms], recipes, models, tokens, rule)
    compared = [budget for budget in budgets if budget.against is not None]
    if len(compared) > _MOST_ARMS:
        return [("budgets", f"{describe_planned(compared)}: sublayer plan shows each arm")]
    rows: list[tuple[str, str]] = []
    for budget in compared:
        shares = [f"{name} {format_share(each)}" for name, each in budget.planned.shares.items()]
        text = f"{budget.arm}: {', '.join(shares)} against {budget.against}"
        rows.append(("" if rows else "budgets", text))
    return rows


def _arms(names: Sequence[str]) -> str:
    named = ", ".join(names[:_MOST_ARMS])
    left = len(names) - _MOST_ARMS
    return f"{named} and {left} more" if left > 0 else named


def _range(steps: Sequence[int]) -> str:
    if min(steps) == max(steps):
        return count(steps[0], "step")
    return f"{min(steps):,} to {max(steps):,} steps"


def _expected(
    arms: Sequence[MatchedArm],
    steps: Sequence[int],
    measures: Measures,
    n_runs: int,
    computing: Computing,
) -> str:
    if computing.cluster is not None:
        return "known after the first run"  # what is known of this machine is not of its nodes
    place = Place(choose_device(computing.device), World(rank=0, size=1))
    seconds = []
    for arm, n_steps in zip(arms, steps, strict=True):
        resolved = measures.resolve(absolute_paths(arm.loaded.recipe))
        step_s = recall_run_pace(resolved, place)
        if step_s is None:
            return "known after the first run"
        seconds.append(n_steps * step_s)
    total_s = n_runs * sum(seconds) / len(seconds) / min(computing.jobs, n_runs)
    return f"about {format_seconds(total_s)} for all runs, scoring aside"


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
        matched = _settle_chain(folder, study, rule, facts, data, computing, n_seeds)
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
        folder.add_report(kept.n_seeds)
        _keep_baselines(folder.path, kept, runs)
        results = results_of_folder(folder.path, command=command_line(sources, overrides, options))
        report = write_results(folder.path, results)
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


def _keep_baselines(folder: Path, kept: Kept, runs: Runs) -> None:
    """Score the baselines on the tasks of stages that none has been scored on."""
    # What was scored for the same stages is not asked of their data again.
    read = _tasks_read(kept, runs)
    missing = {stage: recipe for stage, recipe in read.items() if stage not in kept.baselines}
    if missing:
        files, cuts = score_baselines(folder, missing)
        found = {"baselines": {**kept.baselines, **files}, "cuts": {**kept.cuts, **cuts}}
        keep_chain(folder, kept.model_copy(update=found))


def _settle_chain(
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
    asked = _asked(study, options)
    folder = find_folder(asked.study, asked.request, options.out)
    folder.check()
    layer_notes = arm_notes(asked.study.arms)
    if len(sources) > 1:
        for difference in asked.study.caveats:
            note(difference)
    computing = Computing(folder.path, jobs=options.jobs, on=options.on, device=options.device)
    facts = StudyFacts(computing.device, is_elsewhere=computing.cluster is not None)
    with folder.held():
        study = replace(
            asked.study, arms=share_tokenizer(asked.study.arms, facts.data, folder.path)
        )
        data = {arm.name: facts.data(arm.loaded.recipe) for arm in study.arms}
        check_held_out(study, data)
        check_pairs(study, data)
        check_windows(study, data)
        matched_arms = _settle(
            folder, study, asked, facts, data, computing, is_announced=options.is_announced
        )
        if not options.is_announced:
            for line in _first_lines(study, asked, folder, matched_arms, facts, data, computing):
                note(line)
        resuming = command_line(sources, overrides, options, out=folder.path)
        texts = list_text_caveats(data, asked.metric, study.scoring, study.against)
        about = About.of(study, layer_notes, texts)
        folder.keep_command(resuming, about, n_runs=asked.n_runs, n_seeds=asked.looks.planned[-1])
        folder.seal(asked.metric.name, extend=options.extend or 0)
        work = ArmWork(
            folder,
            matched_arms,
            data,
            computing.run_all(asked.n_runs, resuming),
            scoring=study.scoring,
            inspecting=study.inspecting,
        )
        seeds = asked.seeds
        looking = Looking(asked.looks, tuple(folder.reported_seeds()), n_tuning=seeds.n_tuning)
        chosen = [NO_TRIAL] * len(matched_arms)
        with closing(computing):
            if len(asked.trials) > 1:
                extensions = options.extend or 0
                chosen = tune_arms(
                    work, folder, asked.trials, seeds, asked.metric, n_extensions=extensions
                )
            runs, n_seeds = run_looks(work, folder.path, study, seeds, chosen, looking)
        folder.add_report(n_seeds)
        n_made = sum(len(each.outcomes) + len(each.losses) * seeds.n_tuning for each in runs)
        folder.keep_command(resuming, about, n_runs=n_made, n_seeds=n_seeds)
        draw_samples(runs, data, device=computing.device)
        results = results_of_folder(folder.path, command=command_line(sources, overrides, options))
        report = write_results(folder.path, results)
    check_compared(results, report)
    return results, report


@dataclass(frozen=True)
class _Asked:
    """A comparison as it is asked for, before any text is read."""

    study: Study
    rule: Rule
    metric: Metric
    """The one that decides."""
    looks: Looks
    tune: tuple[str, ...]
    trials: Sequence[Trial]
    """A single one where nothing is tuned."""
    seeds: Seeds
    n_runs: int
    """At most: where arms stop, or no trial lies beyond the grid, they are fewer."""

    @property
    def n_trial_runs(self) -> int:
        """The runs of each arm that choose its trial."""
        return self.n_runs // len(self.study.arms) - self.looks.planned[-1]

    @property
    def request(self) -> Request:
        """What the folder keeps of it."""
        return Request(
            self.study.arms,
            self.rule,
            self.tune,
            self.study.scoring,
            seeds=self.seeds,
            margin=self.study.question.margin_of(self.study.name, self.metric),
            margin_factor=self.metric.factor,
            looks=self.looks.planned if self.looks.is_sequential else (),
            tune_by=self.study.tune_by,
        )


def _asked(study: Study, options: Options) -> _Asked:
    """Put a study and its command's options together; raise ConfigError where they conflict."""
    as_asked(study, options.tune, options.finetunings, options.data)
    rule = options.match or study.match
    study = with_margin(study, options.margin)
    looks = asked_looks(options, study.n_seeds or DEFAULT_SEEDS)
    check_study(study, looks)
    check_place(options.on, options.jobs, study.arms, rule)
    check_jobs(options.jobs, study.arms, rule)
    tune = options.tune or study.tune
    trials = make_trials(study.arms, tune)
    n_seeds = looks.planned[-1]
    seeds = asked_seeds(options, n_seeds, is_tuned=len(trials) > 1)
    if options.extend:
        check_extensible(trials)
    check_splits(study, n_trials=len(trials))
    metric, *_ = study_metrics(study)
    n_trial_runs = 0
    if len(trials) > 1:
        n_trial_runs = (len(trials) + (options.extend or 0)) * seeds.n_tuning
    n_runs = len(study.arms) * (n_trial_runs + n_seeds)
    return _Asked(study, rule, metric, looks, tune, trials, seeds, n_runs)


def _first_lines(
    study: Study,
    asked: _Asked,
    folder: StudyFolder,
    matched_arms: Sequence[MatchedArm],
    facts: StudyFacts,
    data: Mapping[str, Data],
    computing: Computing,
) -> Iterator[str]:
    """Yield what is said before the first run: budgets, cost, and what the study can find."""
    yield from list_study_header(
        matched_arms,
        data,
        facts.measures(len(study.arms)),
        rule=asked.rule,
        looks=asked.looks,
        n_trials=asked.n_trial_runs,
        n_runs=asked.n_runs,
        computing=computing,
        folder=folder.path,
    )
    yield from foresee(study, asked.metric, asked.looks, folder.path)


def _settle(
    folder: StudyFolder,
    study: Study,
    asked: _Asked,
    facts: StudyFacts,
    data: Mapping[str, Data],
    computing: Computing,
    *,
    is_announced: bool,
) -> list[MatchedArm]:
    """Return what the study settled for its arms when it began, or settle it now."""
    folder.check_inputs(study.arms, data)
    settled = folder.matched_arms(study.arms)
    matched_arms = settled
    if matched_arms is None:
        computing.check_precision(study.arms)
        measures = facts.measures(len(study.arms), is_new=True)
        threads = computing.threads(asked.n_runs)
        matched_arms = match_budgets(study.arms, asked.rule, measures, threads=threads)
    computing.check(matched_arms, data, asked.n_runs, is_announced=is_announced)
    # Nothing is settled by what is refused.
    if settled is None:
        folder.begin(matched_arms, data)
    folder.add_computing(computing.jobs, computing.cluster)
    return matched_arms
