"""Fine-tuning: a run per seed, its score against baselines, and predictions of test sets."""

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from sublayer.config.load import LoadedRecipe, find_recipe, read_run_recipe
from sublayer.config.objective import SupervisedObjective
from sublayer.config.recipe import Recipe
from sublayer.data.prepare import Data
from sublayer.data.tasks.batches import TaskSplit, of_tasks
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.items import write_items
from sublayer.files.checkpoints import checkpoint_path
from sublayer.files.storage import write_file
from sublayer.loading import load
from sublayer.objective.supervised.answering import Answerer, check_members, find_members
from sublayer.objective.supervised.heads import AskedSplit, recipe_rule
from sublayer.objective.supervised.scores import (
    BaselineScores,
    PartReport,
    answer_loss,
    answer_split,
    report_split,
    task_items,
    trained_examples,
)
from sublayer.runs.folder import SCORES, seed_folders
from sublayer.runs.resume import trained_tokenizer
from sublayer.runs.run import train_run
from sublayer.runs.session import prepare_data
from sublayer.system.machine import choose_device
from sublayer.system.processes import is_first_launched
from sublayer.system.terminal import stage
from sublayer.tasks.registry import TASKS, find_files, locate_files, read_split
from sublayer.tasks.submissions import (
    SUBMITTED,
    Answers,
    Submission,
    asked_sets,
    read_test_set,
    write_predictions,
)
from sublayer.tasks.task import Prediction, Task
from sublayer.training.log import METRICS, Progress, read_metrics
from sublayer.training.warm_start import StartModel
from sublayer.training.world import join_world

_LAST_SHARE = 0.1
"""Share of a run's steps that its last loss averages."""


@dataclass(frozen=True)
class SeedResult:
    """A run of one seed."""

    seed: int
    folder: Path
    record: Mapping[str, Any]
    reports: Sequence[PartReport]
    task_bests: Sequence[PartReport]
    """Tasks of a mixture, each at its best checkpoint."""
    notes: Sequence[str]
    """Lines on truncated rows and targets in scoring."""

    @property
    def score(self) -> float:
        """Mean of the parts' scores."""
        return statistics.fmean(report.score.value for report in self.reports)

    @property
    def has_collapsed(self) -> bool:
        """True if it gives one answer to all examples of a part."""
        return any(report.collapse for report in self.reports)


def finetune_seed(
    loaded: LoadedRecipe,
    folder: Path,
    data: Data,
    baselines: BaselineScores,
    *,
    resume: bool,
    device: str | None,
    progress: Progress | None = None,
    replans: bool = False,
    plan: Mapping[str, Any] | None = None,
) -> SeedResult:
    """Train a run, and score its best checkpoint on the development set.

    ``replans`` and ``plan`` are as ``train_run`` has them.

    Raises as ``train_run`` does.
    """
    record = train_run(
        loaded,
        folder,
        resume=resume,
        device=device,
        progress=progress,
        data=data,
        replans=replans,
        plan=plan,
    )
    recipe = loaded.recipe
    assert isinstance(recipe.objective, SupervisedObjective), "load_finetune refuses others"
    test = of_tasks(data.test or data.train)
    lines = read_metrics(folder / METRICS)
    losses = [float(line["loss"]) for line in lines if line["kind"] == "train" and "loss" in line]
    last = losses[-max(1, math.ceil(_LAST_SHARE * len(losses))) :]
    last_loss = statistics.fmean(last) if last else None  # not every run logs it
    loss = answer_loss(of_tasks(data.train), recipe.objective, last_loss)
    with stage("scoring the development set"):
        predictions, notes = _answers(recipe, folder, test, device)
    reports = report_split(test, baselines, predictions, loss)
    steps = {task: best["step"] for task, best in record.get("task_bests", {}).items()}
    by_task: dict[str, Sequence[PartReport]] = {}
    for step in dict.fromkeys(steps.values()):
        parts = tuple(part for part in test.parts if steps.get(part.task.name) == step)
        subset = replace(test, parts=parts)
        if step == record["valid"]["step"]:
            # The run's model is that checkpoint, already scored.
            by_part = test.by_part(predictions)
            answered = [
                prediction
                for part, of_part in by_part
                if steps.get(part.task.name) == step
                for prediction in of_part
            ]
        else:
            names = ", ".join(task for task in steps if steps[task] == step)
            with stage(f"scoring the best checkpoint of {names}"):
                path = checkpoint_path(folder / "checkpoints", step)
                answered, _ = _answers(recipe, path, subset, device)
        for report in report_split(subset, baselines, answered):
            by_task[report.task.name] = [*by_task.get(report.task.name, ()), report]
    named = dict.fromkeys(part.task.name for part in test.parts)
    bests = [report for name in named for report in by_task.get(name, ())]
    seed = recipe.train.seed
    if is_first_launched():
        scores = {
            "tasks": [report.to_json() for report in reports],
            "task_bests": [report.to_json() for report in bests],
            "seed": seed,
            "items_sha256": write_items(folder, task_items(test, reports), {}),
        }
        write_file(folder / SCORES, json.dumps(scores, indent=1).encode() + b"\n")
    return SeedResult(seed, folder, record, reports, bests, notes)


def _answers(
    recipe: Recipe, path: Path, split: TaskSplit, device: str | None
) -> tuple[list[Prediction], list[str]]:
    """Answer examples with a run or one of its checkpoints, by the processes that trained it.

    Also return lines on the truncated examples.
    """
    world = join_world(choose_device(device))
    model = load(path, device=world.device)
    assert model.task is not None, "the run was fine-tuned"
    rule = recipe_rule(recipe, split)
    answers, _ = answer_split(AskedSplit(model.model, split, rule, model.task, world))
    return answers, split.describe_cuts(rule)


def finetune_seeds(
    loaded: LoadedRecipe,
    folder: Path,
    n_seeds: int | None,
    *,
    resume: bool,
    device: str | None,
) -> list[SeedResult]:
    """Fine-tune once, or with seeds 0 to ``n_seeds - 1``, each in a subfolder.

    The held-out examples are the same for all. Raises as ``train_run`` does.
    """
    recipe = loaded.recipe
    folders = seed_folders(folder, n_seeds)
    tokenizer = trained_tokenizer(folders[0], recipe)
    data = prepare_data(recipe, StartModel(recipe.init), tokenizer)
    baselines = BaselineScores(lambda: trained_examples(data))
    results = []
    for seed, subfolder in enumerate(folders):
        seeded, is_there = loaded, resume
        if n_seeds is not None:
            varied = loaded.vary({"train.seed": seed}, origin=f"seed {seed}")
            seeded = replace(varied, notes=loaded.notes)  # the same for all seeds
            is_there = resume or (subfolder / SCORES).is_file()
        replans = n_seeds is None
        results.append(
            finetune_seed(
                seeded, subfolder, data, baselines, resume=is_there, device=device, replans=replans
            )
        )
    return results


def submit(
    runs: Sequence[Path],
    out: Path,
    *,
    suite: str | None = None,
    data: str | None = None,
    batch: int | None = None,
    device: torch.device | str = "cpu",
) -> tuple[Submission, list[tuple[Answers, tuple[Path, ...]]]]:
    """Answer the test sets of a suite with runs, and write the submission into a new folder.

    Returns the submission, and each set with its runs. Runs of one task form an ensemble, and their
    answers are averaged. Sets without a run get the majority's answer, from their training parts in
    ``data``, or as published. By default, ``suite`` follows from the runs' tasks, and ``data`` is
    the folder of the first run's training data.

    Raises ConfigError if a run answers no task of the suite or is named twice, if two answer one
    task in different ways, or if ``out`` exists; DataError if a run's set is missing or incomplete.
    """
    if out.exists():
        raise ConfigError(f"{out} exists: name a new folder")
    specs = dict(zip(runs, find_members(runs), strict=True))
    answered = dict.fromkeys(task.suite for spec in specs.values() for task in spec.tasks)
    suites = [name for name in answered if name in SUBMITTED] if suite is None else [suite]
    if len(suites) > 1:
        raise ConfigError(f"the runs answer tasks of {', '.join(suites)}: name one (--suite)")
    if not suites or suite not in (None, *SUBMITTED):
        titles = ", ".join(task.title for spec in specs.values() for task in spec.tasks)
        named = titles if suite is None else f"--suite {suite:.40}"
        raise ConfigError(
            f"no publisher takes predictions for {named}: choose {', '.join(SUBMITTED)}"
        )
    chosen = suites[0]
    by_task: dict[str, tuple[Path, ...]] = {}
    for run, spec in specs.items():
        names = [task.name for task in spec.tasks if task.suite == chosen]
        if not names:
            titles = ", ".join(task.title for task in spec.tasks)
            raise ConfigError(f"{run} answers {titles}, which is not in {chosen}: leave it out")
        for name in names:
            by_task[name] = (*by_task.get(name, ()), run)
    for name, members in by_task.items():
        if len(members) > 1:
            of_task = [
                replace(specs[run], tasks=tuple(t for t in specs[run].tasks if t.name == name))
                for run in members
            ]
            check_members(list(map(str, members)), of_task)
    for task in TASKS.values():
        if task.trained_as in by_task and task.name not in by_task:  # a diagnostic set
            by_task[task.name] = by_task[task.trained_as]
    sets = list(_answered(chosen, by_task, data, batch, device))
    with stage("writing the submission"):
        submission = write_predictions(chosen, out, [answers for answers, _ in sets])
    return submission, sets


def _trained_from(run: Path) -> str | None:
    """Return the folder of a run's training data; None: the cache."""
    recipe = find_recipe(run)
    path = None if recipe is None else read_run_recipe(recipe).data.path
    return path if isinstance(path, str) else None


def _answered(
    suite: str,
    by_task: Mapping[str, tuple[Path, ...]],
    data: str | None,
    batch: int | None,
    device: torch.device | str,
) -> Iterator[tuple[Answers, tuple[Path, ...]]]:
    """Yield each available set, with its runs; equal ensembles are loaded once."""
    sets = [(row.task, file) for row, file in asked_sets(suite)]
    for runs in dict.fromkeys(by_task.values()):
        models = [load(run, device=device) for run in runs]
        folder = _trained_from(runs[0]) if data is None else data
        for task, file in sets:
            if by_task.get(task.name) != runs:
                continue
            split = file.split
            paths = _found(task, split, folder, runs[0])
            if paths is None:
                continue
            examples = read_test_set(task, split, paths).examples
            with stage(f"answering {task.title}, {split}"):
                names = list(map(str, runs)) if len(runs) > 1 else ()
                answerer = Answerer(models, task.name, names=names, batch=batch)
            yield Answers(task, split, examples, answerer.answer(examples)), runs
    # Suites of separate submissions leave out tasks without a run.
    first = next(iter(by_task.values()))[0]
    folder = _trained_from(first) if data is None else data
    for task, file in sets:
        if file.most is None or task.name in by_task or folder is None:
            continue
        files, split = find_files(task, folder), file.split
        if split in files:
            examples = read_test_set(task, split, files[split]).examples
            train = read_split(task, "train", files["train"]).examples if "train" in files else []
            yield Answers(task, split, examples, train=train), ()


def _found(task: Task, split: str, folder: str | None, run: Path) -> tuple[Path, ...] | None:
    """Return the files of a set; None for a missing diagnostic set."""
    if task.trained_as:
        return None if folder is None else find_files(task, folder).get(split)
    files = locate_files(task, folder)
    if split not in files:
        raise DataError(
            f"{folder or 'the cache'} has no {split} set of {task.title}, which {run} answers: "
            "name a folder with it (--data)"
        )
    return files[split]
