"""Tasks of a suite: models that answer them are scored, others are fine-tuned now."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sublayer.config.finetune import load_finetune
from sublayer.config.load import LoadedRecipe, load_recipe, vary
from sublayer.config.run_recipe import absolute_paths
from sublayer.errors import ConfigError, DataError
from sublayer.loading import find_model
from sublayer.objective.evaluation import Evaluation
from sublayer.objective.metric import Metric
from sublayer.objective.supervised.answering import answer_known
from sublayer.objective.supervised.evaluation import evaluate_tasks
from sublayer.runs.finetuning import finetune_seeds
from sublayer.runs.folder import RunFolder
from sublayer.study.results import Cell
from sublayer.study.study_file import flatten
from sublayer.suite.file import TasksTable
from sublayer.suite.measures import (
    Candidate,
    Measure,
    Measured,
    local_folder,
    score_column,
    shell_of,
)
from sublayer.tasks.registry import TASKS, find_files

Report = Mapping[str, Any]
"""Report of a part of a task, as JSON."""


class TaskMeasure(Measure):
    """A task, on whose development set every model is scored.

    Raises DataError if its files are missing on this machine, or are not the needed ones.
    """

    def __init__(self, name: str, group: TasksTable, suite_tasks: Sequence[str]) -> None:
        self._task = TASKS[name]
        self._group = group
        self._suite_tasks = suite_tasks
        self._data = local_folder([name], group.data)
        self.columns = (score_column(name, self._task.title, factor=100.0),)
        self.title = f"scoring {self._task.title}"
        files = find_files(self._task, self._data)
        if not self._task.dev_splits:
            raise DataError(f"{self._task.title} has no development set to score: leave it out")
        for split in (self._task.dev_splits[0], *(["train"] if group.finetune else [])):
            if split not in files:
                raise DataError(
                    f"{self._data} has no {split} file of {self._task.title}: "
                    f"`sublayer tasks {self._data}` lists what it has"
                )

    def trains(self, candidate: Candidate) -> bool:
        """Return whether a model has to be fine-tuned first."""
        return self._group.finetune is not None and not self._answers(candidate)

    def refusal(self, candidate: Candidate) -> str:
        """Refuse a model that answers other tasks, or cannot be fine-tuned.

        Raises ConfigError if a model answers none of the suite's tasks and none is to be learned
        now, if a setting does not fit, and if the folder of its run holds another run.
        """
        if self._answers(candidate):
            return ""
        spec = candidate.spec
        if self._group.finetune is None:
            names = [] if spec is None else [task.name for task in spec.tasks]
            if not set(names) & set(self._suite_tasks):
                raise ConfigError(
                    f"{candidate.name} has no head that answers {self._task.title}: name a run "
                    'that was fine-tuned on it, or a folder to fine-tune it in, finetune = "FOLDER"'
                )
            return f"it answers {', '.join(names)}, and the suite fine-tunes nothing on this task"
        try:
            loaded = self._loaded(candidate, self._group.set)
        except ConfigError as error:
            if self._group.set and self._is_learnable(candidate):
                raise
            return str(error)
        _check_folder(self._folder(candidate), loaded, self._group.seeds)
        return ""

    def score(self, candidate: Candidate, device: torch.device) -> Measured:
        """Score the answers of a model, fine-tuned first if it does not answer the task yet."""
        if self.trains(candidate):
            # Existing runs are reused.
            folder = self._folder(candidate)
            results = finetune_seeds(
                self._loaded(candidate, self._group.set),
                folder,
                self._group.seeds,
                resume=_is_run(folder) or any(map(_is_run, folder.glob("seed-*"))),
                device=str(device),
            )
            by_seed = [[report.to_json() for report in seed.reports] for seed in results]
            return self._of_reports(candidate, by_seed, [n for seed in results for n in seed.notes])
        text_model = candidate.load(device)
        options: dict[str, Any] = {"path": self._data}
        if self._named(candidate):
            assert text_model.task is not None, "it answers the task"
            tasks = text_model.task.tasks
            asked = tuple(task for task in tasks if task.name == self._task.name)
            text_model.task = replace(text_model.task, tasks=asked)
        else:
            options["task"] = self._task.name
        request = Evaluation(
            run=candidate.path,
            text_model=text_model,
            recipe=candidate.recipe,
            options=options,
        )
        result = evaluate_tasks(request)
        return self._of_reports(candidate, [result["tasks"]], result["notes"])

    def _answers(self, candidate: Candidate) -> bool:
        return self._named(candidate) or self._knows(candidate)

    def _named(self, candidate: Candidate) -> bool:
        spec = candidate.spec
        return spec is not None and any(task.name == self._task.name for task in spec.tasks)

    def _knows(self, candidate: Candidate) -> bool:
        """Return whether a foreign model answers the task, by its label words."""
        spec = candidate.spec
        if spec is None or any(task.name in TASKS for task in spec.tasks) or spec.columns:
            return False
        shell = shell_of(find_model(candidate.path))
        try:
            answer_known(shell, self._task)
        except ConfigError:
            return False
        return True

    def _loaded(self, candidate: Candidate, settings: Mapping[str, Any]) -> LoadedRecipe:
        return load_finetune(
            str(candidate.path),
            [self._task.name],
            self._data,
            flatten(settings),
            preset=self._group.preset,
        ).loaded

    def _is_learnable(self, candidate: Candidate) -> bool:
        """Return whether a model could be fine-tuned without the settings."""
        try:
            self._loaded(candidate, {})
        except ConfigError:
            return False
        return True

    def _folder(self, candidate: Candidate) -> Path:
        assert self._group.finetune is not None, "it is fine-tuned"
        return Path(self._group.finetune) / candidate.name.replace("/", "-") / self._task.name

    def _of_reports(
        self,
        candidate: Candidate,
        by_seed: Sequence[Sequence[Report]],
        notes: Sequence[str],
    ) -> Measured:
        """Combine the reports of all seeds: the mean score of each part of the task."""
        all_notes = [f"{candidate.name}, {self._task.title}: {note}" for note in notes]
        columns: list[Metric] = []
        cells: dict[str, Cell] = {}
        others: dict[str, dict[str, Cell]] = {}
        for number, first in enumerate(by_seed[0]):
            if first["title"] != self._task.title:
                continue  # another task of a mixture
            reports = [of_seed[number] for of_seed in by_seed]
            label = str(first["title"])
            if sum(other["title"] == label for other in by_seed[0]) > 1:
                label = f"{label} {str(first['split']).removeprefix('dev_')}"
            column = score_column(first["task"], label, factor=100.0)
            columns.append(column)
            scores = [float(report["score"]) for report in reports]
            errors = [report["standard_error"] for report in reports]
            cells[column.name] = Cell(
                statistics.fmean(scores),
                inner_sd=statistics.stdev(scores) if len(scores) > 1 else None,
                error=None if None in errors else statistics.fmean(map(float, errors)),
                n_runs=len(scores),
                n_collapsed=sum(bool(report["collapse"]) for report in reports),
            )
            for name, baseline in first["baselines"].items():
                cell = Cell(baseline["score"], error=baseline["standard_error"])
                others.setdefault(name, {})[column.name] = cell
            for report in reports:
                if report["collapse"]:
                    all_notes.append(f"{candidate.name}, {column.label}: {report['collapse']}")
        return Measured(columns, cells, others, list(dict.fromkeys(all_notes)))


def _check_folder(folder: Path, loaded: LoadedRecipe, n_seeds: int | None) -> None:
    """Raise ConfigError if the folder of a run holds a run of another recipe, or of other seeds.

    Fields of the model derived from the data are compared in training.
    """
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{path} is no folder: name another for the runs, finetune")
    if n_seeds is None:
        runs = {folder: loaded}
        others = sorted(folder.glob("seed-*"))
    else:
        runs = {
            folder / f"seed-{seed}": vary(loaded, {"train.seed": seed}, origin=f"seed {seed}")
            for seed in range(n_seeds)
        }
        others = [folder] if _is_run(folder) else []
    if others:
        raise ConfigError(
            f"{others[0]} holds a run of another number of seeds: give the same seeds, or another "
            "folder (finetune)"
        )
    for path, run in runs.items():
        if _is_run(path):
            before = load_recipe(path).recipe.model
            given = absolute_paths(run.recipe).model_copy(update={"model": before})
            RunFolder(path).check_recipe(given)


def _is_run(folder: Path) -> bool:
    return RunFolder(folder).has_recipe()
