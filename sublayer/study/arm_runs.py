"""The runs of arms of one stage: made, tuned, or found in a folder."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sublayer.config.layering.layers import LoadedRecipe, vary
from sublayer.config.layering.run_recipe import recipe_of
from sublayer.config.layering.sources import RUN_RECIPE
from sublayer.config.recipe import Recipe
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError
from sublayer.files.parsing import parse_toml
from sublayer.objective.metric import Metric
from sublayer.runs.folder import RunFolder
from sublayer.study.arms import Arm, Trial, beyond_edges, choose_trial, planned_trials, trial_at
from sublayer.study.budget.match import ORIGIN, MatchedArm
from sublayer.study.folder import StudyFolder, arm_folder
from sublayer.study.inspection import Inspecting
from sublayer.study.jobs.run import Job, Outcome, RunAll, read_outcome, read_trial
from sublayer.study.plan_file import PLAN, Plan, read_plan
from sublayer.study.question import Seeds
from sublayer.study.scoring import WHOLE_TEST, Scoring
from sublayer.system.stages import note


@dataclass(frozen=True)
class ArmRuns:
    """The runs of one arm: the trial that was chosen, and the outcome of each seed under it."""

    matched_arm: MatchedArm
    trial: Trial
    outcomes: dict[int, Outcome]
    """By seed, those that failed included."""
    losses: Mapping[str, float | None] = field(default_factory=dict)
    """What each trial scored on validation, by name, lower the better; None for one that failed;
    empty: none was made."""
    trial_runs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The scores of each trial's runs, of which ``losses`` are the means."""
    chosen_by: Metric | None = None
    """What those are of, negative where higher is better; None: the loss."""

    def is_chosen_by(self, metric: Metric) -> bool:
        """Return whether a metric chose the trial."""
        if self.chosen_by is None:
            return bool(self.losses) and metric.name == "loss"
        return self.chosen_by.name == metric.name

    def values(self, metric: Metric) -> dict[int, float]:
        """Return a metric by seed, of the runs that have it: what is too short is not scored."""
        found = {}
        for seed, outcome in self.outcomes.items():
            value = None if outcome.test is None else outcome.test.get(metric.name)
            if value is not None:
                found[seed] = float(value)
        return found


class _Tasks:
    """The runs of a study: an arm by its position, a trial and a seed each."""

    def __init__(
        self,
        folder: StudyFolder,
        matched_arms: Sequence[MatchedArm],
        data: Mapping[str, Data],
        scoring: Scoring,
        inspecting: Inspecting | None,
    ) -> None:
        self._folder = folder
        self._matched_arms = matched_arms
        self._data = data
        self._scoring = scoring
        self._inspecting = inspecting
        baseline = matched_arms[0]
        self._objective = baseline.loaded.recipe.objective
        self._fingerprint = data[baseline.arm.name].tokenizer.fingerprint

    def task(self, position: int, trial: Trial, seed: int, *, is_scored: bool = True) -> Job:
        arm = self._matched_arms[position]
        tried = trial.of(arm.loaded)
        loaded = vary(tried, {"train.seed": seed}, origin=ORIGIN)
        # The one trial of a study that tunes nothing has no name.
        name = f"{arm.arm.name} {trial.name}" if trial.name else arm.arm.name
        data = self._data[arm.arm.name]
        return Job(
            label=f"{name}, seed {seed}",
            path=self.path(position, trial, seed),
            loaded=loaded,
            data=data,
            scored=self._scored(loaded.recipe, data),
            scoring=self._scoring,
            inspecting=self._inspecting if is_scored else None,
            is_scored=is_scored,
            plan=self._folder.last_seal(),
        )

    def path(self, position: int, trial: Trial, seed: int) -> Path:
        name = self._matched_arms[position].arm.name
        return self._folder.run(position, name, trial.name, seed)

    def _scored(self, recipe: Recipe, data: Data) -> Recipe:
        """Return the recipe with the baseline's masked tokens and pairs, if ids are the same.

        How answers are written and read off is an arm's own.
        """
        if data.tokenizer.fingerprint != self._fingerprint or recipe.data.tasks is not None:
            return recipe
        return recipe.model_copy(update={"objective": self._objective})


class ArmWork:
    """Makes the runs of a study's arms: first every trial of every arm, then seeds of the chosen.

    ``data`` is each arm's, for all its runs; encoders are scored on the pairs and masks of the
    first arm's objective. A run whose training fails is kept as a failure and stops nothing;
    trained runs keep their model, not their checkpoints. What is scored is inspected too, as
    ``inspecting`` says.
    """

    def __init__(
        self,
        folder: StudyFolder,
        matched_arms: Sequence[MatchedArm],
        data: Mapping[str, Data],
        run_all: RunAll,
        *,
        scoring: Scoring = WHOLE_TEST,
        inspecting: Inspecting | None = None,
    ) -> None:
        self._arms = matched_arms
        self._run_all = run_all
        self._tasks = _Tasks(folder, matched_arms, data, scoring, inspecting)

    def tune(self, trials: Sequence[Trial], seeds: Sequence[int]) -> None:
        """Make every trial of every arm with each of the seeds.

        All arms try a setting before the next is tried, in turn from the first to the last and
        back. Raises as the runs do.
        """
        self._run_all(
            [
                self._tasks.task(position, trial, seed, is_scored=False)
                for seed in seeds
                for number, trial in enumerate(trials)
                for position in there_and_back(len(self._arms), number)
            ]
        )

    def problem_of(self, trial: Trial) -> str:
        """Return why a trial does not fit an arm's recipe; empty where it fits all."""
        for arm in self._arms:
            try:
                trial.of(arm.loaded)
            except ConfigError as error:
                return str(error)
        return ""

    def run(
        self, seeds: Sequence[int], chosen: Sequence[Trial], arms: Collection[str] | None = None
    ) -> None:
        """Make the runs of seeds, of some arms or all, each with the trial that it chose.

        All arms have a seed's run before the next seed has any, in turn from the first arm to the
        last and back. Raises CheckpointError where what a
        run left is damaged, and Interrupted; of several at a time, also what ``SideBySide`` does.
        """
        self._run_all(
            [
                self._tasks.task(position, chosen[position], seed)
                for seed in seeds
                for position in there_and_back(len(self._arms), seed)
                if arms is None or self._arms[position].arm.name in arms
            ]
        )


def there_and_back(n_arms: int, round_number: int) -> list[int]:
    """Return the order of the arms in a round of their runs: every second one backwards.

    A machine that slows down or speeds up steadily is as slow for one arm as for another so.
    """
    order = list(range(n_arms))
    return order if round_number % 2 == 0 else order[::-1]


def chosen_by(runs: Iterable[Outcome], metric: Metric | None) -> Metric | None:
    """Return the metric that trials are chosen by, where their validation has it; None: the loss.

    Translations are not written before a run has ended, so that BLEU chooses none.
    """
    records = [run.record for run in runs if run.record is not None]
    if metric is None or not all(metric.name in record["valid"] for record in records):
        return None
    return metric


def trial_loss(runs: Sequence[Outcome], metric: Metric | None) -> float | None:
    """Return the mean validation score of a trial's runs, lower is better; None where one failed.

    By a metric, or by the loss.
    """
    losses = trial_losses(runs, metric)
    return sum(losses) / len(losses) if losses else None


def trial_losses(runs: Sequence[Outcome], metric: Metric | None) -> list[float]:
    """Return the validation scores of a trial's runs, lower is better; none where one failed."""
    losses = []
    for run in runs:
        if run.record is None:
            return []
        valid = run.record["valid"]
        assert "loss" in valid, "trials are refused where there is no validation split"
        if metric is None:
            losses.append(float(valid["loss"]))
        else:
            value = float(valid[metric.name])
            losses.append(value if metric.is_lower_better else -value)
    return losses


def tune_arms(
    work: ArmWork,
    folder: StudyFolder,
    trials: Sequence[Trial],
    seeds: Seeds,
    metric: Metric | None,
    *,
    n_extensions: int,
) -> list[Trial]:
    """Make the trials, the same for every arm, and return the one that each arm chose.

    ``metric`` chooses on validation, as ``read_arms`` has it.
    Where an arm's best number lies at an edge of the grid, the next one beyond is tried by every
    arm, ``n_extensions`` times at most.
    """
    extended = folder.extended()
    tried = [*trials, *(trial_at(trials, value) for value in extended)]
    new = tried
    while True:
        work.tune(new, list(seeds.tuning))
        arms = read_arms(folder.path, read_plan(folder.path), metric)
        chosen = [arm.trial for arm in arms]
        added = None if len(extended) >= n_extensions else _next(work, chosen, tried)
        if added is None:
            return chosen
        note(f"the best lies at an edge of the grid: every arm tries {added.name} too")
        (value,) = added.settings.values()
        folder.add_extended(value)
        extended = folder.extended()
        new = [added]
        tried = [*tried, added]


def _next(work: ArmWork, chosen: Sequence[Trial], tried: Sequence[Trial]) -> Trial | None:
    """Return the next trial beyond an edge that fits the recipes of all arms; None without any."""
    for trial in beyond_edges(chosen, tried):
        problem = work.problem_of(trial)
        if not problem:
            return trial
        note(f"the best lies at an edge of the grid, and {trial.name} is not tried: {problem}")
    return None


def read_arms(folder: Path, plan: Plan, metric: Metric | None) -> list[ArmRuns]:
    """Read the runs that have ended of each arm whose trials have all ended.

    ``metric`` chooses among trials, unless the plan says that the loss does. Raises CheckpointError
    where a run is damaged.
    """
    trials = planned_trials(plan.asked.tune, plan.extended)
    by_metric = metric if plan.asked.tune_by == "metric" else None
    arms = []
    for position, settled in enumerate(plan.settled):
        place = arm_folder(folder, position, settled.name)
        trial, by = trials[0], None
        losses: dict[str, float | None] = {}
        trial_runs: dict[str, Sequence[float]] = {}
        if trial.name:
            tried = _read_trials(place, trials, plan.asked.tuning_seeds)
            if len(tried) < len(trials):
                continue
            by = chosen_by(itertools.chain(*tried.values()), by_metric)
            losses = {name: trial_loss(runs, by) for name, runs in tried.items()}
            trial_runs = {name: trial_losses(runs, by) for name, runs in tried.items()}
            ties = {name: trial_loss(runs, None) for name, runs in tried.items()}
            compared = [each.name for each in trials if _is_compared(place, each, plan)]
            trial = choose_trial(trials, losses, ties=ties, compared=compared)
        outcomes: dict[int, Outcome] = {}
        for path in _runs_of(place / trial.folder):
            seed = int(path.name[5:])
            if not _tunes(seed, plan):
                outcome = read_outcome(path)
                if outcome is not None:
                    outcomes[seed] = outcome
        begun = [each.path for each in outcomes.values() if (each.path / RUN_RECIPE).is_file()]
        if begun:
            recipe: Recipe = RunFolder(begun[0]).recipe()
        else:  # as it was asked for
            origin = str(folder / PLAN)
            text = plan.asked.recipes[settled.name]
            recipe = recipe_of(parse_toml(text, origin, ConfigError), origin)
        varied = plan.about.varied.get(settled.name, {}) if plan.about else {}
        loaded = LoadedRecipe(recipe, {}, settled.name, ())
        arm = Arm(settled.name, loaded, varied, is_varied=bool(varied))
        matched_arm = MatchedArm(arm, {}, tuple(settled.matched), settled.residual)
        arms.append(ArmRuns(matched_arm, trial, outcomes, losses, trial_runs, by))
    return arms


def _read_trials(
    place: Path, trials: Sequence[Trial], seeds: Sequence[int]
) -> dict[str, list[Outcome]]:
    """Read the runs of each trial whose runs have all ended, by its name."""
    tried = {}
    for trial in trials:
        runs = [read_trial(place / trial.folder / f"seed-{seed}") for seed in seeds]
        ended = [run for run in runs if run is not None]
        if len(ended) == len(runs):
            tried[trial.name] = ended
    return tried


def _is_compared(place: Path, trial: Trial, plan: Plan) -> bool:
    """Return whether an earlier command made other runs than the tuning's with a trial."""
    seeds = (int(path.name[5:]) for path in _runs_of(place / trial.folder))
    return any(seed not in plan.asked.seeds.tuning for seed in seeds)


def _tunes(seed: int, plan: Plan) -> bool:
    """Return whether runs of a seed tune alone: an early version's first seed was compared too."""
    asked = plan.asked
    return bool(asked.tune) and asked.tuning_seeds != [0] and seed in asked.seeds.tuning


def _runs_of(place: Path) -> list[Path]:
    return sorted(place.glob("seed-*"), key=lambda path: int(path.name[5:]))


def of_seeds(runs: ArmRuns, seeds: Sequence[int]) -> ArmRuns:
    """Return the runs of the seeds that were asked for last; more may have been before."""
    outcomes = {seed: each for seed, each in runs.outcomes.items() if seed in seeds}
    return replace(runs, outcomes=outcomes)
