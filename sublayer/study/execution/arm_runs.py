"""Which runs a comparison has, and what came of those of each arm."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sublayer.config.layering.layers import vary
from sublayer.config.recipe import Recipe
from sublayer.data.prepare import Data
from sublayer.study.budget.budget import ORIGIN, MatchedArm
from sublayer.study.execution.in_turn import InTurn
from sublayer.study.execution.one_run import Outcome, Task
from sublayer.study.execution.side_by_side import SideBySide
from sublayer.study.folder import StudyFolder
from sublayer.study.scoring import WHOLE_TEST, Scoring
from sublayer.study.tuning import Trial, choose_trial

RunAll = Callable[[Sequence[Task]], dict[Path, Outcome]]
"""Makes runs, or what is missing of them, and returns their outcomes by their folders."""


@dataclass(frozen=True)
class ArmRuns:
    """The runs of one arm: the trial that was chosen, and the outcome of each seed under it."""

    matched_arm: MatchedArm
    trial: Trial
    outcomes: dict[int, Outcome]
    """By seed, those that failed included."""
    losses: Mapping[str, float | None] = field(default_factory=dict)
    """The validation loss of each trial by name, None for one that failed; empty: none was made."""


class _Tasks:
    """The runs of a study: an arm by its position, a trial and a seed each."""

    def __init__(
        self,
        folder: StudyFolder,
        matched_arms: Sequence[MatchedArm],
        data: Mapping[str, Data],
        scoring: Scoring,
    ) -> None:
        self._folder = folder
        self._matched_arms = matched_arms
        self._data = data
        self._scoring = scoring
        baseline = matched_arms[0]
        self._objective = baseline.loaded.recipe.objective
        self._fingerprint = data[baseline.arm.name].tokenizer.fingerprint

    def task(self, position: int, trial: Trial, seed: int) -> Task:
        arm = self._matched_arms[position]
        tried = trial.of(arm.loaded)
        loaded = vary(tried, {"train.seed": seed}, origin=ORIGIN)
        # The one trial of a study that tunes nothing has no name.
        name = f"{arm.arm.name} {trial.name}" if trial.name else arm.arm.name
        data = self._data[arm.arm.name]
        return Task(
            label=f"{name}, seed {seed}",
            path=self.path(position, trial, seed),
            loaded=loaded,
            data=data,
            scored=self._scored(loaded.recipe, data),
            scoring=self._scoring,
        )

    def path(self, position: int, trial: Trial, seed: int) -> Path:
        name = self._matched_arms[position].arm.name
        return self._folder.run(position, name, trial.name, seed)

    def further(self, chosen: Sequence[Trial], n_seeds: int) -> list[Task]:
        """Return the runs of all seeds but 0, under the trial that each arm has chosen."""
        tasks = []
        for seed in range(1, n_seeds):
            for position in there_and_back(len(chosen), seed):
                tasks.append(self.task(position, chosen[position], seed))
        return tasks

    def _scored(self, recipe: Recipe, data: Data) -> Recipe:
        """Return the recipe with the baseline's masked tokens and pairs, if ids are the same.

        How answers are written and read off is an arm's own.
        """
        if data.tokenizer.fingerprint != self._fingerprint or recipe.data.tasks is not None:
            return recipe
        return recipe.model_copy(update={"objective": self._objective})


def run_arms(
    folder: StudyFolder,
    matched_arms: Sequence[MatchedArm],
    trials: Sequence[Trial],
    data: Mapping[str, Data],
    *,
    n_seeds: int,
    device: str | None,
    jobs: int = 1,
    scoring: Scoring = WHOLE_TEST,
) -> list[ArmRuns]:
    """Run what is not yet run: every trial of every arm on seed 0, then the chosen on other seeds.

    Seeds are 0 to ``n_seeds`` - 1. All arms have a seed's run before the next seed has any, and all
    try a setting before the next is tried, in turn from the first arm to the last and back.
    ``data`` is each arm's, for all its runs; encoders are scored on the pairs and masks of the
    first arm's objective. A run whose training fails is kept as a failure and stops nothing;
    trained runs keep their model, not their checkpoints. ``jobs`` runs are made at a time, and each
    is scored as ``scoring`` says. Raises
    CheckpointError where what a run left is damaged, and Interrupted; of several at a time, also
    what ``SideBySide`` does.
    """
    total = len(matched_arms) * (len(trials) + n_seeds - 1)
    run_all: RunAll = InTurn(total, device)
    if jobs > 1:
        run_all = SideBySide(total, jobs, device)
    tasks = _Tasks(folder, matched_arms, data, scoring)
    positions = range(len(matched_arms))
    first = []
    for number, trial in enumerate(trials):
        first += [
            tasks.task(position, trial, 0) for position in there_and_back(len(positions), number)
        ]
    by_trial: list[dict[str, float | None]] = []
    if len(trials) == 1:
        # Nothing is chosen, so that no run waits for those of seed 0.
        chosen = [trials[0] for _ in positions]
        outcomes = run_all([*first, *tasks.further(chosen, n_seeds)])
    else:
        outcomes = run_all(first)
        chosen = []
        for position in positions:
            losses = {}
            for trial in trials:
                losses[trial.name] = _valid_loss(outcomes[tasks.path(position, trial, 0)])
            chosen.append(choose_trial(trials, losses))
            by_trial.append(losses)
        outcomes |= run_all(tasks.further(chosen, n_seeds))
    by_arm = []
    for position, trial in enumerate(chosen):
        by_seed = {seed: outcomes[tasks.path(position, trial, seed)] for seed in range(n_seeds)}
        tried = by_trial[position] if by_trial else {}
        by_arm.append(ArmRuns(matched_arms[position], trial, by_seed, tried))
    return by_arm


def there_and_back(n_arms: int, round_number: int) -> list[int]:
    """Return the order of the arms in a round of their runs: every second one backwards.

    A machine that slows down or speeds up steadily is as slow for one arm as for another so.
    """
    order = list(range(n_arms))
    return order if round_number % 2 == 0 else order[::-1]


def _valid_loss(outcome: Outcome) -> float | None:
    if outcome.record is None:
        return None
    valid = outcome.record["valid"]
    assert "loss" in valid, "trials are refused where there is no validation split"
    return float(valid["loss"])
