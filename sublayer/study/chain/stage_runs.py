"""The runs of a chain, stage after stage: those that arms share are made once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sublayer.config.layering.layers import LoadedRecipe, vary
from sublayer.data.prepare import Data
from sublayer.study.budget.budget import ORIGIN, MatchedArm
from sublayer.study.chain.recipes import StageRecipes
from sublayer.study.chain.stages import PRETRAINING, Chain, Stage, finetuning_seed
from sublayer.study.execution.one_run import Outcome, Task
from sublayer.study.execution.shared_data import SharedData
from sublayer.study.scoring import WHOLE_TEST, Scoring
from sublayer.study.tuning import NO_TRIAL, Trial, choose_best

RunAll = Callable[[Sequence[Task]], dict[Path, Outcome]]
"""Makes runs, or what is missing of them, and returns their outcomes by their folders."""


@dataclass(frozen=True)
class StageRuns:
    """The runs of a stage of an arm."""

    stage: str
    key: str
    """What they are found by."""
    outcomes: Mapping[int, Sequence[Outcome]]
    """By the seed of pre-training those of each fine-tuning under it, failed ones included."""
    trial: Trial = NO_TRIAL
    """What was chosen."""
    tried: Mapping[str, float | None] = field(default_factory=dict)
    """What each trial scored on what is held out, None for one that failed; empty: none was made.
    """


@dataclass(frozen=True)
class Keys:
    """What the stages of arms are found by: by arm and stage."""

    by_stage: Mapping[tuple[str, str], str]

    def of(self, arm: str, stage: str) -> str:
        """Return the key of an arm's stage."""
        return self.by_stage[arm, stage]

    def distinct(self, stage: str) -> set[str]:
        """Return the keys that a stage has in any arm."""
        return {key for (_, own), key in self.by_stage.items() if own == stage}

    def folder(self, study: Path, arm: str, stage: str) -> Path:
        """Return the folder of the runs of an arm's stage."""
        return study / "stages" / f"{stage}-{self.of(arm, stage)[:10]}"


class ChainRuns:
    """Makes the runs of all arms; what is there already is taken as it is."""

    def __init__(
        self,
        chain: Chain,
        arms: Sequence[MatchedArm],
        recipes: StageRecipes,
        keys: Keys,
        data: Mapping[str, Data],
        folder: Path,
        run_all: RunAll,
        *,
        trials: Mapping[str, Sequence[Trial]],
        n_seeds: int,
        scoring: Scoring = WHOLE_TEST,
    ) -> None:
        """Take what is run: ``trials`` are by the stage, ``n_seeds`` are pre-trainings."""
        self._chain = chain
        self._arms = arms
        self._recipes = recipes
        self._keys = keys
        self._data = data
        self._folder = folder
        self._run_all = run_all
        self._trials = trials
        self._n_seeds = n_seeds
        self._scoring = scoring
        self._trains = {arm.arm.name: arm.loaded.recipe.train for arm in arms}
        self._shared = SharedData()
        self._outcomes: dict[Path, Outcome] = {}
        self._chosen: dict[tuple[str, str], Trial] = {}

    def work(self) -> dict[tuple[str, str], StageRuns]:
        """Make all runs and return them by arm and stage.

        Raises as ``run_all`` does.
        """
        self._make(self._pretrainings())
        depths = {self._chain.depth(stage) for stage in self._chain.stages}
        for depth in sorted(depths):
            stages = [each for each in self._chain.stages if self._chain.depth(each) == depth]
            self._make(self._first_trials(stages))
            self._choose(stages)
            self._make(self._all_seeds(stages))
        return dict(self._gathered())

    def _make(self, tasks: Iterator[Task]) -> None:
        """Make runs, each folder once, whatever arms have it."""
        by_path = {task.path: task for task in tasks if task.path not in self._outcomes}
        self._outcomes |= self._run_all(list(by_path.values()))

    def _pretrainings(self) -> Iterator[Task]:
        for seed in range(self._n_seeds):
            for arm in self._arms:
                name = arm.arm.name
                if not self._chain.of(name).pretrains:
                    continue
                loaded = vary(arm.loaded, {"train.seed": seed}, origin=ORIGIN)
                yield Task(
                    label=f"{self._called(name, PRETRAINING)}, seed {seed}",
                    path=self._path(name, PRETRAINING, seed),
                    loaded=loaded,
                    data=self._data[name],
                    scored=loaded.recipe,
                    scoring=self._scoring,
                )

    def _first_trials(self, stages: Sequence[Stage]) -> Iterator[Task]:
        for stage in stages:
            if len(self._trials[stage.name]) < 2:
                continue
            for trial in self._trials[stage.name]:
                for arm in self._arms:
                    yield from self._task(arm.arm.name, stage, trial, 0, 0)

    def _choose(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            trials = self._trials[stage.name]
            for arm in self._arms:
                name = arm.arm.name
                scores = self._tried(name, stage)
                self._chosen[name, stage.name] = (
                    choose_best(trials, scores) if scores else trials[0]
                )

    def _tried(self, arm: str, stage: Stage) -> dict[str, float | None]:
        trials = self._trials[stage.name]
        if len(trials) < 2:
            return {}
        scores: dict[str, float | None] = {}
        for trial in trials:
            outcome = self._outcome(arm, stage.name, trial, 0, 0)
            scores[trial.name] = _held_out(outcome)
        return scores

    def _all_seeds(self, stages: Sequence[Stage]) -> Iterator[Task]:
        for seed in range(self._n_seeds):
            for stage in stages:
                for number in range(self._n_runs(stage)):
                    for arm in self._arms:
                        trial = self._chosen[arm.arm.name, stage.name]
                        yield from self._task(arm.arm.name, stage, trial, seed, number)

    def _n_runs(self, stage: Stage) -> int:
        """Return how many runs a stage has under one pre-training."""
        return self._chain.n_runs(stage)

    def _task(self, arm: str, stage: Stage, trial: Trial, seed: int, number: int) -> Iterator[Task]:
        """Yield a run; nothing where what it starts from has failed, which is kept as its own."""
        path = self._path(arm, stage.name, seed, number, trial)
        if stage.ensemble:
            yield from self._averaged(arm, stage, path, seed, number)
            return
        start = None
        if not self._recipes.starts_fresh(arm, stage.name):
            start = self._start(arm, stage, seed)
            failure = self._outcomes[start].failure
            if failure:
                said = f"{stage.after}, which it starts from, failed: {failure}"
                self._outcomes[path] = Outcome(path, failure=said)
                return
        loaded = self._seeded(arm, stage, start, trial, seed, number)
        own = f", {trial.name}" if trial.name else ""
        seeds = f"seed {seed}" + (f", fine-tuning {number}" if stage.finetunes else "")
        yield Task(
            label=f"{self._called(arm, stage.name)}{own}, {seeds}",
            path=path,
            loaded=loaded,
            data=self._shared,
            scored=loaded.recipe,
            scoring=self._scoring,
            finetunes=stage.finetunes,
        )

    def _averaged(
        self, arm: str, stage: Stage, path: Path, seed: int, number: int
    ) -> Iterator[Task]:
        """Yield what averages runs of the same seeds; nothing where one of them has failed."""
        members = []
        for name in stage.ensemble:
            member = self._outcome(arm, name, self._chosen[arm, name], seed, number)
            if member.failure:
                said = f"{name}, of which it is an ensemble, failed: {member.failure}"
                self._outcomes[path] = Outcome(path, failure=said)
                return
            members.append(member.path)
        first = self._chain.stage(stage.ensemble[0])
        trial = self._chosen[arm, first.name]
        fresh = self._recipes.starts_fresh(arm, first.name)
        start = None if fresh else self._start(arm, first, seed)
        loaded = self._seeded(arm, first, start, trial, seed, number)
        yield Task(
            label=f"{self._called(arm, stage.name)}, seed {seed}, fine-tuning {number}",
            path=path,
            loaded=loaded,
            data=self._shared,
            scored=loaded.recipe,
            finetunes=True,
            members=tuple(members),
        )

    def _seeded(
        self, arm: str, stage: Stage, start: Path | None, trial: Trial, seed: int, number: int
    ) -> LoadedRecipe:
        loaded = self._recipes.actual(arm, stage.name, start or self._folder)
        settings = {"train.seed": finetuning_seed(seed, number) if stage.finetunes else seed}
        seeded = vary(trial.of(loaded), self._machine(arm) | settings, origin=ORIGIN)
        # What is to be said of an arm's recipe is said of the study.
        return replace(seeded, notes=())

    def _machine(self, arm: str) -> dict[str, Any]:
        """Return what was settled of the machine, which is the same for all runs of an arm."""
        train = self._trains[arm]
        return {"train.threads": train.threads, "train.precision": train.precision}

    def _start(self, arm: str, stage: Stage, seed: int) -> Path:
        """Return the run that a stage's runs start from: the first under the same pre-training."""
        if stage.after == PRETRAINING:
            return self._path(arm, PRETRAINING, seed)
        trial = self._chosen[arm, stage.after]
        return self._path(arm, stage.after, seed, 0, trial)

    def _path(
        self,
        arm: str,
        stage: str,
        seed: int,
        number: int = 0,
        trial: Trial | None = None,
    ) -> Path:
        folder = self._keys.folder(self._folder, arm, stage)
        if trial is not None and trial.name:
            folder /= trial.folder
        if stage == PRETRAINING or not self._chain.stage(stage).finetunes:
            return folder / f"seed-{seed}"
        return folder / f"seed-{finetuning_seed(seed, number)}"

    def _outcome(self, arm: str, stage: str, trial: Trial, seed: int, number: int) -> Outcome:
        return self._outcomes[self._path(arm, stage, seed, number, trial)]

    def _called(self, arm: str, stage: str) -> str:
        """Name the run of a stage by the arms that share it."""
        key = self._keys.of(arm, stage)
        names = [
            each.arm.name
            for each in self._arms
            if self._keys.by_stage.get((each.arm.name, stage)) == key
        ]
        return f"{', '.join(names)}: {stage}"

    def _gathered(self) -> Iterator[tuple[tuple[str, str], StageRuns]]:
        for arm in self._arms:
            name = arm.arm.name
            if self._chain.of(name).pretrains:
                pretrained = {
                    seed: [self._outcomes[self._path(name, PRETRAINING, seed)]]
                    for seed in range(self._n_seeds)
                }
                key = self._keys.of(name, PRETRAINING)
                yield (name, PRETRAINING), StageRuns(PRETRAINING, key, pretrained)
            for stage in self._chain.stages:
                trial = self._chosen[name, stage.name]
                outcomes = {}
                for seed in range(self._n_seeds):
                    outcomes[seed] = [
                        self._outcome(name, stage.name, trial, seed, number)
                        for number in range(self._n_runs(stage))
                    ]
                key = self._keys.of(name, stage.name)
                tried = self._tried(name, stage)
                yield (name, stage.name), StageRuns(stage.name, key, outcomes, trial, tried)


def _held_out(outcome: Outcome) -> float | None:
    """Return the score on what is held out of the training examples; None of a failure."""
    if outcome.record is None:
        return None
    score = outcome.record["valid"].get("score")
    return None if score is None else float(score)
