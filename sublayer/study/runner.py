"""A comparison from beginning to end: texts, budgets, header, runs, results."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from sublayer.config.load import LoadedRecipe
from sublayer.config.recipe import Recipe, ResolvedRecipe
from sublayer.config.run_recipe import absolute_paths
from sublayer.config.texts import TOKENIZERS
from sublayer.counts import count
from sublayer.data.prepare import Data
from sublayer.numbers import format_share
from sublayer.objective.families import family_of
from sublayer.objective.metric import Metric
from sublayer.runs.record import lay_out, text_rows
from sublayer.runs.resolution import recall_run_pace, resolve_run
from sublayer.runs.run import measure_step
from sublayer.runs.session import Place
from sublayer.statistics.looks import Looks, fixed
from sublayer.study.arm_runs import ArmWork
from sublayer.study.arms import NO_TRIAL, Arm, Trial, arm_notes, check_extensible, make_trials
from sublayer.study.budget.excess import plan_budgets
from sublayer.study.budget.expected import tokens_per_step
from sublayer.study.budget.match import (
    Measures,
    Rule,
    arm_model,
    arm_steps,
    match_budgets,
)
from sublayer.study.budget.shared_tokenizer import keep_tokenizer, kept_forms, share_tokenizer
from sublayer.study.checks import (
    check_chain,
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
from sublayer.study.collect import keep_baselines
from sublayer.study.columns import has_items, study_metrics
from sublayer.study.definition import DEFAULT_SEEDS, Overrides, Study, is_run, load_asked
from sublayer.study.finished_runs import compare_runs
from sublayer.study.folder import StudyFolder, find_folder
from sublayer.study.jobs.computing import Computing
from sublayer.study.jobs.options import check_jobs, check_place
from sublayer.study.jobs.run import SharedData
from sublayer.study.notes import describe_planned, list_text_caveats
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
from sublayer.study.results import Results
from sublayer.study.samples import draw_samples
from sublayer.study.stage_recipes import (
    StageRecipes,
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
from sublayer.system.stages import note, stage
from sublayer.training.processes.world import World


def run_study(
    sources: Sequence[str], overrides: Overrides, options: Options
) -> tuple[Results, Path]:
    """Run a study, or its missing runs, and return its results and its folder.

    Runs that exist, two or more, are compared as they are. Runs that fail are part of the results.
    Raises ConfigError and DataError before anything is trained, and Interrupted in between.
    """
    if len(sources) > 1 and any(map(is_run, sources)):
        check_runs(sources, overrides, options)
        return compare_runs([Path(source) for source in sources], options.out, options.device)
    study = load_asked(sources, overrides, vary_texts=options.vary, scale=options.scale)
    plan = _plan(study, options)
    folder = find_folder(plan.study, plan.request, options.out)
    folder.check()
    if len(sources) > 1:
        for difference in plan.study.caveats:
            note(difference)
    runner = _Runner(
        plan, folder, options, command_line(sources, overrides, options, out=folder.path)
    )
    with folder.held():
        runner.train()
        results = results_of_folder(folder.path, command=command_line(sources, overrides, options))
    return results, folder.path


@dataclass(frozen=True)
class _Plan:
    """A comparison as it is asked for, before any text is read."""

    study: Study
    rule: Rule
    metric: Metric | None
    """The metric that decides; None with stages, whose columns are known later."""
    looks: Looks
    tune: tuple[str, ...]
    trials: Sequence[Trial]
    """A single one where nothing is tuned."""
    seeds: Seeds
    n_runs: int
    """The most runs of arms' own recipes: where arms stop, or no trial lies beyond the grid, they
    are fewer."""

    @property
    def n_trial_runs(self) -> int:
        """The runs of each arm that choose its trial."""
        return self.n_runs // len(self.study.arms) - self.looks.planned[-1]

    @property
    def request(self) -> Request:
        """The part that identifies the study in its folder."""
        margin, factor = None, 1.0
        if self.metric is not None:
            margin = self.study.question.margin_of(self.study.name, self.metric)
            factor = self.metric.factor
        return Request(
            self.study.arms,
            self.rule,
            self.tune,
            self.study.scoring,
            self.study.chain,
            seeds=self.seeds,
            margin=margin,
            margin_factor=factor,
            looks=self.looks.planned if self.looks.is_sequential else (),
            tune_by=self.study.tune_by,
        )


def _plan(study: Study, options: Options) -> _Plan:
    """Put a study and its command's options together; raise ConfigError where they conflict."""
    study = as_asked(study, options.tune, options.finetunings, options.data)
    has_stages = study.chain is not None
    if has_stages:
        check_options(options)
    rule = options.match or study.match
    study = with_margin(study, options.margin)
    looks = asked_looks(options, study.n_seeds or DEFAULT_SEEDS)
    n_seeds = looks.planned[-1]
    if has_stages:
        check_chain(study, n_seeds)
    else:
        check_study(study, looks)
    check_place(options.on, options.jobs, study.arms, rule)
    check_jobs(options.jobs, study.arms, rule)
    # With stages it is the tasks that are tuned.
    tune = () if has_stages else options.tune or study.tune
    trials = make_trials(study.arms, tune)
    seeds = asked_seeds(options, n_seeds, is_tuned=len(trials) > 1)
    if options.extend:
        check_extensible(trials)
    check_splits(study, n_trials=len(trials))
    metric = None if has_stages else study_metrics(study)[0]
    n_trial_runs = 0
    if len(trials) > 1:
        n_trial_runs = (len(trials) + (options.extend or 0)) * seeds.n_tuning
    n_runs = len(study.arms) * (n_trial_runs + n_seeds)
    return _Plan(study, rule, metric, looks, tune, trials, seeds, n_runs)


class _Runner:
    """Makes the runs of a study, from its texts to the last of them."""

    def __init__(self, plan: _Plan, folder: StudyFolder, options: Options, resuming: str) -> None:
        """Take the plan; ``resuming`` is the command that resumes it."""
        self._plan = plan
        self._study = plan.study
        self._folder = folder
        self._options = options
        self._resuming = resuming
        self._computing = Computing(
            folder.path, jobs=options.jobs, on=options.on, device=options.device
        )
        is_elsewhere = self._computing.cluster is not None
        self._facts = StudyFacts(self._computing.device, is_elsewhere=is_elsewhere)
        self._data: dict[str, Data] = {}

    def train(self) -> None:
        """Make all runs that are missing; raise what ``run_study`` does."""
        if self._study.chain is None:
            arms = share_tokenizer(self._study.arms, self._facts.data, self._folder.path)
            self._study = replace(self._study, arms=arms)
        arms = self._study.arms
        self._data = {arm.name: self._facts.data(arm.loaded.recipe) for arm in arms}
        if self._study.chain is None:
            self._train_arms()
        else:
            self._train_stages(self._study.chain)

    def _train_arms(self) -> None:
        study, plan, folder, data = self._study, self._plan, self._folder, self._data
        assert plan.metric is not None, "a study without stages has its metric"
        check_held_out(study, data)
        check_pairs(study, data)
        check_windows(study, data)
        arms = self._settled(plan.n_runs)
        is_announced = self._options.is_announced
        self._computing.check(arms, data, plan.n_runs, is_announced=is_announced)
        if not is_announced:
            measures = self._facts.measures(len(arms))
            lines = list_study_header(
                arms,
                data,
                measures,
                rule=plan.rule,
                looks=plan.looks,
                n_trials=plan.n_trial_runs,
                n_runs=plan.n_runs,
                computing=self._computing,
                folder=folder.path,
            )
            for line in (*lines, *foresee(study, plan.metric, plan.looks, folder.path)):
                note(line)
        texts = list_text_caveats(data, plan.metric, study.scoring, study.against)
        about = About.of(study, arm_notes(plan.study.arms), texts)
        self._begin(arms, about, n_runs=plan.n_runs, n_seeds=plan.looks.planned[-1])
        extensions = self._options.extend or 0
        folder.seal(plan.metric.name, extend=extensions)
        run_all = self._computing.run_all(plan.n_runs, self._resuming)
        inspecting = study.inspecting
        work = ArmWork(folder, arms, data, run_all, scoring=study.scoring, inspecting=inspecting)
        seeds = plan.seeds
        looking = Looking(plan.looks, tuple(folder.reported_seeds()), n_tuning=seeds.n_tuning)
        chosen = [NO_TRIAL] * len(arms)
        with closing(self._computing):
            if len(plan.trials) > 1:
                chosen = work.tune(plan.trials, seeds, plan.metric, n_extensions=extensions)
            runs, n_seeds = run_looks(work, folder.path, study, seeds, chosen, looking)
        folder.add_report(n_seeds)
        n_made = sum(
            len(stage_runs.outcomes) + len(stage_runs.losses) * seeds.n_tuning
            for stage_runs in runs.values()
        )
        folder.keep_command(self._resuming, about, n_runs=n_made, n_seeds=n_seeds)
        draw_samples(study.arms, runs, data, device=self._computing.device)

    def _train_stages(self, chain: Chain) -> None:
        study, plan, folder, data = self._study, self._plan, self._folder, self._data
        n_seeds = plan.looks.planned[-1]
        is_new = not folder.is_begun()
        arms = self._settled(max(self._computing.jobs, plan.n_runs))
        if is_new and self._computing.cluster is None:
            self._computing.check(arms, data, len(arms))
        recipes_of_arms = {arm.name: arm.loaded for arm in arms}
        tokenizers = _kept_tokenizers(chain, arms, data, folder.path)
        with StageRecipes(study.name, chain, recipes_of_arms, tokenizers) as recipes:
            measures = self._facts.measures(len(arms))
            kept = describe_chain(recipes, arms, data, measures, n_seeds=n_seeds)
            check_same_stages(folder.path, kept, recipes)
            columns, primary = find_columns(study, kept)  # refused before anything is trained
            check_question(study, columns, primary)
            margin = study.question.margin_of(study.name, primary.metric)
            folder.state_margin(margin, primary.metric.factor)
            check_disk(recipes, arms, data, kept, folder.path, self._options.jobs)
            planned = planned_recipes(recipes, arms, data, kept).values()
            n_runs = sum(kept.n_runs.values())
            self._computing.check_recipes([each for stage in planned for each in stage], n_runs)
            steps = [arm.steps or None for arm in kept.arms]
            budgets = budget_rows(arms, measures, plan.rule, steps)
            looks = fixed(n_compared(chain, n_seeds))
            expected = foresee(study, primary.metric, looks, has_items=has_items(chain, primary))
            header = list_stages_header(study, kept, budgets, self._computing, folder.path)
            for line in (*header, *expected):
                note(line)
            about = About.of(study, arm_notes(study.arms), ())
            self._begin(arms, about, n_runs=n_runs, n_seeds=n_seeds)
            kept = with_baselines_of(folder.path, kept)
            keep_chain(folder.path, kept)
            primary_name = study.metric or primary.metric.name
            folder.seal(primary_name, stage_texts=kept.stage_texts)
            run_all = self._computing.run_all(n_runs, self._resuming)
            with closing(self._computing):
                runs = ChainRuns(
                    kept,
                    arms,
                    recipes,
                    data,
                    folder.path,
                    run_all,
                    scoring=study.scoring,
                    plan=folder.last_seal(),
                ).work()
        folder.add_report(n_seeds)
        keep_baselines(folder.path, kept, runs)

    def _settled(self, n_runs: int) -> list[Arm]:
        """Return the settings of arms when the study began, or settle them now."""
        arms = self._study.arms
        self._folder.check_inputs(arms, self._data)
        settled = self._folder.matched_arms(arms)
        if settled is not None:
            return settled
        self._computing.check_precision(arms)
        measures = self._facts.measures(len(arms), is_new=True)
        threads = self._computing.threads(n_runs)
        return match_budgets(arms, self._plan.rule, measures, threads=threads)

    def _begin(self, arms: Sequence[Arm], about: About, *, n_runs: int, n_seeds: int) -> None:
        """Write the study into its folder, once nothing is refused."""
        if not self._folder.is_begun():
            self._folder.begin(arms, self._data)
        self._folder.add_computing(self._computing.jobs, self._computing.cluster)
        self._folder.keep_command(self._resuming, about, n_runs=n_runs, n_seeds=n_seeds)


def _kept_tokenizers(
    chain: Chain, arms: Sequence[Arm], data: Mapping[str, Data], folder: Path
) -> dict[str, str]:
    """Keep the tokenizers of arms that are not pre-trained, and return their files by arm."""
    tokenizers = {}
    for arm in arms:
        name = arm.name
        kind = arm.loaded.recipe.data.tokenizer
        if not chain.of(name).pretrains and kind in TOKENIZERS and kind != "bytes":
            kept = keep_tokenizer(folder.absolute(), *kept_forms(data[name].tokenizer))
            tokenizers[name] = str(kept)
    return tokenizers


_MEASURE_SECONDS = 30.0
"""For the steps of all arms together, each timed twice, where they are matched by time."""
_OLDEST_PACE_S = 600.0
"""Of an earlier pace that a new study takes over."""


class StudyFacts:
    """The texts and measurements of a study, each read or taken once."""

    def __init__(self, device: str | None, *, is_elsewhere: bool = False) -> None:
        """Measure on a device of this machine; runs may be made ``is_elsewhere``."""
        self._device = device
        self._is_elsewhere = is_elsewhere
        self._data = SharedData(most=None)
        self._resolved: dict[str, ResolvedRecipe] = {}

    def data(self, recipe: Recipe) -> Data:
        """Prepare the data of a recipe, or return those that were prepared before.

        Raises ConfigError and DataError as ``prepare_data`` does.
        """
        return self._data.of(recipe)

    def measures(self, n_arms: int, *, is_new: bool = False) -> Measures:
        """Return how the budgets of ``n_arms`` arms are measured.

        A study that ``is_new`` takes over no pace of more than ten minutes ago. Nothing is measured
        before it is asked for. Raises ConfigError for an unknown device.
        """
        chosen = choose_device(self._device)
        place = Place(chosen, World(rank=0, size=1), trains=not self._is_elsewhere)

        def step_s(loaded: LoadedRecipe) -> float:
            data = self.data(loaded.recipe)
            budget_s = _MEASURE_SECONDS / (2 * n_arms)
            with stage(f"measuring a step of {loaded.name}"):
                return measure_step(loaded, data, budget_s, self._device)

        def vocab_size(recipe: Recipe) -> int:
            return self.data(recipe).tokenizer.vocab_size

        def train_tokens(recipe: Recipe) -> int:
            family = family_of(recipe.objective)
            return family.epoch_tokens(recipe, self.data(recipe).train)

        def resolve_once(recipe: Recipe) -> ResolvedRecipe:
            key = recipe.model_dump_json()
            if key in self._resolved:
                return self._resolved[key]
            # Nothing checks a study's length later, so no pace of another day will do.
            oldest_s = _OLDEST_PACE_S if is_new else math.inf
            data = self.data(recipe)
            resolved = resolve_run(recipe, data, place, oldest_s=oldest_s, say=note)
            self._resolved[key] = resolved.recipe
            return resolved.recipe

        return Measures(vocab_size, train_tokens, resolve_once, step_s)


_MOST_ARMS = 6


def list_study_header(
    arms: Sequence[Arm],
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
        ("arms", _arms([arm.name for arm in arms])),
        ("runs", f"{_runs(looks, n_runs)}{tuned}{computing.where}"),
        ("matched by", "nothing" if rule == "none" else rule),
        *text_rows(recipe, data[baseline.name]),
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
    arms: Sequence[Arm], measures: Measures, rule: Rule, steps: Sequence[int | None]
) -> list[tuple[str, str]]:
    """Return the rows of a header on budgets: the planned excess of each arm over another.

    ``steps`` are those of a run of each arm, None where it has none. Of many arms the largest
    differences are told.
    """
    recipes = [arm.loaded.recipe for arm in arms]
    tokens = [
        None if n is None else n * tokens_per_step(recipe)
        for n, recipe in zip(steps, recipes, strict=True)
    ]
    models = [arm_model(arm.loaded, measures) for arm in arms]
    budgets = plan_budgets(arms, recipes, models, tokens, rule)
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
    arms: Sequence[Arm],
    steps: Sequence[int],
    measures: Measures,
    n_runs: int,
    computing: Computing,
) -> str:
    if computing.cluster is not None:
        return "known after the first run"  # the pace of this machine is not that of its nodes
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


def list_stages_header(
    study: Study,
    kept: Kept,
    budgets: Sequence[tuple[str, str]],
    computing: Computing,
    folder: Path,
) -> Iterator[str]:
    """Yield the lines of the header of a study with stages."""
    chain, total = kept.chain, kept.n_runs
    names = ", ".join(arm.name for arm in study.arms)
    yield f"arms        {names}"
    for name, n_runs in total.items():
        if not n_runs:
            continue
        n_distinct = len(kept.stage_keys.distinct(name))
        shared = ""
        if n_distinct < len(study.arms):
            shared = f", {n_distinct} for {count(len(study.arms), 'arm')}"
        yield f"{name:<11} {count(n_runs, 'run')}{shared}{_after(chain, name)}"
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
