"""Runs of a study by arm and stage: folders, selected trials, jobs.

A study has stages; a plain one only its pre-training.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from sublayer.config.layers import RUN_RECIPE, layer_of
from sublayer.config.load import LoadedRecipe, recipe_of
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError
from sublayer.evaluation.items import Metric
from sublayer.files.parsing import parse_toml
from sublayer.objective.base import family_of
from sublayer.runs.folder import RunFolder
from sublayer.study.arms import (
    NO_TRIAL,
    PRETRAINING,
    Arm,
    Chain,
    Trial,
    beyond_edges,
    choose_trial,
    finetuning_seed,
    planned_trials,
    trial_at,
)
from sublayer.study.budget import ORIGIN
from sublayer.study.columns import points_metric
from sublayer.study.folder import StudyFolder, arm_folder
from sublayer.study.inspection import Inspecting
from sublayer.study.jobs.run import Job, Outcome, RunAll, SharedData, read_outcome
from sublayer.study.plan_file import PLAN, StudyPlan
from sublayer.study.question import WHOLE_TEST, Scoring
from sublayer.study.stage_recipes import ChainPlan, StageRecipes
from sublayer.system.terminal import note

Key = tuple[str, str]
"""An arm and a stage."""
HELD_OUT = points_metric("held-out score", "score on held-out examples")
"""Selection metric of trials of a stage of tasks, on held-out training examples."""


@dataclass(frozen=True)
class StageRuns:
    """Runs of an arm in one stage, and the selected trial."""

    outcomes: Mapping[int, Sequence[Outcome]]
    """By seed of the pre-training, one per run under it, failed runs included."""
    trial: Trial = NO_TRIAL
    trial_runs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Validation scores of each trial's runs, lower is better; no scores for a failed trial; empty
    without tuning."""
    chosen_by: Metric | None = None
    """Metric of these scores, negated if higher is better; None: the loss."""

    @property
    def losses(self) -> dict[str, float | None]:
        """Mean validation score of each trial, lower is better; None for a failed trial."""
        return {
            name: sum(scores) / len(scores) if scores else None
            for name, scores in self.trial_runs.items()
        }

    @property
    def scores(self) -> dict[str, float | None]:
        """Mean validation score of each trial in its metric's direction."""
        sign = 1.0 if self.chosen_by is None or self.chosen_by.is_lower_better else -1.0
        return {name: None if loss is None else sign * loss for name, loss in self.losses.items()}

    def is_chosen_by(self, metric: Metric) -> bool:
        """Return whether this metric selected the trial."""
        if self.chosen_by is None:
            return bool(self.losses) and metric.name == "loss"
        return self.chosen_by.name == metric.name

    def seeded(self) -> Iterator[tuple[int, Outcome]]:
        """Yield each run with the seed of its pre-training."""
        for seed, outcomes in self.outcomes.items():
            for outcome in outcomes:
                yield seed, outcome

    def scored(self, within: int = 0) -> Iterator[tuple[int, Sequence[int], Outcome]]:
        """Yield each scored run with the seed of its pre-training and the compared seeds.

        ``within`` is the number of compared fine-tunings of one pre-training, a single run counting
        for all; 0: pre-trainings are compared.
        """
        for seed, outcomes in self.outcomes.items():
            for number, outcome in enumerate(outcomes):
                if outcome.test is not None:
                    numbers = range(within) if len(outcomes) == 1 else (number,)
                    yield seed, numbers if within else (seed,), outcome


Runs = Mapping[Key, StageRuns]
"""Runs of a study by arm and stage; a plain study has only the stage ``PRETRAINING``."""


def failed_runs(runs: Runs) -> Iterator[tuple[str, str, int, Outcome]]:
    """Yield each failed run with arm, stage and seed; a shared run once for each arm."""
    for (arm, stage), stage_runs in runs.items():
        for seed, outcome in stage_runs.seeded():
            if outcome.failure:
                yield arm, stage, seed, outcome


def has_ended(outcome: Outcome) -> bool:
    """Return whether a run was trained or scored, or failed."""
    return outcome.record is not None or outcome.test is not None or bool(outcome.failure)


def trial_losses(runs: Iterable[Outcome], metric: Metric | None) -> list[float]:
    """Return validation scores of a trial's runs, lower is better; none if a run failed.

    Scores are in ``metric``; None: the loss.
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


def choose(
    trials: Sequence[Trial],
    tried: Mapping[str, Sequence[Outcome]],
    metric: Metric | None,
    compared: Collection[str] = (),
) -> StageRuns:
    """Select the trial with the best validation scores; the loss breaks ties.

    ``tried`` are the runs of each trial; ``metric`` selects if all runs have it, else the loss:
    translations are written only after a run, so BLEU selects none. ``compared`` is as in
    ``choose_trial``.
    """
    records = [run.record for runs in tried.values() for run in runs if run.record is not None]
    if metric not in (None, HELD_OUT) and not all(metric.name in log["valid"] for log in records):
        metric = None
    by_metric, by_loss = (
        StageRuns({}, NO_TRIAL, {name: trial_losses(runs, by) for name, runs in tried.items()}, by)
        for by in (metric, None)
    )
    trial = choose_trial(trials, by_metric.losses, ties=by_loss.losses, compared=compared)
    return replace(by_metric, trial=trial)


Find = Callable[[Path], Outcome | None]
"""Reader of the outcome of the run in a folder; None if it has not ended."""


@dataclass
class RunFinder:
    """Finder of runs by arm, stage and seed, in a study's folder or among those being made.

    A missing run has an outcome without scores; a run with a failed start has that failure.
    """

    chain: Chain
    folders: Mapping[Key, Path]
    """Folder of the runs, by arm and stage."""
    trials: Mapping[str, Sequence[Trial]]
    """Trials by stage; each has a run per pair of seed and number in ``tuning``."""
    find: Find
    seeds: Sequence[int] = field(kw_only=True)
    """Seeds of the compared runs."""
    tuning: Sequence[tuple[int, int]] = field(kw_only=True)
    metric: Metric | None = field(default=HELD_OUT, kw_only=True)
    """Selection metric of trials; None: the loss."""
    find_trial: Find | None = field(default=None, kw_only=True)
    """Reader of the runs of trials; None: ``find``."""
    chosen: dict[Key, StageRuns] = field(default_factory=dict, init=False)
    """Selected trials, if all trials have ended; without the compared runs."""
    _ended: dict[str, set[Path]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Select the only trial of untuned stages."""
        for arm, stage in self.folders:
            first, *others = self.trials.get(stage, (NO_TRIAL,))
            if not others:
                self.chosen[arm, stage] = StageRuns({}, first)

    def choose(self, stage: str) -> None:
        """Select the trial of each arm in a stage, if all of its trials have ended."""
        trials = self.trials.get(stage, ())
        for (arm, name), folder in self.folders.items():
            if name != stage or len(trials) < 2:
                continue
            tried = {
                trial.name: [self.outcome(arm, stage, *pair, trial) for pair in self.tuning]
                for trial in trials
            }
            if all(map(has_ended, itertools.chain.from_iterable(tried.values()))):
                tuning = {self.path(arm, stage, *pair).name for pair in self.tuning}
                compared = [
                    trial.name
                    for trial in trials
                    if {path.name for path in (folder / trial.folder).glob("seed-*")} - tuning
                ]
                self.chosen[arm, stage] = choose(trials, tried, self.metric, compared)

    def gathered(self) -> dict[Key, StageRuns]:
        """Return the runs of all arms and stages; none before all trials have ended."""
        gathered = {}
        for stage in dict.fromkeys(stage for _, stage in self.folders):
            if any(key not in self.chosen for key in self.folders if key[1] == stage):
                self.choose(stage)
        for arm, stage in self.folders:
            choice = self.chosen.get((arm, stage))
            if choice is not None:
                numbers = range(self.n_runs(stage))
                outcomes = {
                    seed: [self.outcome(arm, stage, seed, number) for number in numbers]
                    for seed in self.seeds
                }
                choice = replace(choice, outcomes=outcomes)
            gathered[arm, stage] = choice or StageRuns({})
        return gathered

    def n_ended(self) -> dict[str, int]:
        """Count the ended runs of each stage, among those looked up."""
        return {stage: len(paths) for stage, paths in self._ended.items()}

    def n_runs(self, stage: str) -> int:
        """Count the runs of a stage under one pre-training."""
        return self.chain.n_runs(self.chain.stage(stage))

    def path(
        self, arm: str, stage: str, seed: int, number: int = 0, trial: Trial | None = None
    ) -> Path:
        """Return the folder of a run; ``trial`` is by default the selected one."""
        if trial is None:
            trial = self.chosen.get((arm, stage), StageRuns({})).trial
        if self.chain.stage(stage).finetunes:
            seed = finetuning_seed(seed, number)
        return self.folders[arm, stage] / trial.folder / f"seed-{seed}"

    def starts(self, arm: str, stage: str) -> list[tuple[str, Key]]:
        """List the arms and stages that a stage starts from, with their names in messages.

        Empty if it starts from random weights.
        """
        if stage == PRETRAINING:
            start = self.chain.of(arm).start
            return [(start, (start, PRETRAINING))] if start else []
        described = self.chain.stage(stage)
        members = described.members(arm) or [(arm, described.after)]
        return [(key[1], key) for key in members if key in self.folders]

    def lost(self, arm: str, stage: str, seed: int, number: int = 0) -> str:
        """Return the failure of an earlier run that prevents a run; empty without any."""
        averages = bool(self.chain.stage(stage).ensemble)
        for shown, start in self.starts(arm, stage):
            failure = self.outcome(*start, seed, number if averages else 0).failure
            if failure:
                takes = "a member of this ensemble" if averages else "the start of this stage"
                return f"{shown}, {takes}, failed: {failure}"
        return ""

    def outcome(
        self, arm: str, stage: str, seed: int, number: int = 0, trial: Trial | None = None
    ) -> Outcome:
        """Return the outcome of a run of a stage, by default with the selected trial."""
        if trial is None and (arm, stage) not in self.chosen:
            return Outcome(self.folders[arm, stage])
        path = self.path(arm, stage, seed, number, trial)
        find = self.find if trial is None else self.find_trial or self.find
        outcome = find(path) or Outcome(path, failure=self.lost(arm, stage, seed, number))
        if has_ended(outcome):
            self._ended.setdefault(stage, set()).add(path)
        return outcome


def finder_of_plan(folder: Path, plan: StudyPlan) -> RunFinder:
    """Return the finder of the runs in the folder of a plain study."""
    request = plan.asked
    metric = None
    # Before tuning seeds existed, the loss selected.
    if request.tune_by == "metric" and request.tuning_seeds != [0]:
        metrics = family_of(asked_arms(folder, plan)[0].loaded.recipe.objective).metrics
        named = plan.about.metric if plan.about else ""
        metric = next((candidate for candidate in metrics if candidate.name == named), metrics[0])
    return RunFinder(
        Chain(()),
        {
            (arm.name, PRETRAINING): arm_folder(folder, position, arm.name)
            for position, arm in enumerate(plan.settled)
        },
        {PRETRAINING: planned_trials(request.tune, plan.extended)},
        read_outcome,
        seeds=request.seeds.compared(max([plan.planned_seeds, *request.looks])),
        tuning=[(seed, 0) for seed in request.tuning_seeds],
        metric=metric,
        find_trial=partial(read_outcome, is_scored=False),
    )


def finder_of_chain(
    folder: Path, chain_plan: ChainPlan, find: Callable[[Path], Outcome | None] = read_outcome
) -> RunFinder:
    """Return the finder of the runs in the folder of a study with stages.

    ``find`` returns the outcome of the run in a folder.
    """
    seeds, tuning = range(chain_plan.n_seeds), [(0, chain_plan.tuning_number)]
    folders = chain_plan.folders(folder)
    return RunFinder(chain_plan.chain, folders, chain_plan.trials, find, seeds=seeds, tuning=tuning)


def asked_arms(folder: Path, plan: StudyPlan) -> list[Arm]:
    """Return the arms with their original recipes, before settings were settled."""
    origin = str(folder / PLAN)
    arms = []
    for name, text in plan.asked.recipes.items():
        table = parse_toml(text, origin, ConfigError)
        layers = (layer_of(table, origin),)
        arms.append(Arm(name, LoadedRecipe(recipe_of(table, origin), {}, name, layers), {}))
    return arms


def trained_arms(plan: StudyPlan, runs: Runs) -> list[Arm]:
    """Return the arms of a plain study with an ended run, with the recipe of the first."""
    arms = []
    for settled in plan.settled:
        name = settled.name
        ended = (run.path for _, run in runs[name, PRETRAINING].seeded() if has_ended(run))
        first = next((path for path in ended if (path / RUN_RECIPE).is_file()), None)
        if first is not None:
            varied = plan.about.varied.get(name, {}) if plan.about else {}
            loaded = LoadedRecipe(RunFolder(first).recipe(), {}, name, ())
            matched, mismatch = tuple(settled.matched), settled.residual
            arm = Arm(name, loaded, varied, is_varied=bool(varied), matched=matched)
            arms.append(replace(arm, mismatch=mismatch))
    return arms


@dataclass
class RunMaker:
    """Maker of the missing runs of a study.

    A run whose training fails is kept as a failure and stops nothing; trained runs keep their
    model, not their checkpoints. Methods raise CheckpointError if files of a run are damaged,
    Interrupted, and as ``run_all`` does.
    """

    folder: StudyFolder
    arms: Sequence[Arm]
    """With settled recipes."""
    data: Mapping[str, Data]
    """Data of each arm's recipe."""
    run_all: RunAll
    finder: RunFinder
    """Finder of the study's folder; here it finds the new runs."""
    recipes: StageRecipes | None = None
    """Recipes of further stages."""
    scoring: Scoring = WHOLE_TEST
    inspecting: Inspecting | None = None
    """The inspection of scored runs."""

    def __post_init__(self) -> None:
        """Let the finder search the outcomes so far."""
        self._shared = SharedData()
        self._outcomes: dict[Path, Outcome] = {}
        self.finder = replace(self.finder, find=self._outcomes.get, find_trial=None)

    def tune(self, trials: Sequence[Trial], *, n_extensions: int) -> None:
        """Make the trials, the same for every arm, and select one for each.

        If an arm's best number lies at an edge of the grid, every arm tries the next one beyond,
        ``n_extensions`` times at most. All arms try a setting before the next, in alternating
        order.
        """
        extended = self.folder.listed("extended")
        new = tried = [*trials, *(trial_at(trials, value) for value in extended)]
        while new:
            self._make(
                self._job(arm.name, PRETRAINING, seed, tried=trial)
                for seed, _ in self.finder.tuning
                for number, trial in enumerate(new)
                for arm in self._in_turn(number)
            )
            self.finder.trials = {PRETRAINING: tried}
            self.finder.choose(PRETRAINING)
            chosen = [self.finder.chosen[arm.name, PRETRAINING].trial for arm in self.arms]
            is_last = len(self.folder.listed("extended")) >= n_extensions
            new = []
            # The first beyond an edge that fits the recipes of all arms.
            for trial in () if is_last else beyond_edges(chosen, tried):
                edge = "the best lies at an edge of the grid"
                try:
                    for arm in self.arms:
                        trial.of(arm.loaded)
                except ConfigError as error:
                    note(f"{edge}, and {trial.name} is not tried: {error}")
                    continue
                note(f"{edge}: every arm tries {trial.name} too")
                (value,) = trial.settings.values()
                self.folder.add("extended", value)
                new, tried = [trial], [*tried, trial]
                break

    def run(self, seeds: Sequence[int], arms: Collection[str] | None = None) -> None:
        """Make the pre-trainings, or plain runs, of arms with these seeds; by default all arms.

        All arms make a seed's run before the next seed, in alternating order. Runs with a failed
        start are left out.
        """
        self._make(
            self._job(arm.name, PRETRAINING, seed)
            for seed in seeds
            for arm in self._in_turn(seed)
            if (arm.name, PRETRAINING) in self.finder.folders
            and (arms is None or arm.name in arms)
            and not self.finder.lost(arm.name, PRETRAINING, seed)
        )

    def _in_turn(self, round_number: int) -> Sequence[Arm]:
        """Return the arms in a round's order: every second round is reversed.

        A steady drift of the machine's speed then affects all arms equally.
        """
        return self.arms if round_number % 2 == 0 else self.arms[::-1]

    def run_stages(self) -> dict[Key, StageRuns]:
        """Make the runs of all stages, stage by stage, and return them."""
        finder, chain = self.finder, self.finder.chain
        by_starts = {arm.name: chain.n_starts(arm.name) for arm in self.arms}
        for n_starts in sorted(set(by_starts.values())):
            self.run(finder.seeds, [arm for arm, n in by_starts.items() if n == n_starts])
        for _, same_depth in itertools.groupby(sorted(chain.stages, key=chain.depth), chain.depth):
            stages = [stage.name for stage in same_depth]
            tuned = [(name, finder.trials[name]) for name in stages if len(finder.trials[name]) > 1]
            self._make(
                self._job(arm.name, stage, *number, trial)
                for stage, trials in tuned
                for trial in trials
                for arm in self.arms
                for number in finder.tuning
                if not finder.lost(arm.name, stage, *number)
            )
            for stage in stages:
                finder.choose(stage)
            self._make(
                self._job(arm.name, stage, seed, number)
                for seed in finder.seeds
                for stage in stages
                for number in range(finder.n_runs(stage))
                for arm in self.arms
                if not finder.lost(arm.name, stage, seed, number)
            )
        return finder.gathered()

    def _make(self, jobs: Iterable[Job]) -> None:
        """Make runs, each folder once, also if arms share it."""
        by_path = {job.path: job for job in jobs if job.path not in self._outcomes}
        self._outcomes |= self.run_all(list(by_path.values()))

    def _job(
        self, arm: str, stage: str, seed: int, number: int = 0, tried: Trial | None = None
    ) -> Job:
        """Return the job of a run, for a given trial or the selected one.

        An ensemble averages runs of equal seeds and has the recipe of its first member.
        """
        finder, chain, recipes = self.finder, self.finder.chain, self.recipes
        pairs = chain.stage(stage).members(arm)
        of, trained = pairs[0] if pairs else (arm, stage)
        base = next(arm.loaded for arm in self.arms if arm.name == of)
        trial = tried or finder.chosen[of, trained].trial
        starts = [finder.path(*start, seed) for _, start in finder.starts(of, trained)]
        finetunes = chain.stage(trained).finetunes
        settings: dict[str, Any] = {
            "train.seed": finetuning_seed(seed, number) if finetunes else seed
        }
        if trained == PRETRAINING:
            loaded = trial.of(base).vary(settings, origin=ORIGIN)
            if starts and recipes:
                loaded = recipes.started(of, loaded, starts[0])
        else:
            assert recipes is not None, "studies with stages have their recipes"
            loaded = trial.of(recipes.actual(of, trained, *starts[:1] or [self.folder.path]))
            # Threads and precision are settled, equal for all runs of an arm.
            for name in ("threads", "precision"):
                settings[f"train.{name}"] = getattr(base.recipe.train, name)
            loaded = loaded.vary(settings, origin=ORIGIN)
        scored = loaded.recipe
        # Arms may share the run of a stage.
        folders, names = finder.folders, [arm.name for arm in self.arms]
        sharing = [name for name in names if folders.get((name, stage)) == folders[arm, stage]]
        words = [f"{', '.join(sharing)}: {stage}", "" if pairs else trial.name]
        if recipes is None:
            words = [" ".join(filter(None, [arm, trial.name]))]
            # With equal ids, encoders are scored on the baseline's masked tokens and pairs; the
            # format of answers is the arm's.
            first = self.arms[0]
            ids, others = (self.data[name].tokenizer.fingerprint for name in (arm, first.name))
            if ids == others and scored.data.tasks is None:
                objective = first.loaded.recipe.objective
                scored = scored.model_copy(update={"objective": objective})
        words += [f"seed {seed}", f"fine-tuning {number}" if finetunes else ""]
        return Job(
            label=", ".join(filter(None, words)),
            path=finder.path(arm, stage, seed, number, tried),
            recipe=loaded.recipe,
            data=self.data[arm] if stage == PRETRAINING else self._shared,
            scored=scored,
            scoring=WHOLE_TEST if pairs else self.scoring,
            finetunes=finetunes,
            is_scored=tried is None or stage != PRETRAINING,
            members=tuple(finder.path(*pair, seed, number) for pair in pairs),
            inspecting=None if tried else self.inspecting,
            plan=next(reversed(self.folder.listed("seals")), None),
        )
