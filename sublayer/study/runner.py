"""A comparison from beginning to end: refusals, texts, budgets, header, runs, results."""

import itertools
import math
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from sublayer.config.data import NO_TEST, TOKENIZERS
from sublayer.config.load import LoadedRecipe, absolute_paths
from sublayer.config.messages import check_choice
from sublayer.config.recipe import Recipe, ResolvedRecipe
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError, DataError, check_rules
from sublayer.evaluation.items import Metric
from sublayer.numbers import count, format_share
from sublayer.objective.base import family_of
from sublayer.runs.folder import check_start
from sublayer.runs.run import lay_out, measure_step, text_rows
from sublayer.runs.session import Place, recall_run_pace, resolve_run
from sublayer.statistics.looks import fixed
from sublayer.study.arms import PRETRAINING, Arm, Chain, arm_notes
from sublayer.study.budget import ORIGIN, Measures, Rule, match_budgets, plan_budgets, run_disk
from sublayer.study.collect import keep_baselines, list_text_caveats, results_of_folder
from sublayer.study.columns import list_columns, metric_columns, primary_column, study_metrics
from sublayer.study.comparisons import describe_excesses
from sublayer.study.definition import (
    OptionedStudy,
    Options,
    Overrides,
    Study,
    asked_study,
)
from sublayer.study.evidence import StudyJudge, foresee, has_items
from sublayer.study.finished import compare_runs
from sublayer.study.folder import find_folder, keep_tokenizer, share_tokenizer
from sublayer.study.inspection import draw_samples, sample_of
from sublayer.study.jobs.computing import Computing
from sublayer.study.jobs.run import SharedData
from sublayer.study.plan_file import About, Request, read_plan
from sublayer.study.results import Results
from sublayer.study.runs import RunFinder, RunMaker, finder_of_chain, finder_of_plan, has_ended
from sublayer.study.stage_recipes import (
    ChainPlan,
    StageRecipes,
)
from sublayer.study.study_file import DEVIATION
from sublayer.system.machine import choose_device, format_bytes
from sublayer.system.processes import n_launched
from sublayer.system.terminal import format_seconds, note, stage
from sublayer.tasks.registry import TASKS, locate_files
from sublayer.training.world import World


def check_study(study: Study, *, n_trials: int = 1) -> None:
    """Raise ConfigError for a study without a valid comparison, before a text is read.

    Raises DataError if ``--data`` lacks the files of a task. ``n_trials`` tune each arm.
    """
    arms, chain = [arm.name for arm in study.arms], study.chain
    seeds = "0 to N - 1, with --seeds N" + (", or from --first-seed on" if chain is None else "")
    if chain is None:
        metric, *others = study_metrics(study)
        names = [metric.name, *(other.name for other in others)]
        for title, scores in study.published.items():
            check_choice(f"{study.name}: published: ", "arm", title, arms)
            deviations = [f"{name}:{DEVIATION}" for name in names if name in scores]
            for name in scores:
                where = f"{study.name}: published of {title}: "
                check_choice(where, "metric", name, names + deviations)
        check_question(study, metric, names[1:])
        for arm in study.arms:
            patience = arm.loaded.recipe.train.patience
            check_rules(
                f"arm {arm.name}",
                (
                    patience is not None and study.match != "none",
                    f"train.patience = {patience} stops runs at different steps, and budgets are "
                    f"matched by {study.match}: leave it out, or give --match none",
                ),
            )
    check_rules(
        "",
        (
            len(arms) < 2,
            f"{study.name} alone has nothing to be compared with: vary a field, as in --vary "
            "model.ffn=gelu,swiglu, or name further recipes, or several finished runs",
        ),
        (n_launched() > 1, "compare runs in a single process: start it without torchrun"),
        (
            study.arms[0].loaded.origins.get("train.seed") == "command line",
            f"train.seed has no effect on a comparison: its seeds are {seeds}",
        ),
    )
    for arm in study.arms:
        check_start(arm.loaded, "compare")
        data, split = arm.loaded.recipe.data, study.scoring.split
        uses = [("the study, which is scored on it,", split), ("--tune", "valid")]
        for use, needed in uses if n_trials > 1 else uses[:1]:
            check_rules(
                f"{use} needs a {needed} split",
                (
                    not data.holds_out(needed),
                    f"data.split = {data.split} has none: give one such as 98/1/1",
                ),
            )
    if chain is None:
        return
    for spec in chain.stages:
        try:
            for task in spec.tasks if chain.data is not None else ():
                locate_files(TASKS[task], chain.data)
        except DataError as error:
            raise DataError(f"stage {spec.name}: {error}") from None
        for name in arms:
            settings = chain.settings_of(name, spec)
            check_rules(
                f"{study.name}: stage {spec.name}",
                *((key in settings, f"it sets {key}: {why}") for key, why in _OF_RUNS.items()),
            )


_OF_RUNS = {
    "train.seed": "all arms share the same seeds; give their number with --seeds and --finetunings",
    "train.minutes": "its runs would differ in length; give train.epochs or train.steps",
    "init.run": "a stage starts from the stage before it; leave it out",
}
"""Settings that no stage may have, and the reasons."""


def check_question(study: Study, metric: Metric, others: Sequence[str]) -> None:
    """Raise ConfigError for a margin or spread in another unit, or verdicts on unknown metrics.

    ``others`` are the names of metrics or columns besides the deciding one.
    """
    study.question.amount("margin", study.name, metric)
    study.question.amount("spread", study.name, metric)
    for name in study.question.also:
        check_choice(f"{study.name}: also: ", "further metric", name, others)


_MOST_ARMS = 6
Rows = list[tuple[str, str]]
"""Row labels and texts of a header."""


def list_header(
    optioned: OptionedStudy,
    arms: Sequence[Arm],
    data: Mapping[str, Data],
    measures: Measures,
    computing: Computing,
    folder: Path,
    *,
    n_runs: int,
) -> list[str]:
    """Return the lines of the header of a plain study.

    ``arms`` are settled, ``data`` is each arm's by name, ``n_runs`` is the most of all runs.
    """
    rule, looks, n_tuning = optioned.study.match, optioned.looks, optioned.n_tuning
    baseline = arms[0]
    train = baseline.loaded.recipe.train
    steps = list(map(measures.steps, arms))
    names = ", ".join(arm.name for arm in arms[:_MOST_ARMS])
    if len(arms) > _MOST_ARMS:
        names += f" and {len(arms) - _MOST_ARMS} more"
    *earlier, n_seeds = looks.planned
    n_arms = count(len(arms), "arm")
    runs = f"{count(n_runs, 'run')}: {n_arms} with {count(n_seeds, 'seed')} each"
    if looks.is_sequential:
        runs = (
            f"{count(n_runs, 'run')} at most: {n_arms} with {n_seeds} seeds each; an arm stops "
            f"once it is decided, with {', '.join(map(str, earlier))} or {n_seeds} seeds"
        )
    if n_tuning:
        runs += f", {count(n_tuning, 'run')} of each arm to tune, with other seeds"
    device = f"{computing.runs_device}, {train.precision}"
    if train.threads is not None:
        device += f", {count(train.threads, 'thread')}"
    length = count(steps[0], "step")
    if min(steps) < max(steps):
        length = f"{min(steps):,} to {max(steps):,} steps"
    placement = Place(choose_device(computing.device), World(rank=0, size=1))
    expected, total_s = "known after the first run", 0.0
    for arm, n_steps in zip(arms, steps, strict=True):
        step_s = recall_run_pace(measures.resolve(absolute_paths(arm.loaded.recipe)), placement)
        # This machine's pace differs from a cluster node's.
        if step_s is None or computing.cluster is not None:
            break
        total_s += n_runs * n_steps * step_s / len(arms) / min(computing.jobs, n_runs)
    else:
        expected = f"about {format_seconds(total_s)} for all runs, scoring aside"
    rows = [
        ("arms", names),
        ("runs", f"{runs}{computing.where}"),
        ("matched by", _matched_by(optioned.study)),
        *text_rows(baseline.loaded.recipe, data[baseline.name]),
        ("device", device),
        ("length", f"{length} a run"),
        *_budgets(arms, measures, rule, steps),
        ("folder", str(folder)),
        ("expected", expected),
    ]
    return lay_out(rows)


def _matched_by(study: Study) -> str:
    text = "nothing" if study.match == "none" else study.match
    multiple = study.match_multiple
    return text if multiple == 1 else f"{text}, in widths that are multiples of {multiple}"


def list_stages_header(
    arms: Sequence[Arm],
    measures: Measures,
    rule: Rule,
    chain_plan: ChainPlan,
    computing: Computing,
    folder: Path,
) -> list[str]:
    """Return the lines of the header of a study with stages."""
    chain = chain_plan.chain
    rows = [("arms", ", ".join(arm.name for arm in arms))]
    for name, n_runs in chain_plan.n_runs.items():
        n_distinct, text = chain_plan.n_distinct(name), count(n_runs, "run")
        if n_distinct < len(arms):
            text += f", {n_distinct} for {count(len(arms), 'arm')}"
        if name != PRETRAINING:
            stage = chain.stage(name)
            text += f"{', averages of' if stage.ensemble else ' after'} {stage.start}"
        if n_runs:
            rows.append((name, text))
    rows.append(("runs", f"{sum(chain_plan.n_runs.values()):,} in all{computing.where}"))
    budgets = _budgets(arms, measures, rule, [arm.steps or None for arm in chain_plan.arms])
    rows += [(label, f"{text} (pre-training)") for label, text in budgets]
    rows.append(("seeds", chain.explain_nesting(chain_plan.n_seeds)))
    starts = [f"{name} from {arm.start}" for name, arm in chain.arms.items() if arm.start]
    if starts:
        rows.append(("starts", f"each pre-training from another of its seed: {', '.join(starts)}"))
    return [f"{label:<11} {text}" for label, text in (*rows, ("folder", str(folder)))]


def _budgets(
    arms: Sequence[Arm], measures: Measures, rule: Rule, steps: Sequence[int | None]
) -> Rows:
    """Return the budget rows of a header: the planned excess of each arm over another.

    ``steps`` are per run of each arm, None without any. For many arms, the largest differences.
    """
    budgets = plan_budgets(arms, list(map(measures.model, arms)), steps, rule)
    compared = [budget for budget in budgets if budget.against is not None]
    if len(compared) > _MOST_ARMS:
        largest = describe_excesses([budget.planned for budget in compared])
        text = f"{largest or 'equal to half a percent'}: sublayer plan shows each arm"
        return [("budgets", text)]
    rows: Rows = []
    for budget in compared:
        shares = [f"{name} {format_share(share)}" for name, share in budget.planned.shares.items()]
        text = f"{budget.arm}: {', '.join(shares)} against {budget.against}"
        rows.append(("" if rows else "budgets", text))
    return rows


def run_study(
    sources: Sequence[str],
    overrides: Overrides,
    options: Options,
    asked: OptionedStudy | None = None,
) -> tuple[Results, Path]:
    """Run a study, or its missing runs, and return its results and its folder.

    ``asked`` is the study of these arguments, if it is loaded already. Two or more existing runs
    are compared unchanged. Failed runs are part of the results. Raises ConfigError and DataError
    before any training, and Interrupted during it.
    """
    asked = asked or asked_study(sources, overrides, options)
    if asked is None:
        return compare_runs([Path(source) for source in sources], options.out, options.device)
    runner = _Runner(asked, options, sources, overrides)
    if len(sources) > 1:
        for difference in asked.study.caveats:
            note(difference)
    folder = runner.folder
    with folder.held():
        runner.train()
        results = results_of_folder(folder.path, command=options.command_line(sources, overrides))
    return results, folder.path


class _Runner:
    """Maker of a study's runs, from its texts to the last of them."""

    def __init__(
        self,
        optioned: OptionedStudy,
        options: Options,
        sources: Sequence[str],
        overrides: Overrides,
    ) -> None:
        """Check a study with its command's options, and find its folder.

        Raises ConfigError where it cannot be made, or the folder holds another study.
        """
        self._optioned, study = optioned, optioned.study
        check_study(study, n_trials=len(self._optioned.trials))
        self._study, self._options, self._notes = study, options, arm_notes(study.arms)
        margin, factor = None, 1.0
        if study.chain is None:
            metric, *_ = study_metrics(study)
            margin, factor = study.question.amount("margin", study.name, metric), metric.factor
        request = Request.of(self._optioned, margin=margin, margin_factor=factor)
        self.folder = find_folder(study, request, options.out, resume=options.resume)
        self.folder.check()
        self._path = self.folder.path
        self._resuming = options.command_line(sources, overrides, out=self._path)
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
        optioned, extensions = self._optioned, options.extend or 0
        looks, seeds = optioned.looks, optioned.seeds
        metric, *_ = study_metrics(study)
        for text in data.values():
            if study.scoring.find(text) is None:
                raise ConfigError(f"the text of {' and '.join(text.train.sources)} {NO_TEST}")
        for arm in study.arms:
            split = study.scoring.split_of(data[arm.name])
            if study.metric is not None and not metric.has_items(split):
                raise DataError(f"metric = {metric.name}: {metric.items}")
            if study.inspecting is not None:
                sample_of(arm.loaded.recipe, split, study.inspecting)
        n_runs = len(study.arms) * (optioned.n_tuning + optioned.n_seeds)
        arms = self._settled(facts, data, n_runs)
        computing.check(arms, data, n_runs)
        header = list_header(optioned, arms, data, facts, computing, self._path, n_runs=n_runs)
        for line in (*header, *foresee(study, metric, looks, self._path)):
            note(line)
        texts = list_text_caveats(data, metric, study.scoring, study.against)
        about = self._begin(arms, data, texts, n_runs)
        folder.seal(metric.name, extend=extensions)
        finder = finder_of_plan(self._path, read_plan(self._path))
        work = self._maker(arms, data, finder, n_runs)
        if optioned.n_tuning:
            work.tune(optioned.trials, n_extensions=extensions)
        continuing: set[str] | None = None
        n_before = 0
        for look in looks.planned:  # with arms that are undecided so far
            work.run(seeds.compared(look)[n_before:], continuing)
            plan = read_plan(self._path)
            finder = finder_of_plan(self._path, plan)
            finder.seeds = seeds.compared(look)
            runs, taken = finder.gathered(), tuple(plan.reported_seeds)
            if look == looks.planned[-1]:
                break
            columns, n_tuning = metric_columns(study), seeds.n_tuning
            judge = StudyJudge(study, columns, runs, look, looks, taken, n_tuning=n_tuning)
            continuing = judge.undecided()
            if not continuing:
                break
            note(
                f"after {look} seeds, undecided arms get more runs: {', '.join(sorted(continuing))}"
            )
            n_before = look
        folder.add("reported_seeds", look)
        n_made = sum(
            sum(has_ended(run) for _, run in group.seeded()) + len(group.losses) * seeds.n_tuning
            for group in runs.values()
        )
        folder.keep_command(self._resuming, about, n_runs=n_made, n_seeds=look)
        folders = {
            arm: [run.path for _, _, run in stage_runs.scored()]
            for (arm, _), stage_runs in runs.items()
        }
        draw_samples(study.arms, folders, data, device=computing.device)

    def _train_stages(
        self, chain: Chain, facts: "StudyFacts", data: Mapping[str, Data], scratch: Path
    ) -> None:
        study, folder, computing = self._study, self.folder, self._computing
        n_seeds, is_new = self._optioned.n_seeds, not folder.is_begun()
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
        chain_plan = recipes.describe_chain(arms, data, facts, n_seeds=n_seeds)
        chain_plan = chain_plan.beside_earlier(self._path, recipes)
        # Refused before any training.
        columns = list_columns(study.name, chain_plan.chain, chain_plan.parts, chain_plan.kinds)
        primary = primary_column(study.name, columns, study.metric)
        others = [column.name for column in columns if column is not primary]
        check_question(study, primary.metric, others)
        margin = study.question.amount("margin", study.name, primary.metric)
        folder.state_margin(margin, primary.metric.factor)
        # The arms' recipes of each training stage, with their vocabulary sizes and settled threads.
        planned: dict[str, list[tuple[Recipe, int]]] = {}
        for name, arm in itertools.product(chain_plan.n_runs, arms):
            # An ensemble keeps only scores.
            if name in chain_plan.keys[arm.name] and not chain.stage(name).ensemble:
                threads = {"train.threads": arm.loaded.recipe.train.threads}
                recipe = recipes.planned(arm.name, name).vary(threads, origin=ORIGIN).recipe
                size = data[arm.name].tokenizer.vocab_size
                planned.setdefault(name, []).append((recipe, size))
        n_runs = sum(chain_plan.n_runs.values())
        # Runs in parallel also have checkpoints. Files of the same runs are not counted twice.
        n_parallel, largest = min(self._options.jobs, n_runs), 0
        needed = 0
        for name, sized_recipes in planned.items():
            disks = [run_disk(*sized) for sized in sized_recipes]
            largest = max(largest, *(peak for peak, _ in disks))
            needed += chain_plan.n_runs[name] * max(scored for _, scored in disks)
        needed += n_parallel * largest
        for run in set(chain_plan.folders(self._path).values()):
            needed -= sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
        free = shutil.disk_usage(self._path).free
        if needed > free:
            raise ConfigError(
                f"the models of all runs take {format_bytes(needed)} of disk, and only "
                f"{format_bytes(free)} is free: give another --out, or fewer --seeds or "
                "--finetunings"
            )
        computing.check_recipes([sized for stage in planned.values() for sized in stage], n_runs)
        looks = fixed(chain.n_compared(n_seeds))
        expected = foresee(study, primary.metric, looks, has_items=has_items(chain, primary))
        header = list_stages_header(
            arms, facts, self._study.match, chain_plan, computing, self._path
        )
        for line in (*header, *expected):
            note(line)
        self._begin(arms, data, (), n_runs)
        chain_plan.keep(self._path)
        folder.seal(study.metric or primary.metric.name, stage_texts=chain_plan.stage_texts)
        work = self._maker(arms, data, finder_of_chain(self._path, chain_plan), n_runs, recipes)
        runs = work.run_stages()
        folder.add("reported_seeds", n_seeds)
        keep_baselines(self._path, chain_plan, runs)

    def _settled(self, facts: "StudyFacts", data: Mapping[str, Data], n_runs: int) -> list[Arm]:
        """Return the settings of arms from the study's start, or settle them now."""
        arms, computing = self._study.arms, self._computing
        self.folder.check_inputs(arms, data)
        settled = self.folder.matched_arms(arms)
        if settled is not None:
            return settled
        computing.check_precision(arms)
        return match_budgets(
            arms,
            self._study.match,
            facts,
            multiple=self._study.match_multiple,
            threads=computing.threads(n_runs),
        )

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
        self.folder.keep_command(
            self._resuming, about, n_runs=n_runs, n_seeds=self._optioned.n_seeds
        )
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


class StudyFacts(Measures):
    """Texts and measurements of a study, each read or taken once."""

    def __init__(self, device: str | None, *, is_elsewhere: bool = False) -> None:
        """Measure on a device of this machine; with ``is_elsewhere``, runs are made on others.

        Raises ConfigError for an unknown device.
        """
        self._device = device
        world = World(rank=0, size=1)
        self._placement = Place(choose_device(device), world, trains=not is_elsewhere)
        self._data = SharedData(most=None)
        self._resolved: dict[str, ResolvedRecipe] = {}

    def data(self, recipe: Recipe) -> Data:
        """Return the data of a recipe, prepared once.

        Raises ConfigError and DataError as ``prepare_data`` does.
        """
        return self._data.of(recipe)

    def vocab_size(self, recipe: Recipe) -> int:
        """Return the vocabulary size of a recipe's tokenizer."""
        return self.data(recipe).tokenizer.vocab_size

    def train_tokens(self, recipe: Recipe) -> int:
        """Count the tokens per epoch of a recipe's train split."""
        return family_of(recipe.objective).epoch_tokens(recipe, self.data(recipe).train)

    def resolve(self, recipe: Recipe, *, is_new: bool = False) -> ResolvedRecipe:
        """Resolve a recipe once; a study that ``is_new`` reuses no pace older than ten minutes."""
        key = recipe.model_dump_json()
        if key not in self._resolved:
            # A study's length is not checked later, so an old pace will not do.
            oldest_s = _OLDEST_PACE_S if is_new else math.inf
            data = self.data(recipe)
            self._resolved[key], _ = resolve_run(
                recipe, data, self._placement, oldest_s=oldest_s, say=note
            )
        return self._resolved[key]

    def step_s(self, loaded: LoadedRecipe, n_arms: int) -> float:
        """Measure the seconds of an optimizer step in its share of half a minute."""
        data = self.data(loaded.recipe)
        budget_s = _MEASURE_SECONDS / (2 * n_arms)
        with stage(f"measuring a step of {loaded.name}"):
            return measure_step(loaded, data, budget_s, self._device)
