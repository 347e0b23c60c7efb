"""The runs of a chain as they are found: where each is, what an arm chose, what has ended."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sublayer.study.chain.kept import Kept
from sublayer.study.chain.stages import PRETRAINING, Stage, finetuning_seed
from sublayer.study.execution.one_run import Outcome
from sublayer.study.tuning import NO_TRIAL, Trial, choose_trial


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


class Gathering:
    """Finds the runs of all arms, those that are being made or those of a folder.

    A run that is not there yet has an outcome without scores, and one whose start has failed has
    that as its failure.
    """

    def __init__(self, kept: Kept, folder: Path, find: Callable[[Path], Outcome | None]) -> None:
        """Take what there is: ``find`` returns the outcome of the run in a folder, if any."""
        self._chain = kept.chain
        self._arms = [arm.name for arm in kept.arms]
        self._keys = kept.stage_keys
        self._folder = folder
        self._find = find
        self._trials = kept.trials
        self._n_seeds = kept.n_seeds
        self.tuning_number = kept.tuning_number
        self._ended: dict[str, set[Path]] = {}
        self.chosen: dict[tuple[str, str], Trial] = {}
        """What each arm's stage chose, those alone of which all trials have ended."""

    def choose(self, stage: Stage) -> None:
        """Choose among the trials of a stage, for each arm by its own scores."""
        trials = self._trials[stage.name]
        for arm in self._arms:
            scores = self._tried(arm, stage)
            if scores is not None:
                self.chosen[arm, stage.name] = self._best(arm, stage, trials, scores)

    def _best(
        self, arm: str, stage: Stage, trials: Sequence[Trial], scores: Mapping[str, float | None]
    ) -> Trial:
        """Return the trial with the highest score on what is held out, of equal ones by loss."""
        if not scores:
            return trials[0]
        losses: dict[str, float | None] = {}
        for trial in trials:
            outcome = self.outcome(arm, stage, trial, 0, self.tuning_number)
            losses[trial.name] = _held_out(outcome, "loss")
        return choose_trial(
            trials,
            {name: None if score is None else -score for name, score in scores.items()},
            ties=losses,
            compared=[
                trial.name for trial in trials if self.path(arm, stage.name, 0, 0, trial).is_dir()
            ],
        )

    def gathered(self) -> dict[tuple[str, str], StageRuns]:
        """Return the runs of all stages by arm and stage; each stage has been chosen for."""
        found = {}
        for arm in self._arms:
            if self._chain.of(arm).pretrains:
                key = self._keys.of(arm, PRETRAINING)
                outcomes = {seed: [self._pretrained(arm, seed)] for seed in range(self._n_seeds)}
                found[arm, PRETRAINING] = StageRuns(PRETRAINING, key, outcomes)
            for stage in self._chain.stages:
                found[arm, stage.name] = self._of_stage(arm, stage)
        return found

    def n_ended(self) -> dict[str, int]:
        """Count the runs of each stage that have ended among those that were looked for."""
        return {stage: len(paths) for stage, paths in self._ended.items()}

    def path(
        self,
        arm: str,
        stage: str,
        seed: int,
        number: int = 0,
        trial: Trial | None = None,
    ) -> Path:
        """Return the folder of a run."""
        folder = self._keys.folder(self._folder, arm, stage)
        if trial is not None and trial.name:
            folder /= trial.folder
        if stage == PRETRAINING or not self._chain.stage(stage).finetunes:
            return folder / f"seed-{seed}"
        return folder / f"seed-{finetuning_seed(seed, number)}"

    def start(self, arm: str, stage: Stage, seed: int) -> Path | None:
        """Return the run that a stage's runs start from: the first under the same pre-training.

        None where they start from random weights.
        """
        if stage.after != PRETRAINING:
            return self.path(arm, stage.after, seed, 0, self.chosen[arm, stage.after])
        return self.path(arm, PRETRAINING, seed) if self._chain.of(arm).pretrains else None

    def lost(self, arm: str, stage: Stage, seed: int, number: int) -> str:
        """Say why a run cannot be made: one that it takes has failed; else empty."""
        for own_arm, name in stage.members(arm) or [(arm, stage.after)]:
            failure = self._failure(own_arm, name, seed, number if stage.ensemble else 0)
            if failure:
                takes = "of which it is an ensemble" if stage.ensemble else "which it starts from"
                return f"{name}, {takes}, failed: {failure}"
        return ""

    def _failure(self, arm: str, stage: str, seed: int, number: int) -> str:
        """Return why a run has failed; empty where it has not, or an arm has none."""
        if stage == PRETRAINING:
            return self._pretrained(arm, seed).failure if self._chain.of(arm).pretrains else ""
        trial = self.chosen.get((arm, stage))
        if trial is None:
            return ""
        return self.outcome(arm, self._chain.stage(stage), trial, seed, number).failure

    def outcome(self, arm: str, stage: Stage, trial: Trial, seed: int, number: int) -> Outcome:
        """Return the outcome of a run of a stage."""
        path = self.path(arm, stage.name, seed, number, trial)
        found = self._find(path) or Outcome(path, failure=self.lost(arm, stage, seed, number))
        return self._noted(stage.name, found)

    def _pretrained(self, arm: str, seed: int) -> Outcome:
        path = self.path(arm, PRETRAINING, seed)
        found = self._find(path) or Outcome(path, failure=self.lost_start(arm, seed))
        return self._noted(PRETRAINING, found)

    def lost_start(self, arm: str, seed: int) -> str:
        """Say why a pre-training cannot be made: the arm's that it starts from failed; else ""."""
        start = self._chain.of(arm).start
        failure = self._pretrained(start, seed).failure if start else ""
        return f"{start}, which it starts from, failed: {failure}" if failure else ""

    def _noted(self, stage: str, outcome: Outcome) -> Outcome:
        if has_ended(outcome):
            self._ended.setdefault(stage, set()).add(outcome.path)
        return outcome

    def _of_stage(self, arm: str, stage: Stage) -> StageRuns:
        key = self._keys.of(arm, stage.name)
        trial = self.chosen.get((arm, stage.name))
        if trial is None:
            return StageRuns(stage.name, key, {})
        outcomes = {}
        for seed in range(self._n_seeds):
            outcomes[seed] = [
                self.outcome(arm, stage, trial, seed, number)
                for number in range(self._chain.n_runs(stage))
            ]
        return StageRuns(stage.name, key, outcomes, trial, self._tried(arm, stage) or {})

    def _tried(self, arm: str, stage: Stage) -> dict[str, float | None] | None:
        """Return what each trial scored, empty of a single one; None while any has not ended."""
        trials = self._trials[stage.name]
        if len(trials) < 2:
            return {}
        number = self.tuning_number
        outcomes = {trial.name: self.outcome(arm, stage, trial, 0, number) for trial in trials}
        if not all(map(has_ended, outcomes.values())):
            return None
        return {name: _held_out(outcome) for name, outcome in outcomes.items()}


def has_ended(outcome: Outcome) -> bool:
    """Return whether a run was scored, or failed."""
    return outcome.test is not None or bool(outcome.failure)


def _held_out(outcome: Outcome, metric: str = "score") -> float | None:
    """Return a metric on what is held out of the training examples; None of a failure."""
    if outcome.record is None:
        return None
    value = outcome.record["valid"].get(metric)
    return None if value is None else float(value)
