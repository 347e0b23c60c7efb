"""The runs of a study by arm and stage: their folders, the trials that they chose, and the making.

A study has stages; a plain one has its pre-training alone.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sublayer.config.load import LoadedRecipe, vary
from sublayer.config.recipe import ResolvedModel, ResolvedRecipe
from sublayer.config.run_recipe import recipe_of
from sublayer.config.sources import RUN_RECIPE, layer_of
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.files.parsing import Count, Number, Typed, parse_toml
from sublayer.objective.metric import Metric
from sublayer.runs.folder import RunFolder
from sublayer.study.arms import (
    NO_TRIAL,
    Arm,
    Trial,
    beyond_edges,
    choose_trial,
    planned_trials,
    trial_at,
)
from sublayer.study.budget.match import ORIGIN
from sublayer.study.columns import points_metric
from sublayer.study.folder import StudyFolder, arm_folder
from sublayer.study.inspection import Inspecting
from sublayer.study.jobs.run import Job, Outcome, RunAll, SharedData, read_outcome, read_trial
from sublayer.study.plan_file import PLAN, Plan
from sublayer.study.question import Seeds
from sublayer.study.scoring import WHOLE_TEST, Scoring
from sublayer.study.stage_recipes import StageRecipes
from sublayer.study.stages import PRETRAINING, Chain, Stage, finetuning_seed
from sublayer.system.stages import note

Key = tuple[str, str]
"""An arm and a stage."""
HELD_OUT = points_metric("held-out score", "score on what was held out")
"""The metric that trials of a stage of tasks are chosen by: of held-out training examples."""


class ArmFacts(Typed):
    """The size and the settled settings of an arm."""

    name: str
    parameters: dict[str, Count | None]
    flops_per_token: Count
    steps: Count
    """Of its own recipe; 0 where that is not trained."""
    mismatch: Number
    matched: tuple[str, ...]


def describe_arm(
    arm: Arm, model: ResolvedModel | None = None, steps: int | None = None
) -> ArmFacts:
    """Count parameters and operations of an arm; by default its recipe is that of a run."""
    recipe = arm.loaded.recipe
    if model is None or steps is None:
        assert isinstance(recipe, ResolvedRecipe), "the recipe of a run is resolved"
        model, steps = recipe.model, recipe.train.steps
    return ArmFacts(
        name=arm.name,
        parameters=asdict(count_parameters(model, recipe.objective)),
        flops_per_token=flops_per_token(model, recipe.data.context, recipe.objective),
        steps=steps,
        mismatch=arm.mismatch,
        matched=arm.matched,
    )


@dataclass(frozen=True)
class StageRuns:
    """The runs of a stage of an arm, and the trial that was chosen for them."""

    outcomes: Mapping[int, Sequence[Outcome]]
    """By the seed of the first stage those of each run under it, failed ones included."""
    trial: Trial = NO_TRIAL
    trial_runs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The validation scores of each trial's runs by name, lower the better; none of a trial that
    failed; empty: none was made."""
    chosen_by: Metric | None = None
    """The metric of those scores, negative where higher is better; None: the loss."""

    @property
    def losses(self) -> dict[str, float | None]:
        """The mean validation score of each trial, lower the better; None for one that failed."""
        return means(self.trial_runs)

    @property
    def scores(self) -> dict[str, float | None]:
        """The score of each trial as its metric has it."""
        sign = 1.0 if self.chosen_by is None or self.chosen_by.is_lower_better else -1.0
        return {name: None if loss is None else sign * loss for name, loss in self.losses.items()}

    def is_chosen_by(self, metric: Metric) -> bool:
        """Return whether a metric chose the trial."""
        if self.chosen_by is None:
            return bool(self.losses) and metric.name == "loss"
        return self.chosen_by.name == metric.name

    def seeded(self) -> Iterator[tuple[int, Outcome]]:
        """Yield each run with the seed of the first stage."""
        for seed, outcomes in self.outcomes.items():
            for outcome in outcomes:
                yield seed, outcome

    def scored(self, within: int = 0) -> Iterator[tuple[int, Sequence[int], Outcome]]:
        """Yield each scored run with its pre-training and the seeds that it is compared under.

        ``within``: so many fine-tunings of one pre-training are compared, for all of which a
        single run counts; 0: pre-trainings are.
        """
        for seed, outcomes in self.outcomes.items():
            for number, outcome in enumerate(outcomes):
                if outcome.test is not None:
                    numbers = range(within) if len(outcomes) == 1 else (number,)
                    yield seed, numbers if within else (seed,), outcome

    def values(self, metric: Metric) -> dict[int, float]:
        """Return a metric by seed, of the runs that have it: short texts are not scored."""
        scores = {seed: (outcome.test or {}).get(metric.name) for seed, _, outcome in self.scored()}
        return {seed: float(value) for seed, value in scores.items() if value is not None}


Runs = Mapping[Key, StageRuns]
"""The runs of a study by arm and stage; without further stages that is ``PRETRAINING``."""


def failed_runs(runs: Runs) -> Iterator[tuple[str, str, int, Outcome]]:
    """Yield each failed run with arm, stage and seed; of shared ones for each arm."""
    for (arm, stage), stage_runs in runs.items():
        for seed, outcome in stage_runs.seeded():
            if outcome.failure:
                yield arm, stage, seed, outcome


def of_seeds(runs: Runs, seeds: Sequence[int]) -> dict[Key, StageRuns]:
    """Return the runs of the seeds that were asked for last; more may have been before."""
    kept = {}
    for key, stage in runs.items():
        outcomes = {seed: each for seed, each in stage.outcomes.items() if seed in seeds}
        kept[key] = replace(stage, outcomes=outcomes)
    return kept


def has_ended(outcome: Outcome) -> bool:
    """Return whether a run was trained or scored, or failed."""
    return outcome.record is not None or outcome.test is not None or bool(outcome.failure)


def trial_losses(runs: Iterable[Outcome], metric: Metric | None) -> list[float]:
    """Return the validation scores of a trial's runs, lower is better; none where one failed.

    By a metric, or by the loss.
    """
    name = "loss" if metric is None else "score" if metric is HELD_OUT else metric.name
    sign = 1.0 if metric is None or metric.is_lower_better else -1.0
    losses = []
    for run in runs:
        value = None if run.record is None else run.record["valid"].get(name)
        if value is None:
            return []
        losses.append(sign * float(value))
    return losses


def means(trial_runs: Mapping[str, Sequence[float]]) -> dict[str, float | None]:
    """Return the mean of the scores of each trial's runs; None where there are none."""
    return {
        name: sum(scores) / len(scores) if scores else None for name, scores in trial_runs.items()
    }


def choose(
    trials: Sequence[Trial],
    tried: Mapping[str, Sequence[Outcome]],
    metric: Metric | None,
    compared: Collection[str] = (),
) -> StageRuns:
    """Choose the trial whose runs score best on validation, of equal ones by loss.

    ``tried`` are the runs of each trial; ``metric`` chooses where all runs have it, else the loss
    does: translations are not written before a run has ended, so that BLEU chooses none.
    ``compared`` is as ``choose_trial`` has it.
    """
    records = [run.record for runs in tried.values() for run in runs if run.record is not None]
    if metric is not None and metric is not HELD_OUT:
        metric = metric if all(metric.name in record["valid"] for record in records) else None
    trial_runs = {name: trial_losses(runs, metric) for name, runs in tried.items()}
    ties = means({name: trial_losses(runs, None) for name, runs in tried.items()})
    trial = choose_trial(trials, means(trial_runs), ties=ties, compared=compared)
    return StageRuns({}, trial, trial_runs, metric)


class RunFinder:
    """Finds the runs of all arms in the folder of their study, or those that are being made.

    A run that is not there yet has an outcome without scores, and one whose start has failed has
    that as its failure.
    """

    def __init__(
        self,
        chain: Chain,
        folders: Mapping[Key, Path],
        trials: Mapping[str, Sequence[Trial]],
        find: Callable[[Path], Outcome | None],
        *,
        seeds: Sequence[int],
        tuning: Sequence[tuple[int, int]],
        metric: Metric | None = HELD_OUT,
        find_trial: Callable[[Path], Outcome | None] | None = None,
    ) -> None:
        """Take the folders of the runs of arms' stages, and the function that reads an outcome.

        ``trials`` are by stage; each has a run of every pair of seed and number in ``tuning``,
        which ``find_trial`` reads, and ``metric`` chooses among them.
        """
        self.chain = chain
        self.folders = folders
        self.trials = trials
        self.seeds = seeds
        self.tuning = tuning
        self._metric = metric
        self._find = find
        self._find_trial = find_trial or find
        self._ended: dict[str, set[Path]] = {}
        self.chosen: dict[Key, StageRuns] = {}
        """The choice of each arm's stage whose trials have all ended, without its runs."""
        for arm, stage in folders:
            first, *others = trials.get(stage, (NO_TRIAL,))
            if not others:
                self.chosen[arm, stage] = StageRuns({}, first)

    def choose(self, stage: str) -> None:
        """Choose the trial of a stage, each arm by its own runs."""
        trials = self.trials.get(stage, ())
        for arm, name in self.folders:
            if name != stage or len(trials) < 2:
                continue
            tried: dict[str, list[Outcome]] = {}
            for trial in trials:
                runs = [self.outcome(arm, stage, *each, trial) for each in self.tuning]
                if all(map(has_ended, runs)):
                    tried[trial.name] = runs
            if len(tried) == len(trials):
                tuning = {self.path(arm, stage, *each).name for each in self.tuning}
                folder = self.folders[arm, stage]
                compared = [
                    trial.name
                    for trial in trials
                    if any(path.name not in tuning for path in (folder / trial.folder).glob(SEED))
                ]
                self.chosen[arm, stage] = choose(trials, tried, self._metric, compared)

    def gathered(self) -> dict[Key, StageRuns]:
        """Return the runs of all stages by arm and stage; each stage has been chosen for."""
        gathered = {}
        for arm, stage in self.folders:
            choice = self.chosen.get((arm, stage), StageRuns({}))
            numbers = range(self.n_runs(stage))
            if (arm, stage) in self.chosen:
                outcomes = {
                    seed: [self.outcome(arm, stage, seed, number) for number in numbers]
                    for seed in self.seeds
                }
                choice = replace(choice, outcomes=outcomes)
            gathered[arm, stage] = choice
        return gathered

    def n_ended(self) -> dict[str, int]:
        """Count the runs of each stage that have ended among those that were looked for."""
        return {stage: len(paths) for stage, paths in self._ended.items()}

    def n_runs(self, stage: str) -> int:
        """Count the runs of a stage under one pre-training."""
        return 1 if stage == PRETRAINING else self.chain.n_runs(self.chain.stage(stage))

    def path(
        self, arm: str, stage: str, seed: int, number: int = 0, trial: Trial | None = None
    ) -> Path:
        """Return the folder of a run; ``trial`` is by default the one that was chosen."""
        if trial is None:
            trial = self.chosen.get((arm, stage), StageRuns({})).trial
        if stage != PRETRAINING and self.chain.stage(stage).finetunes:
            seed = finetuning_seed(seed, number)
        return self.folders[arm, stage] / trial.folder / f"seed-{seed}"

    def starts(self, arm: str, stage: str) -> list[tuple[str, str, str]]:
        """List the arms' stages whose runs a stage takes, each behind its name in messages.

        None where it starts from random weights.
        """
        if stage == PRETRAINING:
            start = self.chain.of(arm).start
            return [(start, start, PRETRAINING)] if start else []
        described = self.chain.stage(stage)
        members = described.members(arm) or [(arm, described.after)]
        return [(name, of, name) for of, name in members if (of, name) in self.folders]

    def lost(self, arm: str, stage: str, seed: int, number: int = 0) -> str:
        """Say why a run cannot be made: one that it takes has failed; else empty."""
        averages = stage != PRETRAINING and bool(self.chain.stage(stage).ensemble)
        for shown, of, name in self.starts(arm, stage):
            failure = self.outcome(of, name, seed, number if averages else 0).failure
            if failure:
                takes = "of which it is an ensemble" if averages else "which it starts from"
                return f"{shown}, {takes}, failed: {failure}"
        return ""

    def outcome(
        self, arm: str, stage: str, seed: int, number: int = 0, trial: Trial | None = None
    ) -> Outcome:
        """Return the outcome of a run of a stage; without ``trial`` of the one that was chosen."""
        if trial is None and (arm, stage) not in self.chosen:
            return Outcome(self.folders[arm, stage])
        path = self.path(arm, stage, seed, number, trial)
        find = self._find if trial is None else self._find_trial
        found = find(path) or Outcome(path, failure=self.lost(arm, stage, seed, number))
        if has_ended(found):
            self._ended.setdefault(stage, set()).add(path)
        return found


SEED = "seed-*"


def finder_of_plan(
    folder: Path,
    plan: Plan,
    metric: Metric | None,
    trials: Sequence[Trial] | None = None,
    find: Callable[[Path], Outcome | None] | None = None,
) -> RunFinder:
    """Return the finder of a study without further stages; ``trials`` are by default the plan's.

    ``metric`` chooses among them, unless the plan says that the loss does.
    """
    asked = plan.asked
    trials = planned_trials(asked.tune, plan.extended) if trials is None else trials
    folders = {
        (each.name, PRETRAINING): arm_folder(folder, position, each.name)
        for position, each in enumerate(plan.settled)
    }
    paths = (path for arm in folders.values() for path in (*arm.glob(SEED), *arm.glob(f"*/{SEED}")))
    seeds = {int(path.name.removeprefix("seed-")) for path in paths}
    if asked.tune and asked.tuning_seeds != [0]:  # an early version's first seed was compared too
        seeds -= set(asked.seeds.tuning)
    return RunFinder(
        Chain(()),
        folders,
        {PRETRAINING: trials},
        find or read_outcome,
        seeds=sorted(seeds),
        tuning=[(seed, 0) for seed in asked.tuning_seeds],
        metric=metric if asked.tune_by == "metric" else None,
        find_trial=find or read_trial,
    )


def read_runs(folder: Path, plan: Plan, metric: Metric | None) -> tuple[list[Arm], Runs]:
    """Read the runs that have ended of a study without further stages, and the arms they are of.

    An arm's recipe is that of its first run. An arm is missing until all its trials have ended.
    ``metric`` is as ``finder_of_plan`` has it. Raises CheckpointError where a run is damaged.
    """
    finder = finder_of_plan(folder, plan, metric)
    finder.choose(PRETRAINING)
    asked = {arm.name: arm for arm in asked_arms(folder, plan)}
    arms: list[Arm] = []
    runs: dict[Key, StageRuns] = {}
    for settled in plan.settled:
        key = settled.name, PRETRAINING
        if key not in finder.chosen:
            continue
        arm = asked[settled.name]
        outcomes = {seed: [finder.outcome(*key, seed)] for seed in finder.seeds}
        outcomes = {seed: ended for seed, ended in outcomes.items() if has_ended(ended[0])}
        for (outcome,) in outcomes.values():
            if (outcome.path / RUN_RECIPE).is_file():
                recipe = RunFolder(outcome.path).recipe()
                arm = replace(arm, loaded=LoadedRecipe(recipe, {}, settled.name, ()))
                break
        varied = plan.about.varied.get(settled.name, {}) if plan.about else {}
        arms.append(
            replace(
                arm,
                settings=varied,
                is_varied=bool(varied),
                matched=tuple(settled.matched),
                mismatch=settled.residual,
            )
        )
        runs[key] = replace(finder.chosen[key], outcomes=outcomes)
    return arms, runs


def asked_arms(folder: Path, plan: Plan) -> list[Arm]:
    """Return the arms with their recipes as they were asked for."""
    place = str(folder / PLAN)
    arms = []
    for name, text in plan.asked.recipes.items():
        table = parse_toml(text, place, ConfigError)
        layers = (layer_of(table, place),)
        arms.append(Arm(name, LoadedRecipe(recipe_of(table, place), {}, name, layers), {}))
    return arms


class RunMaker:
    """Makes the runs of a study's arms that are missing.

    A run whose training fails is kept as a failure and stops nothing; trained runs keep their
    model, not their checkpoints. Methods raise CheckpointError where files of a run are damaged,
    Interrupted, and as ``run_all`` does.
    """

    def __init__(
        self,
        folder: StudyFolder,
        arms: Sequence[Arm],
        data: Mapping[str, Data],
        run_all: RunAll,
        finder_of: Callable[[Callable[[Path], Outcome | None]], RunFinder],
        *,
        recipes: StageRecipes | None = None,
        scoring: Scoring = WHOLE_TEST,
        inspecting: Inspecting | None = None,
    ) -> None:
        """Take a study's settled arms and the ``data`` of each arm's own recipe.

        ``finder_of`` makes a finder of the outcomes so far, and ``recipes`` has those of further
        stages. Scored runs are inspected as well, as ``inspecting`` says.
        """
        self._folder = folder
        self._arms = arms
        self._data = data
        self._run_all = run_all
        self._recipes = recipes
        self._scoring = scoring
        self._inspecting = inspecting
        self._shared = SharedData()
        self._outcomes: dict[Path, Outcome] = {}
        self._finder = finder_of(self._outcomes.get)

    def tune(self, trials: Sequence[Trial], seeds: Seeds, *, n_extensions: int) -> None:
        """Make the trials, the same for every arm, and choose one for each.

        Where an arm's best number lies at an edge of the grid, the next one beyond is tried by
        every arm, ``n_extensions`` times at most. All arms try a setting before the next is tried,
        in turn from the first to the last and back.
        """
        extended = self._folder.extended()
        new = tried = [*trials, *(trial_at(trials, value) for value in extended)]
        while new:
            self._make(
                self._own(arm, seed, trial)
                for seed in seeds.tuning
                for number, trial in enumerate(new)
                for arm in self._in_turn(number)
            )
            self._finder.trials = {PRETRAINING: tried}
            self._finder.choose(PRETRAINING)
            chosen = [self._finder.chosen[arm.name, PRETRAINING].trial for arm in self._arms]
            is_last = len(self._folder.extended()) >= n_extensions
            added = None if is_last else self._next(chosen, tried)
            new = [] if added is None else [added]
            if added is not None:
                note(f"the best lies at an edge of the grid: every arm tries {added.name} too")
                (value,) = added.settings.values()
                self._folder.add_extended(value)
                tried = [*tried, added]

    def _next(self, chosen: Sequence[Trial], tried: Sequence[Trial]) -> Trial | None:
        """Return the next trial beyond an edge that fits the recipes of all arms, if any does."""
        for trial in beyond_edges(chosen, tried):
            try:
                for arm in self._arms:
                    trial.of(arm.loaded)
            except ConfigError as error:
                note(
                    f"the best lies at an edge of the grid, and {trial.name} is not tried: {error}"
                )
                continue
            return trial
        return None

    def run(self, seeds: Sequence[int], arms: Collection[str] | None = None) -> None:
        """Make the runs of arms' own recipes with seeds, of some arms or all that are trained.

        All arms have a seed's run before the next seed has any, in turn from the first arm to the
        last and back. Those whose start has failed are left out.
        """
        self._make(
            self._own(arm, seed)
            for seed in seeds
            for arm in self._in_turn(seed)
            if (arm.name, PRETRAINING) in self._finder.folders
            and (arms is None or arm.name in arms)
            and not self._finder.lost(arm.name, PRETRAINING, seed)
        )

    def _in_turn(self, round_number: int) -> Sequence[Arm]:
        """Return the arms in the order of a round of their runs: every second one backwards.

        A machine that slows down or speeds up steadily is as slow for one arm as for another so.
        """
        return self._arms if round_number % 2 == 0 else self._arms[::-1]

    def run_stages(self) -> dict[Key, StageRuns]:
        """Make the runs of all stages, one stage after another, and return them."""
        finder, chain = self._finder, self._finder.chain
        by_starts = {arm.name: chain.n_starts(arm.name) for arm in self._arms}
        for n_starts in sorted(set(by_starts.values())):
            self.run(finder.seeds, [arm for arm, n in by_starts.items() if n == n_starts])
        for _, same_depth in itertools.groupby(sorted(chain.stages, key=chain.depth), chain.depth):
            stages = list(same_depth)
            self._make(
                self._of_stage(arm.name, stage, *number, trial)
                for stage in stages
                for trial in finder.trials[stage.name]
                for arm in self._arms
                for number in finder.tuning
                if len(finder.trials[stage.name]) > 1
                and not finder.lost(arm.name, stage.name, *number)
            )
            for stage in stages:
                finder.choose(stage.name)
            self._make(
                self._of_stage(arm.name, stage, seed, number)
                for seed in finder.seeds
                for stage in stages
                for number in range(chain.n_runs(stage))
                for arm in self._arms
                if not finder.lost(arm.name, stage.name, seed, number)
            )
        return finder.gathered()

    def _make(self, jobs: Iterable[Job]) -> None:
        """Make runs, each folder once, whatever arms have it."""
        by_path = {job.path: job for job in jobs if job.path not in self._outcomes}
        self._outcomes |= self._run_all(list(by_path.values()))

    def _own(self, arm: Arm, seed: int, tried: Trial | None = None) -> Job:
        """Return a run of an arm's own recipe, with a trial that is tried or the chosen one."""
        name, data = arm.name, self._data[arm.name]
        trial = tried or self._finder.chosen[name, PRETRAINING].trial
        loaded = vary(trial.of(arm.loaded), {"train.seed": seed}, origin=ORIGIN)
        if start := self._finder.chain.of(name).start:
            assert self._recipes is not None, "arms of studies with stages have starts"
            path = self._finder.path(start, PRETRAINING, seed)
            loaded = replace(self._recipes.started(name, loaded, path), notes=())
        scored = loaded.recipe
        if self._recipes is None:
            # Where ids are the same, encoders are scored on the baseline's masked tokens and
            # pairs; how answers are written and read off is an arm's own.
            baseline = self._arms[0]
            fingerprint = self._data[baseline.name].tokenizer.fingerprint
            if data.tokenizer.fingerprint == fingerprint and scored.data.tasks is None:
                objective = baseline.loaded.recipe.objective
                scored = scored.model_copy(update={"objective": objective})
            label = " ".join(filter(None, [name, trial.name]))
        else:
            label = self._called(name, PRETRAINING)
        return Job(
            label=f"{label}, seed {seed}",
            path=self._finder.path(name, PRETRAINING, seed, trial=trial),
            loaded=loaded,
            data=data,
            scored=scored,
            scoring=self._scoring,
            inspecting=None if tried else self._inspecting,
            is_scored=tried is None,
            plan=self._folder.last_seal(),
        )

    def _of_stage(
        self, arm: str, stage: Stage, seed: int, number: int, trial: Trial | None = None
    ) -> Job:
        """Return a run of a further stage, or of an ensemble the average of runs of equal seeds.

        That has the recipe of its first member.
        """
        finder, recipes = self._finder, self._recipes
        assert recipes is not None, "studies with stages have their recipes"
        of, trained = arm, stage
        members: Sequence[Path] = ()
        if stage.ensemble:
            pairs = stage.members(arm)
            members = tuple(finder.path(*member, seed, number) for member in pairs)
            of, trained = pairs[0][0], finder.chain.stage(pairs[0][1])
        used = finder.chosen[of, trained.name].trial if trial is None else trial
        starts = finder.starts(of, trained.name)
        start = finder.path(*starts[0][1:], seed) if starts else self._folder.path
        loaded = recipes.actual(of, trained.name, start)
        # Threads and precision are settled, the same for all runs of an arm.
        train = next(each.loaded.recipe.train for each in self._arms if each.name == of)
        settings: dict[str, Any] = {
            "train.threads": train.threads,
            "train.precision": train.precision,
            "train.seed": finetuning_seed(seed, number) if trained.finetunes else seed,
        }
        # Notes on an arm's recipe are notes of the study.
        loaded = replace(vary(used.of(loaded), settings, origin=ORIGIN), notes=())
        words = [self._called(arm, stage.name)]
        if used.name and not members:
            words.append(used.name)
        words.append(f"seed {seed}")
        if trained.finetunes:
            words.append(f"fine-tuning {number}")
        return Job(
            label=", ".join(words),
            path=finder.path(arm, stage.name, seed, number, trial),
            loaded=loaded,
            data=self._shared,
            scored=loaded.recipe,
            scoring=WHOLE_TEST if members else self._scoring,
            finetunes=trained.finetunes,
            members=members,
            plan=self._folder.last_seal(),
        )

    def _called(self, arm: str, stage: str) -> str:
        """Name the run of a stage by the arms that share it."""
        folders = self._finder.folders
        same = [
            each.name
            for each in self._arms
            if folders.get((each.name, stage)) == folders[arm, stage]
        ]
        return f"{', '.join(same)}: {stage}"
