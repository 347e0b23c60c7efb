"""A run of a study: train, score on the test split, keep."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from sublayer.config.layering.layers import LoadedRecipe
from sublayer.config.recipe import Recipe
from sublayer.data.prepare import Data
from sublayer.errors import CheckpointError, TrainingError
from sublayer.evaluation.split_work import ALONE
from sublayer.files.saved_record import RECORD
from sublayer.files.typed import Content, Number, Typed, read_typed
from sublayer.loading import load
from sublayer.objective.families import family_of
from sublayer.objective.family import Scored, Scores
from sublayer.runs.items import write_items
from sublayer.runs.run import train_run
from sublayer.study.results import write_json
from sublayer.system.machine import choose_device
from sublayer.training.progress import Progress

_TEST, _FAILURE = "test.json", "failure.json"
_REMEDY = "remove the file, and the same command makes it anew"


class _Failure(Typed):
    message: str


class _Scores(Typed):
    """The metrics of a test split by name; ``signature`` says how translations are scored."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number | list[Number]] = Field(init=False)
    loss: Number
    signature: dict[str, str] | None = None


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: its record and test scores, or the message of its failure."""

    path: Path
    record: Mapping[str, Any] | None = None
    """What ``record.json`` keeps; None for a run that failed."""
    test: Mapping[str, float] | None = None
    """Scores of the test split by metric; None for a run that failed."""
    failure: str = ""
    """Why it failed; empty for a run that finished."""


@dataclass(frozen=True)
class Task:
    """A run of a study that is to be made, or is there."""

    label: str
    """The arm, its trial and the seed, for people."""
    path: Path
    loaded: LoadedRecipe
    data: Data
    scored: Recipe
    """The recipe by whose objective the test split is scored."""


def is_finished(path: Path) -> bool:
    """Return whether a run has ended: it failed, or was trained and scored."""
    if (path / _FAILURE).exists():
        return True
    return (path / RECORD).exists() and (path / _TEST).exists()


def finish_run(task: Task, progress: Progress, *, device: str | None) -> Outcome:
    """Train and score a run, or what is missing of that, and return its outcome.

    ``device`` is as on the command line; None for the best there is. A training that fails is kept
    as a failure; a trained run keeps its model, not its checkpoints. Raises CheckpointError where
    what the run left is damaged, and Interrupted.
    """
    path, loaded, data = task.path, task.loaded, task.data
    failure = _read(path / _FAILURE, _Failure)
    if failure is not None:
        return Outcome(path, failure=failure.message)
    try:
        record = train_run(loaded, path, resume=True, device=device, progress=progress, data=data)
    except TrainingError as error:
        write_json(path / _FAILURE, {"message": str(error)})
        return Outcome(path, failure=str(error))
    test = _read_test(path / _TEST, loaded.recipe)
    if test is None:
        scored = score_test(path, data, task.scored, device=device)
        # The scores are written last: where they stand, the items do.
        if scored.items is not None:
            metrics = family_of(loaded.recipe.objective).tables()
            write_items(path, scored.items, metrics)
        test = scored.scores
        write_json(path / _TEST, test)
    shutil.rmtree(path / "checkpoints", ignore_errors=True)
    return Outcome(path, record, test)


def score_test(run: Path, data: Data, recipe: Recipe, *, device: str | None) -> Scored:
    """Score the test split under a run's model, by the metrics of its recipe's objective.

    ``device`` is as on the command line; None for the best there is. Raises CheckpointError where
    the run has no model, or a damaged one.
    """
    model = load(run, device=choose_device(device))
    family = family_of(recipe.objective)
    return family.score(model, data.test, recipe, "test", ALONE)


def _read_test(path: Path, recipe: Recipe) -> Scores | None:
    scores = _read(path, _Scores)
    if scores is None:
        return None
    test = scores.model_dump(exclude_none=True)
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
