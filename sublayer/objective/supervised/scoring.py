"""The examples that an evaluation of a fine-tuned model scores, and what the model answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sublayer.data.prepare import Data
from sublayer.data.tasks.prepare import prepare_tasks, task_split
from sublayer.data.tasks.split_notes import describe_cuts
from sublayer.data.tasks.task_split import TaskPart, TaskSplit, of_tasks
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.split_work import ALONE
from sublayer.files.paths import expanded, resolved
from sublayer.files.saved_record import read_record
from sublayer.loading import find_recipe
from sublayer.objective.evaluation import Evaluation
from sublayer.objective.supervised.answering import model_rule, unprepared_part
from sublayer.objective.supervised.asked_spec import asked_spec
from sublayer.objective.supervised.objective_of import objective_of
from sublayer.objective.supervised.scores import answer_split
from sublayer.tasks.example import Example
from sublayer.tasks.labelled_files import read_labelled, read_labelled_table
from sublayer.tasks.own_table.table import table_of
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import named
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.task import Task


@dataclass(frozen=True)
class Scoring:
    """Examples to be scored, and those that baselines learn from."""

    split: TaskSplit
    train: Mapping[str, Sequence[Example]]
    """By the task; those of which nothing can be learned are not there."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answered:
    """What a model answers to them."""

    scoring: Scoring
    predictions: list[Prediction]
    loss: float


def answer_asked(asked: Evaluation) -> Answered:
    """Answer what an evaluation scores.

    Raises ConfigError where it is not known where the files are, or an option has no meaning, and
    DataError where files are not what they should be.
    """
    spec = asked_spec(asked)
    scoring = asked_scoring(asked)
    rule = replace(model_rule(asked.model, scoring.split), n_rows=asked.batch)
    progress = asked.progress("answered", "batches")
    predictions, loss = answer_split(asked.model, scoring.split, rule, spec, ALONE, progress)
    cuts = describe_cuts(scoring.split, rule)
    return Answered(replace(scoring, notes=(*scoring.notes, *cuts)), predictions, loss)


def asked_scoring(asked: Evaluation) -> Scoring:
    """Read the examples that an evaluation scores. Raises as ``answer_asked`` does."""
    path = asked.options.get("path")
    recipe = asked.recipe
    if path is not None and not (recipe is not None and _is_same(path, recipe.data.path)):
        return _scoring_of_path(asked, path)
    if recipe is None:
        raise ConfigError(
            f"{asked.run} does not belong to a run: name the folder of the tasks' files (--path)"
        )
    data = _own_data(asked)
    _check_unchanged(asked, data)
    split = of_tasks(data.valid if asked.split == "valid" else data.test)  # type: ignore[arg-type]
    notes: tuple[str, ...] = ()
    if path is not None and asked.model.task.columns:
        notes = (f"{path} is what it was trained on: scored on the rows that were left for that",)
    return Scoring(split, trained_examples(data), notes)


def held_out(asked: Evaluation) -> TaskSplit:
    """Read what the run of a model held out of train. Raises ConfigError outside a run."""
    if asked.recipe is None:
        raise ConfigError(f"{asked.run} does not belong to a run: it is not known what it held out")
    data = _own_data(asked)
    _check_unchanged(replace(asked, split="valid"), data)
    assert data.valid is not None, "tasks hold examples out"
    return of_tasks(data.valid)


def _own_data(asked: Evaluation) -> Data:
    """Prepare the examples of a model's run."""
    assert asked.recipe is not None, "the model belongs to a run"
    name = asked.options.get("task")
    config = asked.recipe.data
    if name is not None:
        config = config.model_copy(update={"tasks": name})
    spec: TaskSpec = asked.model.task
    tokenizer = asked.model.tokenizer
    return prepare_tasks(config, objective_of(spec), tokenizer=tokenizer, trains=False)


def _check_unchanged(asked: Evaluation, data: Data, split: str = "") -> None:
    """Raise DataError where the examples that are scored are others than the run's record knows."""
    recipe = find_recipe(asked.run)
    record = None if recipe is None else read_record(recipe.parent)
    # Another task is asked of a model that was not trained on it.
    if record is None or asked.options.get("task") is not None:
        return
    name = split or asked.split
    if record["data"]["checksums"].get(name) in (None, data.checksums[name]):
        return
    asked_tasks = {task.name: task for task in asked.model.task.tasks}
    for part in of_tasks(data.train).parts:
        known = asked_tasks.get(part.task.name)
        if known is not None and known.labels != part.task.labels:
            raise DataError(
                f"the labels in {asked.recipe.data.path} are now {named(part.task.labels)}, and "  # type: ignore[union-attr]
                f"those that {asked.run} answers {named(known.labels)}: write these into the file "
                "again"
            )
    raise DataError(
        f"the examples of {asked.run} are no longer what it was trained with: restore "
        f"{asked.recipe.data.path}, or score a copy of it, under another name, by --path: all of "  # type: ignore[union-attr]
        "its rows that have a label"
    )


def _is_same(path: str, own: Any) -> bool:
    return isinstance(own, str) and resolved(expanded(path)) == resolved(own)


def trained_examples(data: Data) -> dict[str, list[Example]]:
    """Return what was trained on, by the task."""
    return {part.task.name: part.distinct_examples for part in of_tasks(data.train).parts}


def _scoring_of_path(asked: Evaluation, path: str) -> Scoring:
    """Take all labelled rows of another file or folder: none of them chose or trained anything."""
    model = asked.model
    spec: TaskSpec = model.task
    parts: list[TaskPart] = []
    train: dict[str, Sequence[Example]] = {}
    notes: list[str] = []
    for task in spec.tasks:
        read, learned = _read(asked, task, path)
        if learned is not None:
            train[task.name] = learned.examples
        parts += [unprepared_part(model, task, each.examples, each.name) for each in read]
        notes += [
            f"{task.title}, {each.name}: {note}" for each in read for note in each.described()
        ]
    split = task_split("test", parts, model.tokenizer, objective_of(spec))
    if asked.recipe is None:
        return Scoring(split, train, tuple(notes))
    own: dict[str, list[Example]] = {}
    try:
        data = _own_data(asked)
        _check_unchanged(asked, data, "train")
        own = trained_examples(data)
    except DataError as error:
        notes.append(f"not known what it was trained on, nor the baselines of that: {error}")
    return Scoring(split, {**own, **train}, (*notes, *_trained_notes(parts, own)))


def _read(asked: Evaluation, task: Task, path: str) -> tuple[list[ReadSplit], ReadSplit | None]:
    spec: TaskSpec = asked.model.task
    if spec.columns:
        # What is not divided needs no groups.
        needed = {role: spec.columns[role] for role in spec.columns if role not in ("group", "id")}
        return [read_labelled_table(table_of(path, needed), task)], None
    if task.name not in TASKS:
        raise ConfigError(
            f"{asked.run} answers {task.name}, of which there are no files: name a task that has "
            "the same labels (--task)"
        )
    return read_labelled(task, path)


def _trained_notes(parts: Sequence[TaskPart], own: Mapping[str, Sequence[Example]]) -> list[str]:
    """Say which rows were trained on, if any were."""
    notes = []
    for part in parts:
        trained = {each.texts for each in own.get(part.task.name, ())}
        n_trained = sum(each.texts in trained for each in part.examples)
        if n_trained:
            notes.append(
                f"{part.task.title}: {n_trained:,} of {len(part.examples):,} rows are among those "
                "that it was trained on: too good by that"
            )
    return notes
