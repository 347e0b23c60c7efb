"""A run of a study: its job, its training or fine-tuning, its scores, and reading its results."""

import json
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict, Field

from sublayer.config.layers import RUN_RECIPE
from sublayer.config.load import LoadedRecipe, absolute_paths, read_run_recipe
from sublayer.config.recipe import Recipe
from sublayer.data.prepare import Data
from sublayer.data.tasks.batches import of_tasks
from sublayer.errors import CheckpointError, TrainingError
from sublayer.evaluation.items import ALONE, Items, ItemTable, read_items, write_items
from sublayer.files.checkpoints import RECORD, checkpoint_path, read_record
from sublayer.files.parsing import Content, Number, Typed, read_typed
from sublayer.files.storage import write_file, write_json
from sublayer.loading import CHECKPOINTS_NAME, load
from sublayer.objective.base import Scored, Scores, family_of
from sublayer.objective.supervised.answering import answer_together
from sublayer.objective.supervised.scores import (
    BaselineScores,
    report_split,
    task_items,
    trained_examples,
)
from sublayer.runs.finetuning import finetune_seed
from sublayer.runs.folder import ENSEMBLE, SCORES
from sublayer.runs.run import train_run
from sublayer.runs.session import prepare_data
from sublayer.study.inspection import inspect_run, read_layers
from sublayer.study.jobs.files import JobSpec
from sublayer.study.question import WHOLE_TEST, Scoring
from sublayer.system.machine import choose_device
from sublayer.system.terminal import stage
from sublayer.training.log import Progress
from sublayer.training.warm_start import StartModel

TEST, FAILURE = "test.json", "failure.json"
SCORED = (TEST, "valid.json", SCORES)
"""Possible files of a run's scores; each run has one."""
ERROR, COLLAPSED = ":error", ":collapsed"
"""Suffixes of a column of task scores: its standard error over examples, and its collapse to one
answer."""
BEST = "best/"
"""Prefix of a mixture's columns scored at each task's best checkpoint."""
_REMEDY = "remove the file, and run the same command again"
_MOST_DATA = 8
"""Prepared data sets kept for successive runs: arms may differ in their tokenizers."""


class SharedData:
    """Cache of prepared data by recipe; the ``most`` recently used are kept."""

    def __init__(self, most: int | None = _MOST_DATA) -> None:
        """Keep ``most`` at a time; None: all."""
        self._most = most
        self._kept: OrderedDict[str, Data] = OrderedDict()

    def of(self, recipe: Recipe) -> Data:
        """Return the data of a recipe, prepared if need be. Raises as ``prepare_data`` does."""
        absolute = absolute_paths(recipe)
        pretrained = StartModel(absolute.init)
        tokenizer = pretrained.tokenizer
        # The objective formats examples of tasks; a text is the same for all.
        is_text = absolute.data.tasks is None
        tables = {"data"} if is_text else {"data", "objective"}
        content = absolute.model_dump(mode="json", include=tables)
        key = json.dumps([content, None if tokenizer is None else tokenizer.fingerprint])
        if key not in self._kept:
            self._kept[key] = prepare_data(absolute, pretrained)
        self._kept.move_to_end(key)
        while self._most is not None and len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return self._kept[key]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: its record and test scores, or the message of its failure."""

    path: Path
    record: Mapping[str, Any] | None = None
    """The content of ``record.json``; None for a run that failed, and for an ensemble."""
    test: Mapping[str, float] | None = None
    """Scores by metric, on the study's split; None for a run that failed."""
    failure: str = ""
    """Reason for its failure; empty for a finished run."""
    scored_in: Path | None = None
    """The folder of its items, if another one."""

    @cached_property
    def _items(self) -> Items | None:
        return None if self.test is None else read_items(self.scored_in or self.path)

    def table(self, name: str) -> ItemTable | None:
        """Return a table of its test items; None for a run that failed or kept none.

        Raises CheckpointError if they are damaged.
        """
        return None if self._items is None else self._items.tables.get(name)


@dataclass(frozen=True, kw_only=True)
class Job(JobSpec):
    """A run of a study, missing or present, with its data."""

    data: Data | SharedData
    """Its data, or the cache that prepares them for the run: data of a run that starts from another
    are unknown until that has ended."""

    @property
    def scores(self) -> Path:
        """The file of its scores, named after the split for a text."""
        return self.path / (SCORES if self.finetunes else f"{self.scoring.split}.json")

    @property
    def checksums(self) -> Mapping[str, str]:
        """Checksums of its data; empty before they are prepared."""
        return self.data.checksums if isinstance(self.data, Data) else {}

    def find_data(self) -> Data:
        """Return its data, prepared now if need be."""
        return self.data if isinstance(self.data, Data) else self.data.of(self.recipe)

    def is_finished(self) -> bool:
        """Return whether a run has ended: failed, or trained, scored and inspected.

        Raises CheckpointError if the file of an inspection is damaged.
        """
        path = self.path
        if (path / FAILURE).exists():
            return True
        is_made = self.scores.exists() or not self.is_scored
        if self.inspecting is not None and read_layers(path, self.inspecting) is None:
            return False
        return is_made and bool(self.members or (path / RECORD).exists())

    def describe_end(self, outcome: Outcome) -> str:
        """Format the outcome of a run: the reason of its failure, or its validation scores."""
        if outcome.failure:
            return f"failed: {outcome.failure}"
        if outcome.record is None:
            return "scored"
        return family_of(self.recipe.objective).describe_valid(outcome.record["valid"])


RunAll = Callable[[Sequence[Job]], dict[Path, Outcome]]
"""Function that makes the missing runs, and returns all outcomes by folder."""


class _Failure(Typed):
    message: str


class _TextScores(Typed):
    """Metrics of a scored text by name, with ``signature`` of the scoring of translations."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number | list[Number]] = Field(init=False)
    loss: Number
    signature: dict[str, str] | None = None
    items_sha256: str | None = None
    """SHA-256 of the file of its items."""


class _MetricScore(Typed):
    value: Number
    standard_error: Number | None = None


class _PartScore(Typed):
    task: str
    title: str
    score: Number
    standard_error: Number | None = None
    metrics: dict[str, _MetricScore]
    collapse: str = ""


class _TaskScores(Typed):
    tasks: list[_PartScore] = Field(min_length=1)
    task_bests: list[_PartScore] = []


def finish_run(job: Job, progress: Progress, *, device: str | None) -> Outcome:
    """Complete the training, scoring and inspection of a run, and return its outcome.

    ``device`` is as on the command line; None for the best there is. A failed training is kept as a
    failure; a trained run keeps its model, and the checkpoints of ``train.keep_steps``. Raises
    CheckpointError if a file of the run is damaged, ConfigError for an ensemble of answers that
    cannot be averaged, and Interrupted.
    """
    # An ended run is compared with its data if they are prepared.
    if isinstance(job.data, Data) or not job.is_finished():
        _make(job, progress, device)
    outcome = read_outcome(job.path, is_scored=job.is_scored)
    assert outcome is not None, "the run has been made"
    if outcome.record is not None:
        root = job.path / CHECKPOINTS_NAME
        checkpoints = [checkpoint_path(root, step) for step in job.recipe.train.keep_steps]
        if not checkpoints:
            shutil.rmtree(root, ignore_errors=True)
        for path in root.iterdir() if checkpoints and root.is_dir() else ():
            if path in checkpoints:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    return outcome


def _baselines(data: Data) -> BaselineScores:
    return BaselineScores(lambda: trained_examples(data), are_scored=False)


def _make(job: Job, progress: Progress, device: str | None) -> None:
    path = job.path
    if (path / FAILURE).exists() or (job.members and job.scores.exists()):
        return
    data, train = job.find_data(), job.recipe.train
    if job.members:
        # Recipe and data are the first member's; the average answers are kept as a run's.
        if train.threads is not None:
            torch.set_num_threads(train.threads)
        path.mkdir(parents=True, exist_ok=True)
        named = [os.path.relpath(member, path) for member in job.members]
        began: dict[str, Any] = {"members": named}
        began |= {} if job.plan is None else {"plan": dict(job.plan)}
        write_file(path / ENSEMBLE, json.dumps(began, indent=1).encode() + b"\n")
        chosen = choose_device(device)
        models = [load(member, device=chosen) for member in job.members]
        test = of_tasks(data.test or data.train)
        with stage("scoring the development set"):
            predictions = answer_together(models, test.parts, names=list(map(str, job.members)))
        reports = report_split(test, _baselines(data), predictions)
        content = {
            "tasks": [report.to_json() for report in reports],
            "task_bests": [],
            "seed": train.seed,
            "items_sha256": write_items(path, task_items(test, reports), {}),
        }
        write_file(path / SCORES, json.dumps(content, indent=1).encode() + b"\n")
        return
    loaded = LoadedRecipe(job.recipe, {}, job.label, ())
    settings: dict[str, Any] = {"device": device, "progress": progress, "plan": job.plan}
    try:
        if job.finetunes:
            finetune_seed(loaded, path, data, _baselines(data), resume=True, **settings)
        else:
            train_run(loaded, path, resume=True, data=data, replans=False, **settings)
    except TrainingError as error:
        write_json(path / FAILURE, {"message": str(error)})
        return
    if job.is_scored and not job.scores.exists():
        with stage(f"scoring the {job.scoring.split_name} split"):
            scored = score_run(path, data, job.scored, job.scoring, device=device)
        # The scores are written last: with them, the items are complete.
        checksum = {}
        if scored.items is not None:
            metrics = family_of(job.recipe.objective).tables()
            checksum["items_sha256"] = write_items(path, scored.items, metrics)
        write_json(job.scores, {**scored.scores, **checksum})
    if job.is_scored and job.inspecting is not None:
        with stage(f"inspecting {job.inspecting.what}"):
            split = job.scoring.split_of(data)
            inspect_run(path, job.recipe, split, job.inspecting, device=device)


def score_run(
    run: Path, data: Data, recipe: Recipe, scoring: Scoring = WHOLE_TEST, *, device: str | None
) -> Scored:
    """Score a run's model on a split, by the metrics of its recipe's objective.

    ``device`` is as on the command line; None for the best there is. Raises CheckpointError if the
    run has no model, or a damaged one.
    """
    model = load(run, device=choose_device(device))
    family = family_of(recipe.objective)
    split = scoring.split_of(data)
    if scoring.stride is None and scoring.tokens is None:
        return family.score(model, split, recipe, "test", ALONE)
    stride = scoring.stride_of(recipe)
    return family.score_at_stride(model.model, split, recipe, stride, scoring.tokens)


def read_outcome(path: Path, *, is_scored: bool = True) -> Outcome | None:
    """Read the outcome of a run; None if it has not ended.

    Tuning runs are not scored. Raises CheckpointError if a file of the run is damaged.
    """
    failure = _read(path / FAILURE, _Failure)
    if failure is not None:
        return Outcome(path, failure=failure.message)
    is_ensemble = (path / ENSEMBLE).exists()
    record = None if is_ensemble else read_record(path)
    if record is None and not is_ensemble:
        return None
    if not is_scored:
        return Outcome(path, record)
    scores = next((path / name for name in SCORED if (path / name).exists()), None)
    if scores is None:
        return None
    if scores.name == SCORES:
        return Outcome(path, record, read_scores(path))
    return Outcome(path, record, read_test(scores, read_run_recipe(path / RUN_RECIPE)))


def read_test(path: Path, recipe: Recipe) -> Scores | None:
    """Read a run's test scores, None without any; raise CheckpointError if they are damaged."""
    scores = _read(path, _TextScores)
    if scores is None:
        return None
    test = scores.model_dump(exclude_none=True, exclude={"items_sha256"})
    for metric in family_of(recipe.objective).metrics:
        # Intervals are lists; compared metrics are not.
        if isinstance(test.get(metric.name), list):
            raise CheckpointError(f"{path} is damaged, as {metric.name} is not a number: {_REMEDY}")
    return test


def read_scores(folder: Path) -> dict[str, float] | None:
    """Read the scores of a fine-tuned run; None without any.

    Keys: "" for the mean over the parts of its tasks, ``part`` for its score, ``part:metric`` for a
    metric; with ``ERROR`` after them their standard errors over examples. Raises CheckpointError if
    the file is damaged.
    """
    scores = _read(folder / SCORES, _TaskScores)
    if scores is None:
        return None
    columns = {"": sum(part.score for part in scores.tasks) / len(scores.tasks)}
    for prefix, parts in (("", scores.tasks), (BEST, scores.task_bests)):
        for part in parts:
            name = f"{prefix}{part.task}"
            values = {name: (part.score, part.standard_error)}
            for metric, result in part.metrics.items():
                values[f"{name}:{metric}"] = result.value, result.standard_error
            for column, (value, error) in values.items():
                columns[column] = value
                if error is not None:
                    columns[f"{column}{ERROR}"] = error
            columns[f"{name}{COLLAPSED}"] = float(bool(part.collapse))
    return columns


def _read(path: Path, kind: type[Content]) -> Content | None:
    """Read a file of a study's run; None without one."""
    try:
        return read_typed(path, kind, CheckpointError)
    except FileNotFoundError:
        return None
    except CheckpointError as error:
        raise CheckpointError(f"{error}: {_REMEDY}") from None
