"""The runs of a chain, stage after stage: those that arms share are made once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sublayer.config.layering.layers import LoadedRecipe, vary
from sublayer.data.prepare import Data
from sublayer.study.budget.match import ORIGIN, MatchedArm
from sublayer.study.chain.gathering import Gathering, StageRuns
from sublayer.study.chain.kept import Kept
from sublayer.study.chain.recipes import StageRecipes
from sublayer.study.chain.stages import PRETRAINING, Stage, finetuning_seed
from sublayer.study.execution.arm_runs import there_and_back
from sublayer.study.execution.one_run import Outcome, Task
from sublayer.study.execution.shared_data import SharedData
from sublayer.study.scoring import WHOLE_TEST, Scoring
from sublayer.study.tuning import Trial

RunAll = Callable[[Sequence[Task]], dict[Path, Outcome]]
"""Makes runs, or what is missing of them, and returns their outcomes by their folders."""


class ChainRuns:
    """Makes the runs of all arms; what is there already is taken as it is."""

    def __init__(
        self,
        kept: Kept,
        arms: Sequence[MatchedArm],
        recipes: StageRecipes,
        data: Mapping[str, Data],
        folder: Path,
        run_all: RunAll,
        *,
        scoring: Scoring = WHOLE_TEST,
        plan: Mapping[str, Any] | None = None,
    ) -> None:
        """Take what is run: ``data`` are those of pre-training, by arm, ``plan`` is sealed."""
        self._plan = plan
        self._kept = kept
        self._chain = kept.chain
        self._arms = arms
        self._recipes = recipes
        self._keys = kept.stage_keys
        self._data = data
        self._folder = folder
        self._run_all = run_all
        self._scoring = scoring
        self._trains = {arm.arm.name: arm.loaded.recipe.train for arm in arms}
        self._shared = SharedData()
        self._outcomes: dict[Path, Outcome] = {}
        self._found = Gathering(kept, folder, self._outcomes.get)

    def work(self) -> dict[tuple[str, str], StageRuns]:
        """Make all runs and return them by arm and stage.

        Raises as ``run_all`` does.
        """
        names = [arm.arm.name for arm in self._arms]
        for n_starts in sorted({self._chain.n_starts(name) for name in names}):
            self._make(self._pretrainings(n_starts))
        depths = {self._chain.depth(stage) for stage in self._chain.stages}
        for depth in sorted(depths):
            stages = [each for each in self._chain.stages if self._chain.depth(each) == depth]
            self._make(self._first_trials(stages))
            for stage in stages:
                self._found.choose(stage)
            self._make(self._all_seeds(stages))
        return self._found.gathered()

    def _make(self, tasks: Iterator[Task]) -> None:
        """Make runs, each folder once, whatever arms have it."""
        by_path = {task.path: task for task in tasks if task.path not in self._outcomes}
        self._outcomes |= self._run_all(list(by_path.values()))

    def _pretrainings(self, n_starts: int) -> Iterator[Task]:
        """Yield the pre-trainings that follow so many others."""
        for seed in range(self._kept.n_seeds):
            for position in there_and_back(len(self._arms), seed):
                arm = self._arms[position]
                name = arm.arm.name
                own = self._chain.of(name)
                if not own.pretrains or self._chain.n_starts(name) != n_starts:
                    continue
                if self._found.lost_start(name, seed):
                    continue
                loaded = vary(arm.loaded, {"train.seed": seed}, origin=ORIGIN)
                if own.start:
                    start = self._found.path(own.start, PRETRAINING, seed)
                    loaded = replace(self._recipes.started(name, loaded, start), notes=())
                yield Task(
                    label=f"{self._called(name, PRETRAINING)}, seed {seed}",
                    path=self._found.path(name, PRETRAINING, seed),
                    loaded=loaded,
                    data=self._data[name],
                    scored=loaded.recipe,
                    scoring=self._scoring,
                    plan=self._plan,
                )

    def _first_trials(self, stages: Sequence[Stage]) -> Iterator[Task]:
        for stage in stages:
            if len(self._kept.trials[stage.name]) < 2:
                continue
            for trial in self._kept.trials[stage.name]:
                for arm in self._arms:
                    number = self._kept.tuning_number
                    yield from self._task(arm.arm.name, stage, trial, 0, number)

    def _all_seeds(self, stages: Sequence[Stage]) -> Iterator[Task]:
        for seed in range(self._kept.n_seeds):
            for stage in stages:
                for number in range(self._chain.n_runs(stage)):
                    for arm in self._arms:
                        trial = self._found.chosen[arm.arm.name, stage.name]
                        yield from self._task(arm.arm.name, stage, trial, seed, number)

    def _task(self, arm: str, stage: Stage, trial: Trial, seed: int, number: int) -> Iterator[Task]:
        """Yield a run; nothing where what it starts from has failed."""
        if self._found.lost(arm, stage, seed, number):
            return
        if stage.ensemble:
            yield self._averaged(arm, stage, seed, number)
            return
        start = self._found.start(arm, stage, seed)
        loaded = self._seeded(arm, stage, start, trial, seed, number)
        own = f", {trial.name}" if trial.name else ""
        seeds = f"seed {seed}" + (f", fine-tuning {number}" if stage.finetunes else "")
        yield Task(
            label=f"{self._called(arm, stage.name)}{own}, {seeds}",
            path=self._found.path(arm, stage.name, seed, number, trial),
            loaded=loaded,
            data=self._shared,
            scored=loaded.recipe,
            scoring=self._scoring,
            finetunes=stage.finetunes,
            plan=self._plan,
        )

    def _averaged(self, arm: str, stage: Stage, seed: int, number: int) -> Task:
        """Return what averages runs of the same seeds, none of which has failed."""
        members = [
            self._found.path(*member, seed, number, self._found.chosen[member])
            for member in stage.members(arm)
        ]
        of, name = stage.members(arm)[0]
        first = self._chain.stage(name)
        trial = self._found.chosen[of, name]
        start = self._found.start(of, first, seed)
        loaded = self._seeded(of, first, start, trial, seed, number)
        return Task(
            label=f"{self._called(arm, stage.name)}, seed {seed}, fine-tuning {number}",
            path=self._found.path(arm, stage.name, seed, number),
            loaded=loaded,
            data=self._shared,
            scored=loaded.recipe,
            finetunes=True,
            members=tuple(members),
            plan=self._plan,
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

    def _called(self, arm: str, stage: str) -> str:
        """Name the run of a stage by the arms that share it."""
        key = self._keys.of(arm, stage)
        names = [
            each.arm.name
            for each in self._arms
            if self._keys.by_stage.get((each.arm.name, stage)) == key
        ]
        return f"{', '.join(names)}: {stage}"
