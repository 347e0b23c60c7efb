"""Predictions of fine-tuned runs for test sets, written as their publishers take them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from sublayer.config.run_recipe import read_run_recipe
from sublayer.errors import ConfigError, DataError
from sublayer.loading import find_recipe, load
from sublayer.model.transformer import Transformer
from sublayer.objective.supervised.answering import Answerer
from sublayer.objective.supervised.ensemble import (
    EnsembleAnswerer,
    check_members,
    find_members,
)
from sublayer.system.stages import stage
from sublayer.tasks.registry import TASKS, find_files, locate_files, read_split
from sublayer.tasks.rows import Found
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.submissions import (
    SUBMISSIONS,
    Answers,
    Submission,
    asked_sets,
    hand_in,
    read_test_set,
)
from sublayer.tasks.task import Example, Task


@dataclass(frozen=True)
class Answering:
    """A run, the tasks that it answers, and where their files are."""

    run: Path
    spec: TaskSpec
    data: str | None
    """None: in the cache, as its recipe says."""


@dataclass(frozen=True)
class HandedIn:
    """A submission, and who answered each of its sets."""

    suite: str
    submission: Submission
    sets: tuple[tuple[Answers, tuple[Path, ...]], ...]
    """Several runs are an ensemble; none: the majority's answer stands there."""


def submit(
    runs: Sequence[Path],
    out: Path,
    *,
    suite: str | None = None,
    data: str | None = None,
    batch: int | None = None,
    device: torch.device | str = "cpu",
) -> HandedIn:
    """Answer the test sets of a suite by runs, and write what is handed in into a new folder.

    Runs that answer one task are an ensemble, whose answers are averaged. Sets that no run answers
    have the majority's answer, of their training parts in ``data``, or as published. Without
    ``suite`` it is that of the runs' tasks; without ``data`` the folder that the first run was
    trained from.

    Raises ConfigError where a run answers no task of the suite or is named twice, two answer one
    otherwise, or there is something at ``out``; DataError where a set is missing that a run
    answers, or is not whole.
    """
    if out.exists():
        raise ConfigError(f"{out} exists: name a folder that does not")
    specs = find_members(runs)
    answering = [_answering(run, spec, data) for run, spec in zip(runs, specs, strict=True)]
    chosen = _suite(answering, suite)
    by_task = _by_task(answering, chosen)
    folder = data if data is not None else answering[0].data
    sets = list(_answered(chosen, by_task, folder, batch, device))
    with stage("writing the submission"):
        submission = hand_in(chosen, out, [answers for answers, _ in sets])
    return HandedIn(chosen, submission, tuple(sets))


def _answering(run: Path, spec: TaskSpec, data: str | None) -> Answering:
    recipe = find_recipe(run)
    own = None if recipe is None else read_run_recipe(recipe).data.path
    return Answering(run, spec, data if data is not None or not isinstance(own, str) else own)


def _suite(answering: Sequence[Answering], asked: str | None) -> str:
    if asked is not None:
        if asked not in SUBMISSIONS:
            raise ConfigError(
                f"--suite {asked:.40} is not one of {', '.join(SUBMISSIONS)}, whose publishers "
                "take predictions"
            )
        return asked
    found = dict.fromkeys(task.suite for each in answering for task in each.spec.tasks)
    suites = [suite for suite in found if suite in SUBMISSIONS]
    if not suites:
        titles = ", ".join(task.title for each in answering for task in each.spec.tasks)
        raise ConfigError(
            f"nobody takes predictions for {titles}: there are {', '.join(SUBMISSIONS)}"
        )
    if len(suites) > 1:
        raise ConfigError(f"the runs answer tasks of {', '.join(suites)}: name one (--suite)")
    return suites[0]


def _by_task(answering: Sequence[Answering], suite: str) -> dict[str, list[Answering]]:
    """Return who answers each task of a suite, its diagnostic sets included."""
    by_task: dict[str, list[Answering]] = {}
    for each in answering:
        own = [task for task in each.spec.tasks if task.suite == suite]
        if not own:
            titles = ", ".join(task.title for task in each.spec.tasks)
            raise ConfigError(
                f"{each.run} answers {titles}, which {suite} does not ask: leave it out"
            )
        for task in own:
            by_task.setdefault(task.name, []).append(each)
    for name, members in by_task.items():
        if len(members) > 1:
            specs = [
                replace(each.spec, tasks=tuple(t for t in each.spec.tasks if t.name == name))
                for each in members
            ]
            check_members([str(each.run) for each in members], specs)
    for task in TASKS.values():
        if task.trained_as in by_task and task.name not in by_task:
            by_task[task.name] = by_task[task.trained_as]
    return by_task


def _answered(
    suite: str,
    by_task: Mapping[str, Sequence[Answering]],
    folder: str | None,
    batch: int | None,
    device: torch.device | str,
) -> Iterator[tuple[Answers, tuple[Path, ...]]]:
    """Yield each set that is here, with the runs that answer it; the same ones are loaded once."""
    asked = [(TASKS[name], split) for name, split in asked_sets(suite)]
    answered = {name: tuple(each.run for each in members) for name, members in by_task.items()}
    for runs in dict.fromkeys(answered.values()):
        models = [load(run, device=device) for run in runs]
        for task, split in asked:
            if answered.get(task.name) != runs:
                continue
            paths = _found(task, split, by_task[task.name][0])
            if paths is None:
                continue
            examples = read_test_set(task, split, paths).examples
            with stage(f"answering {task.title}, {split}"):
                predictions = _answerer(models, runs, task, batch).answer(examples)
            pairs = [(each.id, given) for each, given in zip(examples, predictions, strict=True)]
            yield Answers(task, split, examples, pairs), runs
    # One by one, tasks that nobody answers are not handed in.
    if suite not in ("glue", "superglue") or folder is None:
        return
    for task, split in asked:
        found = find_files(task, folder) if task.name not in by_task else {}
        if split in found:
            examples = read_test_set(task, split, found[split]).examples
            yield Answers(task, split, examples, train=_train(task, found)), ()


def _answerer(
    models: Sequence[Transformer], runs: Sequence[Path], task: Task, batch: int | None
) -> Answerer:
    if len(models) == 1:
        return Answerer(models[0], task.name, batch=batch)
    return EnsembleAnswerer(models, list(map(str, runs)), task.name, batch=batch)


def _found(task: Task, split: str, who: Answering) -> tuple[Path, ...] | None:
    """Return the files of a set; None of a diagnostic set that is not there."""
    if task.trained_as:
        return None if who.data is None else find_files(task, who.data).get(split)
    found = locate_files(task, who.data)
    if split not in found:
        raise DataError(
            f"{who.data or 'the cache'} has no {split} set of {task.title}, which {who.run} "
            "answers: name the folder that has (--data)"
        )
    return found[split]


def _train(task: Task, found: Found) -> list[Example]:
    if "train" not in found:
        return []
    return read_split(task, "train", found["train"]).examples
