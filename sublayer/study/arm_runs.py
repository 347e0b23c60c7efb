"""The runs of arms of one stage: made, tuned, or found in a folder."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

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
from sublayer.study.folder import StudyFolder, arm_folder
from sublayer.study.inspection import Inspecting
from sublayer.study.jobs.run import Job, Outcome, RunAll, read_outcome, read_trial
from sublayer.study.plan_file import PLAN, Plan, read_plan
from sublayer.study.question import Seeds
from sublayer.study.scoring import WHOLE_TEST, Scoring
from sublayer.study.stages import PRETRAINING
from sublayer.system.stages import note


class ArmFacts(Typed):
    """The size and the settled settings of an arm."""

    name: str
    parameters: dict[str, Count | None]
    flops_per_token: Count
    steps: Count
    """Of its own recipe; 0 where that is not trained."""
    mismatch: Number
    matched: tuple[str, ...]


def describe_arm(arm: Arm, model: ResolvedModel, steps: int) -> ArmFacts:
    """Count parameters and operations of an arm, with its resolved ``model``."""
    recipe = arm.loaded.recipe
    return ArmFacts(
        name=arm.name,
        parameters=asdict(count_parameters(model, recipe.objective)),
        flops_per_token=flops_per_token(model, recipe.data.context, recipe.objective),
        steps=steps,
        mismatch=arm.mismatch,
        matched=arm.matched,
    )


def describe_run(arm: Arm) -> ArmFacts:
    """Count parameters and operations of an arm whose recipe is that of a run."""
    recipe = arm.loaded.recipe
    assert isinstance(recipe, ResolvedRecipe), "the recipe of a run is resolved"
    return describe_arm(arm, recipe.model, recipe.train.steps)


@dataclass(frozen=True)
class StageRuns:
    """The runs of a stage of an arm, and the trial that was chosen for them."""

    outcomes: Mapping[int, Sequence[Outcome]]
    """By the seed of the first stage those of each run under it, failed ones included."""
    trial: Trial = NO_TRIAL
    losses: Mapping[str, float | None] = field(default_factory=dict)
    """The validation score of each trial by name, lower the better; None for one that failed;
    empty: none was made."""
    trial_runs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The scores of each trial's runs, of which ``losses`` are the means."""
    chosen_by: Metric | None = None
    """The metric of those scores, negative where higher is better; None: the loss."""

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

    def values(self, metric: Metric) -> dict[int, float]:
        """Return a metric by seed, of the runs that have it: short texts are not scored."""
        found = {}
        for seed, outcome in self.seeded():
            value = None if outcome.test is None else outcome.test.get(metric.name)
            if value is not None:
                found[seed] = float(value)
        return found


Runs = Mapping[tuple[str, str], StageRuns]
"""The runs of a study by arm and stage; without further stages that is ``PRETRAINING``."""


def failed_runs(runs: Runs) -> Iterator[tuple[str, str, int, Outcome]]:
    """Yield each failed run with arm, stage and seed; of shared ones for each arm."""
    for (arm, stage), stage_runs in runs.items():
        for seed, outcome in stage_runs.seeded():
            if outcome.failure:
                yield arm, stage, seed, outcome


class ArmWork:
    """Makes the runs of a study's arms: first every trial of every arm, then seeds of the chosen.

    ``data`` is each arm's, for all its runs; encoders are scored on the pairs and masks of the
    first arm's objective. A run whose training fails is kept as a failure and stops nothing;
    trained runs keep their model, not their checkpoints. Scored runs are inspected as well, as
    ``inspecting`` says.
    """

    def __init__(
        self,
        folder: StudyFolder,
        matched_arms: Sequence[Arm],
        data: Mapping[str, Data],
        run_all: RunAll,
        *,
        scoring: Scoring = WHOLE_TEST,
        inspecting: Inspecting | None = None,
    ) -> None:
        self._folder = folder
        self._arms = matched_arms
        self._data = data
        self._run_all = run_all
        self._scoring = scoring
        self._inspecting = inspecting
        baseline = matched_arms[0]
        self._objective = baseline.loaded.recipe.objective
        self._fingerprint = data[baseline.name].tokenizer.fingerprint

    def tune(
        self, trials: Sequence[Trial], seeds: Seeds, metric: Metric | None, *, n_extensions: int
    ) -> list[Trial]:
        """Make the trials, the same for every arm, and return the one that each arm chose.

        ``metric`` chooses on validation, as ``read_runs`` has it. Where an arm's best number lies
        at an edge of the grid, the next one beyond is tried by every arm, ``n_extensions`` times at
        most. All arms try a setting before the next is tried, in turn from the first to the last
        and back. Raises as the runs do.
        """
        folder = self._folder
        extended = folder.extended()
        tried = [*trials, *(trial_at(trials, value) for value in extended)]
        new = tried
        while True:
            self._run_all(
                [
                    self._task(position, trial, seed, is_scored=False)
                    for seed in seeds.tuning
                    for number, trial in enumerate(new)
                    for position in there_and_back(len(self._arms), number)
                ]
            )
            _, runs = read_runs(folder.path, read_plan(folder.path), metric)
            chosen = [stage.trial for stage in runs.values()]
            added = None if len(extended) >= n_extensions else self._next(chosen, tried)
            if added is None:
                return chosen
            note(f"the best lies at an edge of the grid: every arm tries {added.name} too")
            (value,) = added.settings.values()
            folder.add_extended(value)
            extended = folder.extended()
            new = [added]
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
                self._task(position, chosen[position], seed)
                for seed in seeds
                for position in there_and_back(len(self._arms), seed)
                if arms is None or self._arms[position].name in arms
            ]
        )

    def _task(self, position: int, trial: Trial, seed: int, *, is_scored: bool = True) -> Job:
        arm = self._arms[position]
        loaded = vary(trial.of(arm.loaded), {"train.seed": seed}, origin=ORIGIN)
        name = arm.name
        data = self._data[name]
        scored = loaded.recipe
        # Where ids are the same, on the baseline's masked tokens and pairs; how answers are written
        # and read off is an arm's own.
        if data.tokenizer.fingerprint == self._fingerprint and scored.data.tasks is None:
            scored = scored.model_copy(update={"objective": self._objective})
        # The one trial of a study that tunes nothing has no name.
        label = f"{name} {trial.name}" if trial.name else name
        return Job(
            label=f"{label}, seed {seed}",
            path=self._folder.run(position, name, trial.name, seed),
            loaded=loaded,
            data=data,
            scored=scored,
            scoring=self._scoring,
            inspecting=self._inspecting if is_scored else None,
            is_scored=is_scored,
            plan=self._folder.last_seal(),
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


def read_runs(folder: Path, plan: Plan, metric: Metric | None) -> tuple[list[Arm], Runs]:
    """Read the runs that have ended of a study without further stages, and the arms they are of.

    An arm's recipe is that of its first run. An arm is missing until all its trials have ended.
    ``metric`` chooses among them, unless the plan says that the loss does. Raises CheckpointError
    where a run is damaged.
    """
    trials = planned_trials(plan.asked.tune, plan.extended)
    by_metric = metric if plan.asked.tune_by == "metric" else None
    asked = {arm.name: arm for arm in asked_arms(folder, plan)}
    arms: list[Arm] = []
    runs: dict[tuple[str, str], StageRuns] = {}
    for position, settled in enumerate(plan.settled):
        place = arm_folder(folder, position, settled.name)
        stage = StageRuns({}, trials[0])
        if stage.trial.name:
            tried = _read_trials(place, trials, plan.asked.tuning_seeds)
            if len(tried) < len(trials):
                continue
            stage = _choose(place, trials, tried, by_metric, plan)
        outcomes: dict[int, list[Outcome]] = {}
        arm = asked[settled.name]
        for path in _runs_of(place / stage.trial.folder):
            seed = int(path.name[5:])
            outcome = None if _tunes(seed, plan) else read_outcome(path)
            if outcome is None:
                continue
            outcomes[seed] = [outcome]
            if not isinstance(arm.loaded.recipe, ResolvedRecipe) and (path / RUN_RECIPE).is_file():
                recipe = RunFolder(path).recipe()
                arm = replace(arm, loaded=LoadedRecipe(recipe, {}, settled.name, ()))
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
        runs[settled.name, PRETRAINING] = replace(stage, outcomes=outcomes)
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


def _choose(
    place: Path,
    trials: Sequence[Trial],
    tried: Mapping[str, Sequence[Outcome]],
    metric: Metric | None,
    plan: Plan,
) -> StageRuns:
    """Choose among the trials of an arm, whose runs are ``tried``."""
    by = chosen_by(itertools.chain(*tried.values()), metric)
    losses = {name: trial_loss(runs, by) for name, runs in tried.items()}
    trial_runs = {name: trial_losses(runs, by) for name, runs in tried.items()}
    ties = {name: trial_loss(runs, None) for name, runs in tried.items()}
    compared = [trial.name for trial in trials if _is_compared(place, trial, plan)]
    trial = choose_trial(trials, losses, ties=ties, compared=compared)
    return StageRuns({}, trial, losses, trial_runs, by)


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


def of_seeds(runs: Runs, seeds: Sequence[int]) -> dict[tuple[str, str], StageRuns]:
    """Return the runs of the seeds that were asked for last; more may have been before."""
    kept = {}
    for key, stage in runs.items():
        outcomes = {seed: own for seed, own in stage.outcomes.items() if seed in seeds}
        kept[key] = replace(stage, outcomes=outcomes)
    return kept
