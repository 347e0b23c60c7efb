"""The heads that a task asks for, as far as a recipe tells before anything is read."""

from typing import Any

from sublayer.config.data import DataConfig
from sublayer.config.model import ModelConfig
from sublayer.config.recipe import Recipe, ResolvedModel
from sublayer.config.resolve_model import resolve_model
from sublayer.config.supervised import SupervisedObjective
from sublayer.config.texts import kind_of
from sublayer.tasks.own_table import NAME
from sublayer.tasks.registry import TASKS, wording_of
from sublayer.tasks.task import Task


def expected_model(recipe: Recipe, vocab_size: int) -> ResolvedModel:
    """Resolve a recipe's model with the heads that its data will ask for, which is not read yet.

    Raises ConfigError as ``resolve_model`` does.
    """
    model = recipe.model
    if isinstance(recipe.objective, SupervisedObjective):
        model = with_heads(model, recipe.objective, expected_tasks(recipe.data)[0])
    return resolve_model(model, vocab_size=vocab_size, context=recipe.data.context)


def expected_tasks(data: DataConfig) -> tuple[Task, ...]:
    """Return the tasks that ``[data]`` names. Of a table that is not read two labels are taken."""
    names = data.task_names
    if names != (NAME,):
        return tuple(TASKS[name] for name in names)
    kind = kind_of(NAME, data.columns) or "classes"
    labels = ("0", "1") if kind == "classes" else ()
    return (Task(NAME, NAME, NAME, kind, ("text",), (), labels=labels),)


def with_heads(model: ModelConfig, objective: SupervisedObjective, task: Task) -> ModelConfig:
    """Return a model with the head that a task needs, and none that it does not."""
    # A start that answers another task has heads for that.
    changes: dict[str, Any] = {"sentence_classes": 0, "label_outputs": 0, "span_head": "none"}
    if objective.format == "text":
        return model.model_copy(update=changes)
    if not objective.language_weight:
        changes.update(
            head="none",
            softmax="tokens",
            head_activation="ffn",
            head_bias=False,
            output_scale="none",
        )
    if task.kind == "span":
        joint = "joint" if task.has_unanswerable else "independent"
        changes.update(span_head=joint, pooler="none")
    else:
        objective.check_head(task)
        changes["label_outputs"] = n_outputs(task, logistic=objective.logistic)
    return model.model_copy(update=changes)


def n_outputs(task: Task, *, logistic: bool = False) -> int:
    """Count the outputs of a label head: one for each class, or one of a choice or a number.

    ``logistic``: one of two classes, too.
    """
    return len(task.labels) if task.kind == "classes" and not logistic else 1


def rows_of_example(recipe: Recipe) -> int:
    """Count the rows that are computed together, as a micro-batch at least.

    One for each choice, of which an example may have more, or for each order of two texts.
    """
    objective = recipe.objective
    if not isinstance(objective, SupervisedObjective) or objective.format == "text":
        return 1
    task = expected_tasks(recipe.data)[0]
    wording = wording_of(task)
    if task.kind == "choice":
        columns = recipe.data.columns or {}
        return len(columns["choices"]) if "choices" in columns else wording.n_choices
    return 2 if objective.format == "traversal" and task.is_symmetric else 1
