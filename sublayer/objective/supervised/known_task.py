"""A model of another system made to answer a known task: its labels, by their words."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from sublayer.errors import ConfigError
from sublayer.model.transformer import Transformer
from sublayer.objective.supervised.number_scale import BIAS, WEIGHT, from_numbers, to_numbers
from sublayer.tasks.labels import label_places
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.task import Task


def answer_known(model: Transformer, task: Task) -> None:
    """Have a model that answers a task of the same kind answer a known one; it changes in place.

    The rows of its head are put into the order of the task's labels, by their words; numbers are
    put on the task's scale. Raises ConfigError where its answers are of another kind, or the words
    are not those of the task.
    """
    spec: TaskSpec | None = model.task
    if spec is None or spec.format == "text":
        raise ConfigError(f"the model has no head that answers a task, such as {task.title}")
    own = spec.tasks[0]
    if own.kind != task.kind or own.has_unanswerable != task.has_unanswerable:
        raise ConfigError(
            f"{task.title} asks for {_described(task)}, and the model answers {own.title}, "
            f"{_described(own)}: name another task"
        )
    if task.kind in ("classes", "number"):
        weights: dict[str, Any] = model.state_dict()
        if task.kind == "number":
            changed = from_numbers(to_numbers(weights, own), task)
        else:
            places = label_places(own.labels, task)
            changed = {name: _in_order(weights[name], places) for name in (WEIGHT, BIAS)}
        model.load_state_dict({**weights, **changed})
    model.task = replace(spec, tasks=(task,))


def _in_order(rows: Tensor, places: tuple[int, ...]) -> Tensor:
    if len(rows) < len(places):
        # One output answers for two labels: it is the second's logit, the first's is 0.
        return rows if places == (0, 1) else -rows
    return rows[list(places)]


def _described(task: Task) -> str:
    kinds = {
        "classes": "labels",
        "choice": "choices",
        "number": "a number",
        "span": "spans",
        "text": "texts",
    }
    return f"{kinds[task.kind]}{', or that there is none' if task.has_unanswerable else ''}"
