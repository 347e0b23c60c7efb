"""The members of an ensemble: runs that answer the same, each in a way that can be averaged."""

from collections.abc import Sequence
from pathlib import Path

from sublayer.errors import ConfigError
from sublayer.files.paths import resolved
from sublayer.loading import find_model, load_task
from sublayer.tasks.formats.text import has_ranks
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.task import Task

_SAME = {
    "kind": "asks for another kind of answer",
    "labels": "has other labels",
    "fields": "reads other texts",
    "numbers": "has numbers of another range",
    "is_bounded": "has numbers of another range",
    "has_unanswerable": "says otherwise whether questions may have no answer",
}
"""What members have in common of a task, and what is said of one that has another."""


def find_members(runs: Sequence[Path]) -> list[TaskSpec]:
    """Read what each of several runs answers, before any of their models is loaded.

    Raises CheckpointError for a run that is not there, and ConfigError for one that answers no
    task or is named twice.
    """
    found: dict[Path, Path] = {}
    specs = []
    for run in runs:
        folder = find_model(run)
        spec = load_task(folder)
        if spec is None:
            raise ConfigError(f"{run} answers no task: name fine-tuned runs")
        other = found.setdefault(resolved(folder), run)
        if other is not run:
            raise ConfigError(f"{run} and {other} are the same model: name each run once")
        specs.append(spec)
    return specs


def check_members(names: Sequence[str], specs: Sequence[TaskSpec]) -> None:
    """Raise ConfigError where models do not answer the same tasks, or not so that it is averaged.

    ``names`` are what messages call them.
    """
    first_name, first = names[0], _by_name(specs[0])
    for name, spec in zip(names, specs, strict=True):
        own = _by_name(spec)
        if set(own) != set(first):
            raise ConfigError(
                f"{name} answers {_titles(own)}, and {first_name} {_titles(first)}: an ensemble is "
                "of models of the same tasks"
            )
        for task_name, task in own.items():
            check_same_task(first_name, first[task_name], name, task)
            check_averaged(name, spec, task)


def check_same_task(name: str, task: Task, other_name: str, other: Task) -> None:
    """Raise ConfigError where two models do not answer a task with the same."""
    if task.name != other.name:
        raise ConfigError(
            f"{other_name} answers {other.title}, and {name} {task.title}: an ensemble is of "
            "models of one task"
        )
    for field, said in _SAME.items():
        if getattr(task, field) != getattr(other, field):
            raise ConfigError(
                f"{other_name} {said} in {other.title} than {name}: {_shown(other, field)}, not "
                f"{_shown(task, field)}; an ensemble is of models with the same answers"
            )


def check_averaged(name: str, spec: TaskSpec, task: Task) -> None:
    """Raise ConfigError where a model's answers to a task have nothing that is averaged."""
    if spec.format != "text":
        return
    if not has_ranks(task):
        raise ConfigError(
            f"{name} writes its answers to {task.title} as text, which cannot be averaged: name "
            "models that read it as pairs or traversals"
        )
    if spec.answer != "rank":
        raise ConfigError(
            f"{name} writes its answers to {task.title} as text, which cannot be averaged: have it "
            "rank the labels (evaluate --answer rank, or objective.answer = rank in training)"
        )


def _by_name(spec: TaskSpec) -> dict[str, Task]:
    return {task.name: task for task in spec.tasks}


def _titles(tasks: dict[str, Task]) -> str:
    return ", ".join(task.title for task in tasks.values())


def _shown(task: Task, field: str) -> str:
    value = getattr(task, field)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in value)
    return str(value)
