"""Which heads of a model cannot be those of the model that it starts from, and why."""

from torch import Tensor

from sublayer.config.heads import HEADS
from sublayer.model.transformer import Transformer
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.task import Task
from sublayer.training.start_rows import TOKEN_TABLES

OUTPUT_BIAS = "head.bias"
"""The one tensor of the vocabulary head that stands apart: with or without it, the rest fits."""


def fresh_heads(
    model: Transformer, source: Transformer, answered: TaskSpec | None, run: str
) -> dict[str, str]:
    """Return the heads that start fresh, by name, each with the reason in words.

    ``answered`` is what the start, which ``run`` names, answers: a label head is kept where the
    model's answers are the same.
    """
    reasons = {}
    for name in model.heads:
        if name not in source.heads:
            reasons[name] = f"{run} has none"
        elif name == "label" and not _answers_alike(answered, model.task):
            titles = ", ".join(task.title for task in answered.tasks) if answered else "another"
            reasons[name] = f"that of {run} answers {titles}"
        elif _shapes(model, name) != _shapes(source, name):
            reasons[name] = f"that of {run} has other weights"
    return reasons


def without_output_bias(
    targets: dict[str, Tensor], tensors: dict[str, Tensor], run: str
) -> list[str]:
    """Drop the output bias where only one of two models has it; say in words where it is fresh."""
    is_there, is_here = OUTPUT_BIAS in tensors, OUTPUT_BIAS in targets
    if is_there != is_here:
        tensors.pop(OUTPUT_BIAS, None)
        targets.pop(OUTPUT_BIAS, None)
    return [f"output bias ({run} has none)"] if is_here and not is_there else []


def _shapes(model: Transformer, head: str) -> dict[str, tuple[int, ...]]:
    """Collect the shapes of a head's tensors, without the rows of tokens."""
    prefix = f"{HEADS[head].attribute}."
    shapes = {}
    for name, value in model.state_dict().items():
        if name.startswith(prefix) and name != OUTPUT_BIAS:
            shape = tuple(value.shape)
            shapes[name] = shape[1:] if name in TOKEN_TABLES else shape
    return shapes


def _answers_alike(there: TaskSpec | None, here: TaskSpec | None) -> bool:
    """Return whether one head can answer both; of a model that says nothing it is taken."""
    if there is None or here is None:
        return True
    return _asked(there.tasks[0]) == _asked(here.tasks[0])


def _asked(task: Task) -> tuple[object, ...]:
    """Return what an output of a task's head means."""
    return (task.kind, task.labels, task.numbers if task.kind == "number" else ())
