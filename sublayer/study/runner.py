"""A comparison from beginning to end: texts, budgets, header, runs, results."""

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from sublayer.config.data import TOKENIZERS
from sublayer.config.load import LoadedRecipe
from sublayer.config.recipe import Recipe, ResolvedRecipe
from sublayer.data.prepare import Data
from sublayer.objective.families import family_of
from sublayer.runs.resolution import resolve_run
from sublayer.runs.run import measure_step
from sublayer.runs.session import Place
from sublayer.statistics.looks import fixed
from sublayer.study.arms import Arm, arm_notes
from sublayer.study.budget.match import Measures, match_budgets
from sublayer.study.chain_file import beside_earlier, describe_chain, keep_chain
from sublayer.study.checks import (
    check_disk,
    check_question,
    check_runs,
    check_study,
    check_texts,
    planned_recipes,
)
from sublayer.study.collect import keep_baselines
from sublayer.study.columns import list_columns, primary_column, study_metrics
from sublayer.study.definition import Overrides, Study, is_run, load_asked
from sublayer.study.evidence import has_items
from sublayer.study.finished import compare_runs
from sublayer.study.folder import find_folder, keep_tokenizer, share_tokenizer
from sublayer.study.header import list_header, list_stages_header
from sublayer.study.jobs.computing import Computing
from sublayer.study.jobs.run import SharedData
from sublayer.study.notes import list_text_caveats
from sublayer.study.options import Options, ask, command_line
from sublayer.study.plan_file import About, Request, read_plan
from sublayer.study.read_results import results_of_folder
from sublayer.study.results import Results
from sublayer.study.runs import RunFinder, RunMaker, finder_of_plan, has_ended
from sublayer.study.samples import draw_samples
from sublayer.study.stage_recipes import StageRecipes
from sublayer.study.stages import Chain, n_compared
from sublayer.study.verdicts import foresee, run_looks
from sublayer.system.machine import choose_device
from sublayer.system.stages import note, stage
from sublayer.training.world import World


def run_study(
    sources: Sequence[str], overrides: Overrides, options: Options
) -> tuple[Results, Path]:
    """Run a study, or its missing runs, and return its results and its folder.

    Two or more existing runs are compared as they are. Failed runs are part of the results. Raises
    ConfigError and DataError before any training, and Interrupted during it.
    """
    if len(sources) > 1 and any(map(is_run, sources)):
        check_runs(sources, overrides, options)
        return compare_runs([Path(source) for source in sources], options.out, options.device)
    study = load_asked(sources, overrides, vary_texts=options.vary, scale=options.scale)
    runner = _Runner(study, options, sources, overrides)
    if len(sources) > 1:
        for difference in study.caveats:
            note(difference)
    folder = runner.folder
    with folder.held():
        runner.train()
        results = results_of_folder(folder.path, command=command_line(sources, overrides, options))
    return results, folder.path


class _Runner:
    """Maker of a study's runs, from its texts to the last of them."""

    def __init__(
        self, study: Study, options: Options, sources: Sequence[str], overrides: Overrides
    ) -> None:
        """Combine a study and its command's options, and find its folder.

        Raises ConfigError if they conflict, or the folder holds another study.
        """
        self._asked = ask(study, options)
        study = self._asked.study
        check_study(study, n_trials=len(self._asked.trials))
        self._study, self._options, self._notes = study, options, arm_notes(study.arms)
        margin, factor = None, 1.0
        if study.chain is None:
            metric, *_ = study_metrics(study)
            margin, factor = study.question.margin_of(study.name, metric), metric.factor
        request = Request.of(self._asked, margin=margin, margin_factor=factor)
        self.folder = find_folder(study, request, options.out, resume=options.resume)
        self.folder.check()
        self._path = self.folder.path
        self._resuming = command_line(sources, overrides, options, out=self._path)
        self._computing = Computing(
            self._path, jobs=options.jobs, on=options.on, device=options.device
        )

    def train(self) -> None:
        """Make all missing runs; raise as ``run_study`` does."""
        is_elsewhere = self._computing.cluster is not None
        facts = StudyFacts(self._computing.device, is_elsewhere=is_elsewhere)
        if self._study.chain is None:
            arms = share_tokenizer(self._study.arms, facts.data, self._path)
            self._study = replace(self._study, arms=arms)
        data = {arm.name: facts.data(arm.loaded.recipe) for arm in self._study.arms}
        with closing(self._computing):
            if self._study.chain is None:
                self._train_arms(facts, data)
            else:
                with TemporaryDirectory(prefix="sublayer-chain-") as scratch:
                    self._train_stages(self._study.chain, facts, data, Path(scratch))

    def _train_arms(self, facts: "StudyFacts", data: Mapping[str, Data]) -> None:
        study, folder, options, computing = self._study, self.folder, self._options, self._computing
        asked, extensions = self._asked, options.extend or 0
        looks, seeds = asked.looks, asked.seeds
        metric, *_ = study_metrics(study)
        check_texts(study, data)
        n_runs = len(study.arms) * (asked.n_tuning + asked.n_seeds)
        arms = self._settled(facts, data, n_runs)
        computing.check(arms, data, n_runs)
        measures = facts.measures(len(arms))
        header = list_header(asked, arms, data, measures, computing, self._path, n_runs=n_runs)
        for line in (*header, *foresee(study, metric, looks, self._path)):
            note(line)
        texts = list_text_caveats(data, metric, study.scoring, study.against)
        about = self._begin(arms, data, texts, n_runs)
        folder.seal(metric.name, extend=extensions)
        finder = finder_of_plan(self._path, read_plan(self._path))
        work = self._maker(arms, data, finder, n_runs)
        if asked.n_tuning:
            work.tune(asked.trials, n_extensions=extensions)
        runs, n_seeds = run_looks(work, self._path, study, seeds, looks)
        folder.add("reported_seeds", n_seeds)
        n_made = sum(
            sum(has_ended(run) for _, run in group.seeded()) + len(group.losses) * seeds.n_tuning
            for group in runs.values()
        )
        folder.keep_command(self._resuming, about, n_runs=n_made, n_seeds=n_seeds)
        draw_samples(study.arms, runs, data, device=computing.device)

    def _train_stages(
        self, chain: Chain, facts: "StudyFacts", data: Mapping[str, Data], scratch: Path
    ) -> None:
        study, folder, computing = self._study, self.folder, self._computing
        n_seeds, is_new = self._asked.n_seeds, not folder.is_begun()
        arms = self._settled(facts, data, max(computing.jobs, len(study.arms) * n_seeds))
        if is_new and computing.cluster is None:
            computing.check(arms, data, len(arms))
        tokenizers = {}
        for arm in arms:  # kept for arms without pre-training
            kind = arm.loaded.recipe.data.tokenizer
            if not chain.of(arm.name).pretrains and kind in TOKENIZERS and kind != "bytes":
                content = data[arm.name].tokenizer.serialize(is_kept=True)
                tokenizers[arm.name] = str(keep_tokenizer(self._path.absolute(), content))
        loaded = {arm.name: arm.loaded for arm in arms}
        recipes = StageRecipes(study.name, chain, loaded, scratch, tokenizers)
        measures = facts.measures(len(arms))
        kept = describe_chain(recipes, arms, data, measures, n_seeds=n_seeds)
        kept = beside_earlier(self._path, kept, recipes)
        # Refused before any training.
        columns = list_columns(study.name, kept.chain, kept.parts, kept.kinds)
        primary = primary_column(study.name, columns, study.metric)
        others = [column.name for column in columns if column is not primary]
        check_question(study, primary.metric, others)
        margin = study.question.margin_of(study.name, primary.metric)
        folder.state_margin(margin, primary.metric.factor)
        check_disk(recipes, arms, data, kept, self._path, self._options.jobs)
        planned = planned_recipes(recipes, arms, data, kept).values()
        n_runs = sum(kept.n_runs.values())
        computing.check_recipes([recipe for stage in planned for recipe in stage], n_runs)
        looks = fixed(n_compared(chain, n_seeds))
        expected = foresee(study, primary.metric, looks, has_items=has_items(chain, primary))
        header = list_stages_header(arms, measures, self._study.match, kept, computing, self._path)
        for line in (*header, *expected):
            note(line)
        self._begin(arms, data, (), n_runs)
        keep_chain(self._path, kept)
        folder.seal(study.metric or primary.metric.name, stage_texts=kept.stage_texts)
        work = self._maker(arms, data, kept.finder(self._path), n_runs, recipes)
        runs = work.run_stages()
        folder.add("reported_seeds", n_seeds)
        keep_baselines(self._path, kept, runs)

    def _settled(self, facts: "StudyFacts", data: Mapping[str, Data], n_runs: int) -> list[Arm]:
        """Return the settings of arms from the study's start, or settle them now."""
        arms, computing = self._study.arms, self._computing
        self.folder.check_inputs(arms, data)
        settled = self.folder.matched_arms(arms)
        if settled is not None:
            return settled
        computing.check_precision(arms)
        measures = facts.measures(len(arms), is_new=True)
        return match_budgets(arms, self._study.match, measures, threads=computing.threads(n_runs))

    def _begin(
        self, arms: Sequence[Arm], data: Mapping[str, Data], texts: Sequence[str], n_runs: int
    ) -> About:
        """Write the study into its folder after all refusals; ``texts`` are notes on it."""
        about = About.of(self._study, self._notes, texts)
        if not self.folder.is_begun():
            self.folder.begin(arms, data)
        if self._computing.jobs > 1:
            self.folder.add("jobs", self._computing.jobs)
        if self._computing.cluster is not None:
            self.folder.add("clusters", self._computing.cluster)
        self.folder.keep_command(self._resuming, about, n_runs=n_runs, n_seeds=self._asked.n_seeds)
        return about

    def _maker(
        self,
        arms: Sequence[Arm],
        data: Mapping[str, Data],
        finder: RunFinder,
        n_runs: int,
        recipes: StageRecipes | None = None,
    ) -> RunMaker:
        study, run_all = self._study, self._computing.run_all(n_runs, self._resuming)
        inspecting = study.inspecting
        return RunMaker(
            self.folder, arms, data, run_all, finder, recipes, study.scoring, inspecting
        )


_MEASURE_SECONDS = 30.0
"""Seconds for the steps of all arms, each timed twice, if matched by time."""
_OLDEST_PACE_S = 600.0
"""Maximum age, in seconds, of an earlier pace for a new study."""


class StudyFacts:
    """Texts and measurements of a study, each read or taken once."""

    def __init__(self, device: str | None, *, is_elsewhere: bool = False) -> None:
        """Measure on a device of this machine; with ``is_elsewhere``, runs are made on others."""
        self._device = device
        self._is_elsewhere = is_elsewhere
        self._data = SharedData(most=None)
        self._resolved: dict[str, ResolvedRecipe] = {}

    def data(self, recipe: Recipe) -> Data:
        """Return the data of a recipe, prepared once.

        Raises ConfigError and DataError as ``prepare_data`` does.
        """
        return self._data.of(recipe)

    def measures(self, n_arms: int, *, is_new: bool = False) -> Measures:
        """Return the measurements for the budgets of ``n_arms`` arms.

        A study that ``is_new`` reuses no pace older than ten minutes. Nothing is measured before it
        is needed. Raises ConfigError for an unknown device.
        """
        chosen = choose_device(self._device)
        placement = Place(chosen, World(rank=0, size=1), trains=not self._is_elsewhere)

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
            # A study's length is not checked later, so an old pace will not do.
            oldest_s = _OLDEST_PACE_S if is_new else math.inf
            data = self.data(recipe)
            resolved = resolve_run(recipe, data, placement, oldest_s=oldest_s, say=note)
            self._resolved[key] = resolved.recipe
            return resolved.recipe

        return Measures(vocab_size, train_tokens, resolve_once, step_s)
