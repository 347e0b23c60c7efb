"""What ``sublayer evaluate`` does with a fine-tuned model: score the examples of its tasks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sublayer.config.data import DataConfig
from sublayer.data.prepare import Data
from sublayer.data.tasks.marks import find_marks
from sublayer.data.tasks.prepare import prepare_tasks
from sublayer.data.tasks.task_split import of_tasks
from sublayer.errors import CheckpointError, ConfigError
from sublayer.evaluation.split_work import ALONE
from sublayer.nearest import nearest_hint
from sublayer.objective.evaluation import Evaluation
from sublayer.objective.supervised.batches import row_rule
from sublayer.objective.supervised.known_task import answer_known
from sublayer.objective.supervised.objective_of import objective_of
from sublayer.objective.supervised.report import render_reports, report_split
from sublayer.objective.supervised.scores import answer_split
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec


def evaluate_tasks(asked: Evaluation) -> dict[str, Any]:
    """Score the published development set, or what was held out, beside the baselines.

    Raises ConfigError where it is not known where the files are, DataError where they are not what
    they should be.
    """
    model = asked.model
    if (name := asked.options.get("task")) is not None:
        if name not in TASKS:
            raise ConfigError(f"--task {name:.60} is no task{nearest_hint(name, TASKS)}")
        answer_known(model, TASKS[name])
    data = data_of(asked)
    split = of_tasks(data.valid if asked.split == "valid" else data.test)  # type: ignore[arg-type]
    spec: TaskSpec = model.task
    answer = asked.options.get("answer")
    if answer is not None:
        if spec.format != "text":
            raise ConfigError(
                f"--answer is for models that read tasks as text to text, and this one reads them "
                f"in format {spec.format}: leave it out"
            )
        spec = replace(spec, answer=answer)
    rule = row_rule(
        objective_of(spec),
        split,
        context=spec.context,
        kind=model.config.kind,
        starts_with_pad=model.config.decoder_start == "pad",
    )
    progress = asked.progress("answered", "batches")
    predictions, loss = answer_split(model, split, rule, spec, ALONE, progress)
    reports = report_split(split, of_tasks(data.train), predictions)
    return {
        "tasks": [each.to_json() for each in reports],
        "loss": loss,
        "selected_by": _selected_by(asked),
        "part": asked.split,
        "run": str(asked.run),
    }


def data_of(asked: Evaluation) -> Data:
    """Prepare the examples of a model's tasks, from its run's folder of files or another."""
    model = asked.model
    spec: TaskSpec = model.task
    if model.tokenizer is None:
        raise CheckpointError(f"{asked.run} has no tokenizer.json, without which it reads no text")
    path = asked.options.get("path")
    if asked.recipe is not None:
        given: dict[str, Any] = {"path": path, "tasks": asked.options.get("task")}
        changes = {name: value for name, value in given.items() if value is not None}
        config = asked.recipe.data.model_copy(update=changes)
    elif path is None:
        raise ConfigError(
            f"{asked.run} does not belong to a run: name the folder of the tasks' files (--path)"
        )
    else:
        names = tuple(task.name for task in spec.tasks)
        if unknown := [name for name in names if name not in TASKS]:
            raise ConfigError(
                f"{asked.run} answers {unknown[0]}, of which there are no files: name a task that "
                "has the same labels (--task)"
            )
        config = DataConfig(tasks=names, path=path, context=spec.context)
    # Without the marks of its format it reads none.
    find_marks(model.tokenizer, spec.format)
    return prepare_tasks(config, objective_of(spec), tokenizer=model.tokenizer)


def _selected_by(asked: Evaluation) -> str | None:
    if asked.recipe is None:
        return None
    if asked.recipe.train.best_by == "last":
        return "last"
    return asked.recipe.data.select


def render_tasks(result: Mapping[str, Any]) -> str:
    """Format the scores for the terminal."""
    lines = [render_reports(result["tasks"])]
    if result["part"] == "valid":
        lines.append("scored on what was held out, which chose the checkpoint: too good by that")
    elif result["selected_by"] == "dev":
        lines.append(
            "the development set chose the checkpoint that it scores (data.select = dev), as in "
            "the papers: too good by that"
        )
    return "\n".join(lines)
