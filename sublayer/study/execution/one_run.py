"""A run of a study: train, score, keep."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from sublayer.config.layering.layers import LoadedRecipe
from sublayer.config.layering.run_recipe import read_run_recipe
from sublayer.config.layering.sources import RUN_RECIPE
from sublayer.config.recipe import Recipe
from sublayer.counts import count
from sublayer.data.prepare import Data
from sublayer.errors import CheckpointError, Interrupted, TrainingError
from sublayer.evaluation.split_work import ALONE
from sublayer.files.checkpoints import checkpoint_path
from sublayer.files.saved_record import RECORD, read_record
from sublayer.files.storage import write_json
from sublayer.files.typed import Content, Number, Typed, read_typed
from sublayer.loading import CHECKPOINTS_NAME, load
from sublayer.objective.families import family_of
from sublayer.objective.family import Scored, Scores
from sublayer.runs.finetuning import SCORES
from sublayer.runs.folder import ENSEMBLE
from sublayer.runs.items import write_items
from sublayer.runs.run import train_run
from sublayer.study.execution.ensemble_run import score_ensemble
from sublayer.study.execution.finetuned_run import finetune_run, read_scores
from sublayer.study.execution.shared_data import SharedData
from sublayer.study.inspection import Inspecting, inspect_run, read_layers
from sublayer.study.scoring import WHOLE_TEST, Scoring
from sublayer.system.machine import choose_device
from sublayer.system.stages import stage
from sublayer.training.progress import Progress

TEST, VALID, FAILURE = "test.json", "valid.json", "failure.json"
_REMEDY = "remove the file, and the same command makes it anew"


class _Failure(Typed):
    message: str


class _Scores(Typed):
    """The metrics of what was scored, by name; ``signature`` says how translations are scored."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number | list[Number]] = Field(init=False)
    loss: Number
    signature: dict[str, str] | None = None
    items_sha256: str | None = None
    """Of the file of its items."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: its record and test scores, or the message of its failure."""

    path: Path
    record: Mapping[str, Any] | None = None
    """What ``record.json`` keeps; None for a run that failed, and an ensemble, which has none."""
    test: Mapping[str, float] | None = None
    """Scores by metric, of the split that the study names; None for a run that failed."""
    failure: str = ""
    """Why it failed; empty for a run that finished."""


@dataclass(frozen=True)
class Task:
    """A run of a study that is to be made, or is there."""

    label: str
    """The arm, its trial and the seed, for people."""
    path: Path
    loaded: LoadedRecipe
    data: Data | SharedData
    """Its data, or where they are prepared once the run is made: of one that starts from another
    they are not known before that has ended."""
    scored: Recipe
    """The recipe by whose objective it is scored."""
    scoring: Scoring = WHOLE_TEST
    """What it is scored on, and how."""
    finetunes: bool = False
    """Whether it is a stage of tasks, fine-tuned and scored as `sublayer finetune` does."""
    is_scored: bool = True
    """Whether it is scored on the study's split; a trial is not: validation chooses."""
    members: Sequence[Path] = ()
    """Runs whose answers are averaged: then nothing is trained, and ``loaded`` is the first's."""
    inspecting: Inspecting | None = None
    """What is measured inside it, of the text that it is scored on; None: nothing."""
    plan: Mapping[str, Any] | None = None
    """The study's sealed plan, kept where the run begins; None of one that sealed none."""

    @property
    def scores(self) -> Path:
        """The file of its scores, of a text named after the split."""
        return self.path / (SCORES if self.finetunes else f"{self.scoring.split}.json")

    @property
    def checksums(self) -> Mapping[str, str]:
        """Those of its data; none where they are not prepared yet."""
        return self.data.checksums if isinstance(self.data, Data) else {}

    def find_data(self) -> Data:
        """Return its data, prepared now if need be."""
        return self.data if isinstance(self.data, Data) else self.data.of(self.loaded.recipe)


def interruption(n_done: int, n_runs: int) -> Interrupted:
    """Say how far a study has come that was stopped, and how it goes on."""
    return Interrupted(
        f"interrupted with {n_done} of {count(n_runs, 'run')} done, and the others saved; the same "
        "command resumes"
    )


def is_finished(task: Task) -> bool:
    """Return whether a run has ended: it failed, or was trained, scored and inspected.

    Raises CheckpointError where what an inspection left is damaged.
    """
    if task.members:
        return task.scores.exists()
    if not task.is_scored and (task.path / RECORD).exists():
        return True
    if task.inspecting is None or (task.path / FAILURE).exists():
        return _has_ended(task.path, task.scores)
    is_inspected = read_layers(task.path, task.inspecting) is not None
    return is_inspected and _has_ended(task.path, task.scores)


def _has_ended(path: Path, scores: Path) -> bool:
    if (path / FAILURE).exists():
        return True
    return (path / RECORD).exists() and scores.exists()


def finish_run(task: Task, progress: Progress, *, device: str | None) -> Outcome:
    """Train, score and inspect a run, or what is missing of that, and return its outcome.

    ``device`` is as on the command line; None for the best there is. A training that fails is kept
    as a failure; a trained run keeps its model, not its checkpoints but those of
    ``train.keep_steps``. Raises CheckpointError where
    what the run left is damaged, and Interrupted.
    """
    path, loaded = task.path, task.loaded
    if task.members:
        return Outcome(path, test=_ensemble_scores(task, device))
    failure = _read(path / FAILURE, _Failure)
    if failure is not None:
        return Outcome(path, failure=failure.message)
    if isinstance(task.data, SharedData) and task.is_scored and is_finished(task):
        # Data that are not prepared are not prepared for nothing.
        _tidy(task)
        return Outcome(path, read_record(path), _read_scored(task))
    data = task.find_data()
    try:
        if task.finetunes:
            record = finetune_run(loaded, path, data, progress, device=device, plan=task.plan)
        else:
            record = train_run(
                loaded,
                path,
                resume=True,
                device=device,
                progress=progress,
                data=data,
                replans=False,
                plan=task.plan,
            )
    except TrainingError as error:
        write_json(path / FAILURE, {"message": str(error)})
        return Outcome(path, failure=str(error))
    if not task.is_scored:
        _tidy(task)
        return Outcome(path, record)
    test = _read_scored(task)
    if test is None:
        with stage(f"scoring the {task.scoring.split_name} split"):
            scored = score_run(task, device=device)
        # The scores are written last: where they stand, the items do.
        checksum = {}
        if scored.items is not None:
            metrics = family_of(loaded.recipe.objective).tables()
            checksum["items_sha256"] = write_items(path, scored.items, metrics)
        test = scored.scores
        write_json(task.scores, {**test, **checksum})
    if task.inspecting is not None:
        with stage(f"inspecting {task.inspecting.what}"):
            split = task.scoring.split_of(data)
            inspect_run(path, loaded.recipe, split, task.inspecting, device=device)
    _tidy(task)
    return Outcome(path, record, test)


def _ensemble_scores(task: Task, device: str | None) -> Scores:
    scores = read_scores(task.path)
    if scores is not None:
        return scores
    data = task.find_data()
    recipe = task.loaded.recipe
    return score_ensemble(task.path, task.members, recipe, data, device=device, plan=task.plan)


def _tidy(task: Task) -> None:
    """Take away the checkpoints of a run that is scored, but for those that it keeps by steps."""
    root = task.path / CHECKPOINTS_NAME
    kept = [checkpoint_path(root, step) for step in task.loaded.recipe.train.keep_steps]
    if not kept:
        shutil.rmtree(root, ignore_errors=True)
        return
    for path in root.iterdir() if root.is_dir() else ():
        if path in kept:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _read_scored(task: Task) -> Scores | None:
    if task.finetunes:
        return read_scores(task.path)
    return read_test(task.scores, task.loaded.recipe)


def read_trial(path: Path) -> Outcome | None:
    """Read the outcome of a run that tunes, which is not scored; None where it has not ended."""
    failure = _read(path / FAILURE, _Failure)
    if failure is not None:
        return Outcome(path, failure=failure.message)
    return Outcome(path, read_record(path)) if (path / RECORD).exists() else None


def read_outcome(path: Path) -> Outcome | None:
    """Read the outcome of a run that has ended; None where it has not.

    Raises CheckpointError where what the run left is damaged.
    """
    failure = _read(path / FAILURE, _Failure)
    if failure is not None:
        return Outcome(path, failure=failure.message)
    if (path / ENSEMBLE).exists():
        averaged = read_scores(path)
        return None if averaged is None else Outcome(path, test=averaged)
    files = (path / TEST, path / VALID, path / SCORES)
    scores = next((each for each in files if each.exists()), path / TEST)
    if not _has_ended(path, scores):
        return None
    if scores.name == SCORES:
        return Outcome(path, read_record(path), read_scores(path))
    test = read_test(scores, read_run_recipe(path / RUN_RECIPE))
    return Outcome(path, read_record(path), test)


def score_test(run: Path, data: Data, recipe: Recipe, *, device: str | None) -> Scored:
    """Score the test split under a run's model, by the metrics of its recipe's objective.

    ``device`` is as on the command line; None for the best there is. Raises CheckpointError where
    the run has no model, or a damaged one.
    """
    model = load(run, device=choose_device(device))
    family = family_of(recipe.objective)
    assert data.test is not None, "a comparison without a test split is refused"
    return family.score(model, data.test, recipe, "test", ALONE)


def score_run(task: Task, *, device: str | None) -> Scored:
    """Score the study's split under a run's model, by the metrics of its recipe's objective.

    ``device`` is as on the command line; None for the best there is. Raises CheckpointError where
    the run has no model, or a damaged one.
    """
    model = load(task.path, device=choose_device(device))
    scoring, recipe = task.scoring, task.scored
    family = family_of(recipe.objective)
    split = scoring.split_of(task.find_data())
    if scoring.stride is None and scoring.tokens is None:
        return family.score(model, split, recipe, "test", ALONE)
    assert family.score_at_stride is not None, "a study is checked before its runs"
    stride = scoring.stride_of(recipe)
    return family.score_at_stride(model, split, recipe, stride, scoring.tokens)


def read_test(path: Path, recipe: Recipe) -> Scores | None:
    """Read a run's test scores, None without any; raise CheckpointError where they are damaged."""
    scores = _read(path, _Scores)
    if scores is None:
        return None
    test = scores.model_dump(exclude_none=True, exclude={"items_sha256"})
    for metric in family_of(recipe.objective).metrics:
        # Intervals are lists; what arms are compared by is not.
        if isinstance(test.get(metric.name), list):
            raise CheckpointError(f"{path} is damaged: {metric.name} is no number: {_REMEDY}")
    return test


def _read(path: Path, kind: type[Content]) -> Content | None:
    """Read what a run of the study left; None where it left none."""
    try:
        return read_typed(path, kind, CheckpointError)
    except FileNotFoundError:
        return None
    except CheckpointError as error:
        raise CheckpointError(f"{error}: {_REMEDY}") from None
