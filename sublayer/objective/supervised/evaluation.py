"""Evaluation of a fine-tuned model: its examples, its scores, the comparison with another model."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sublayer.config.load import find_recipe, read_run_recipe
from sublayer.data.prepare import Data
from sublayer.data.tasks.batches import TaskPart, TaskSplit, describe_cuts, of_tasks
from sublayer.data.tasks.encoded import find_marks
from sublayer.data.tasks.prepare import prepare_tasks
from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.files.checkpoints import read_record
from sublayer.files.storage import expanded, resolved
from sublayer.loading import load
from sublayer.nearest import nearest_hint
from sublayer.objective.evaluation import Evaluation
from sublayer.objective.supervised.answering import (
    answer_known,
    asked_of,
    objective_of,
    unprepared,
    unprepared_part,
)
from sublayer.objective.supervised.scores import (
    BaselineScores,
    answer_split,
    average_reports,
    part_name,
    report_split,
)
from sublayer.tasks.own_table import read_labelled, read_labelled_table, table_of
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import named
from sublayer.tasks.registry import TASKS, wording_of
from sublayer.tasks.scoring import paired
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.task import Example, Prediction, Task


def asked_spec(asked: Evaluation) -> TaskSpec:
    """Return the tasks and format of a model, with the options of an evaluation.

    A model of a task with the same labels is adapted to the requested task, in place. Raises
    ConfigError for a meaningless option, CheckpointError without a tokenizer.
    """
    text_model = asked.text_model
    if (name := asked.options.get("task")) is not None:
        if name not in TASKS:
            raise ConfigError(f"--task {name:.60} is no task{nearest_hint(name, TASKS)}")
        answer_known(text_model, TASKS[name])
    spec = _spec(asked)
    answer = asked.options.get("answer")
    if answer is not None:
        if spec.format != "text":
            raise ConfigError(
                f"--answer is for models that read tasks as text to text, and this one reads them "
                f"in format {spec.format}: leave it out"
            )
        if answer == "rank" and not any(wording_of(task).has_ranks for task in spec.tasks):
            raise ConfigError(
                "--answer rank chooses among labels or choices, of which "
                f"{', '.join(task.title for task in spec.tasks)} has none: leave it out"
            )
        spec = replace(spec, answer=answer)
    if text_model.tokenizer is None:
        raise CheckpointError(f"{asked.run} has no tokenizer.json, without which it reads no text")
    # Without its format's special tokens it cannot read text.
    find_marks(text_model.tokenizer, spec.format)
    return spec


@dataclass(frozen=True)
class TaskScoring:
    """Examples to score, and training examples of baselines."""

    split: TaskSplit
    train: Mapping[str, Sequence[Example]]
    """By the task; those of which nothing can be learned are not there."""
    notes: tuple[str, ...] = ()


def answer_asked(asked: Evaluation) -> tuple[TaskScoring, list[Prediction], float]:
    """Answer the examples of an evaluation; return answers and mean loss.

    Raises ConfigError for an unknown location of files, or a meaningless option, DataError for
    missing and damaged files.
    """
    spec = asked_spec(asked)
    scoring = asked_scoring(asked)
    progress = asked.progress("answered", "batches")
    layout = asked_of(asked.text_model, scoring.split, spec, asked.batch, progress=progress)
    predictions, loss = answer_split(layout)
    cuts = describe_cuts(scoring.split, layout.rule)
    return replace(scoring, notes=(*scoring.notes, *cuts)), predictions, loss


def asked_scoring(asked: Evaluation) -> TaskScoring:
    """Read the examples of an evaluation. Raises as ``answer_asked`` does."""
    path, recipe = asked.options.get("path"), asked.recipe
    raw = None if recipe is None else recipe.data.path
    is_own = isinstance(raw, str) and path is not None and resolved(expanded(path)) == resolved(raw)
    if path is not None and not is_own:
        return _scoring_of_path(asked, path)
    data = own_data(asked, asked.split)
    split = of_tasks(data.valid if asked.split == "valid" else data.test)  # type: ignore[arg-type]
    notes: tuple[str, ...] = ()
    if path is not None and _spec(asked).columns:
        notes = (f"{path} is what it was trained on: scored on the rows that were left for that",)
    return TaskScoring(split, trained_examples(data), notes)


def _spec(asked: Evaluation) -> TaskSpec:
    assert asked.text_model.task is not None, "the model answers tasks"
    return asked.text_model.task


def own_data(asked: Evaluation, split: str) -> Data:
    """Prepare the examples of a model's run.

    Raises ConfigError outside a run, DataError where ``split`` differs from the run's record.
    """
    if asked.recipe is None:
        raise ConfigError(
            f"{asked.run} does not belong to a run: name the folder of the tasks' files "
            "(--path); --choose is of runs alone"
        )
    config, name = asked.recipe.data, asked.options.get("task")
    if name is not None:
        config = config.model_copy(update={"tasks": name})
    tokenizer = asked.text_model.tokenizer
    data = prepare_tasks(config, objective_of(_spec(asked)), tokenizer=tokenizer, trains=False)
    recipe = find_recipe(asked.run)
    record = None if recipe is None else read_record(recipe.parent)
    # Another task, on which the model was not trained.
    if record is None or name is not None:
        return data
    if record["data"]["checksums"].get(split) in (None, data.checksums[split]):
        return data
    asked_tasks = {task.name: task for task in _spec(asked).tasks}
    for part in of_tasks(data.train).parts:
        known = asked_tasks.get(part.task.name)
        if known is not None and known.labels != part.task.labels:
            raise DataError(
                f"the labels in {config.path} are now {named(part.task.labels)}, and those that "
                f"{asked.run} answers {named(known.labels)}: write these into the file again"
            )
    raise DataError(
        f"the examples of {asked.run} are no longer what it was trained with: restore "
        f"{config.path}, or score a copy of it, under another name, by --path: all of its rows "
        "that have a label"
    )


def trained_examples(data: Data) -> dict[str, list[Example]]:
    """Return the examples of training, by task."""
    return {part.task.name: part.distinct_examples for part in of_tasks(data.train).parts}


def _scoring_of_path(asked: Evaluation, path: str) -> TaskScoring:
    """Take all labelled rows of another file or folder, none used in training or selection."""
    text_model, spec = asked.text_model, _spec(asked)
    parts: list[TaskPart] = []
    train: dict[str, Sequence[Example]] = {}
    notes: list[str] = []
    for task in spec.tasks:
        read, learned = _read(asked, task, path)
        if learned is not None:
            train[task.name] = learned.examples
        parts += [unprepared_part(text_model, task, table.examples, table.name) for table in read]
        notes += [
            f"{task.title}, {table.name}: {note}" for table in read for note in table.described()
        ]
    split = unprepared(text_model, parts, spec).split
    by_task: dict[str, list[Example]] = {}
    if asked.recipe is not None:
        try:
            by_task = trained_examples(own_data(asked, "train"))
        except DataError as error:
            notes.append(f"not known what it was trained on, nor the baselines of that: {error}")
    for part in parts:
        trained = {example.texts for example in by_task.get(part.task.name, ())}
        n_trained = sum(example.texts in trained for example in part.examples)
        if n_trained:
            notes.append(
                f"{part.task.title}: {n_trained:,} of {len(part.examples):,} rows are among those "
                "that it was trained on: too good by that"
            )
    return TaskScoring(split, {**by_task, **train}, tuple(notes))


def _read(asked: Evaluation, task: Task, path: str) -> tuple[list[ReadSplit], ReadSplit | None]:
    columns = _spec(asked).columns
    if columns:
        # Undivided rows need no groups.
        needed = {role: columns[role] for role in columns if role not in ("group", "id")}
        return [read_labelled_table(table_of(path, needed), task)], None
    if task.name not in TASKS:
        raise ConfigError(
            f"{asked.run} answers {task.name}, of which there are no files: name a task that has "
            "the same labels (--task)"
        )
    return read_labelled(task, path)


def check_same_rows(
    run: Path, part: TaskPart, other_run: Path, other: TaskPart, what: str = "is scored on"
) -> None:
    """Raise ConfigError where labels differ, and DataError where rows do.

    ``what`` is the verb of the message.
    """
    if part.task.labels != other.task.labels:
        raise ConfigError(
            f"{other_run} answers {part.task.title} by other labels than {run}: take models "
            "of one task"
        )
    mine, theirs = (
        [(row.id, *row.texts, row.label, *row.answers) for row in side.examples]
        for side in (part, other)
    )
    if mine != theirs:
        n_common = len(set(mine) & set(theirs))
        raise DataError(
            f"{other_run} {what} other rows of {part.task.title} than {run}: "
            f"{n_common:,} of {len(theirs):,} are the same; take models of the same data, "
            "divided alike, or a file that neither has seen (--path)"
        )


def compare_with(
    asked: Evaluation, split: TaskSplit, predictions: Sequence[Prediction], against: Path
) -> dict[str, Any]:
    """Compare two models' answers to the same examples, by common task.

    Raises ConfigError without a common task, DataError for different examples.
    """
    theirs, their_predictions, _ = answer_asked(_request(asked, against))
    others = {
        (part.task.name, part.published): (part, answers)
        for part, answers in theirs.split.by_part(their_predictions)
    }
    tasks = []
    for part, ours in split.by_part(predictions):
        if (part.task.name, part.published) not in others:
            continue
        other, other_own = others[part.task.name, part.published]
        check_same_rows(asked.run, part, against, other)
        comparison = paired(part.examples, ours, other_own, part.task.metrics)
        tasks.append(
            {
                "task": part_name(part, split.parts),
                "title": part.task.title,
                "examples": len(part.examples),
                **asdict(comparison),
                "is_decided": comparison.is_decided,
            }
        )
    if not tasks:
        titles = [
            ", ".join(dict.fromkeys(part.task.title for part in side.parts))
            for side in (theirs.split, split)
        ]
        raise ConfigError(
            f"{against} answers {titles[0]}, and {asked.run} {titles[1]}: compare models of one "
            "task"
        )
    return {"run": str(against), "tasks": tasks}


def _request(asked: Evaluation, against: Path) -> Evaluation:
    """Build the same request for another model."""
    text_model = load(against, device=asked.model.embedding.weight.device)
    if text_model.task is None:
        raise ConfigError(f"{against} answers no task: name a fine-tuned model")
    recipe = find_recipe(against)
    run_recipe = None if recipe is None else read_run_recipe(recipe)
    options = {name: value for name, value in asked.options.items() if name != "against"}
    if text_model.task.format != "text":
        options.pop("answer", None)
    return replace(asked, run=against, text_model=text_model, recipe=run_recipe, options=options)


def evaluate_tasks(asked: Evaluation) -> dict[str, Any]:
    """Score the published development set, held-out examples, or another file or folder.

    Includes baselines, where they have training examples, and the comparison with ``against``, if
    given. Raises as ``answer_asked`` and ``compare_with`` do.
    """
    scoring, predictions, loss = answer_asked(asked)
    against = asked.options.get("against")
    compared = None if against is None else compare_with(asked, scoring.split, predictions, against)
    reports = report_split(scoring.split, BaselineScores(lambda: scoring.train), predictions)
    result = {
        "tasks": [report.to_json() for report in reports],
        "averages": average_reports(reports),
        "loss": loss,
        "selected_by": selected_by(asked),
        "part": asked.split,
        "notes": list(scoring.notes),
        "run": str(asked.run),
    }
    return result if compared is None else {**result, "against": compared}


def selected_by(asked: Evaluation) -> str | None:
    """Return what selected a run's checkpoint: last, held-out or dev; None outside a run."""
    if asked.recipe is None:
        return None
    return "last" if asked.recipe.train.best_by == "last" else asked.recipe.data.select
