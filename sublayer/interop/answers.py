"""Tasks of models of other systems: labels of a config, answers of a folder's model."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.config.supervised import KINDS
from sublayer.config.table import MOST_LABELS
from sublayer.errors import CheckpointError
from sublayer.files.parsing import read_json_object
from sublayer.interop.foreign_config import (
    ClassConfig,
    Field,
    Unsayable,
    format_value,
    one_of,
    optional,
    training_only,
    whole,
)
from sublayer.objective.supervised.loss import BIAS, WEIGHT
from sublayer.tasks.own_table import METRICS
from sublayer.tasks.own_table import NAME as TABLE
from sublayer.tasks.spec import FILE_NAME, TaskSpec, read_spec
from sublayer.tasks.task import Kind, Task

Answers = Literal["tokens", "labels", "choices", "spans"]
"""Outputs of a model: of tokens, or a task's labels (or a number), choices or spans."""
ANSWERS: tuple[Answers, ...] = ("labels", "choices", "spans")
"""Those of tasks."""
REGRESSION, CLASSIFICATION = "regression", "single_label_classification"
_INDEPENDENT = "multi_label_classification"
NAME = "imported"
"""Of a task that no folder names."""
_FIELDS: dict[Kind, tuple[str, ...]] = {
    "classes": ("text",),
    "number": ("text",),
    "choice": ("text",),
    "span": ("context", "question"),
}
_FORMATS: dict[str, Any] = {"encoder": "pair", "decoder": "traversal"}


def _words(value: Any) -> Any:
    """Return a table of labels: their words by their numbers, which are texts."""
    words = list(value.values()) if type(value) is dict else []
    are_words = all(type(word) is str and word.strip() and word.isprintable() for word in words)
    numbers = {str(index) for index in range(len(words))}
    if not words or len(words) > MOST_LABELS or set(value) != numbers or not are_words:
        raise ValueError(
            f"is no table of labels: a word for each number from 0, of up to {MOST_LABELS:,}"
        )
    if len(set(words)) < len(words):
        raise Unsayable("two labels have one name")
    return value


def _problem(value: Any) -> Any:
    if one_of((REGRESSION, CLASSIFICATION, _INDEPENDENT))(value) == _INDEPENDENT:
        raise Unsayable("labels that exclude each other, or a number")
    return value


LABELS = {
    "id2label": Field(None, optional(_words)),
    "num_labels": Field(2, whole(MOST_LABELS)),
}
"""Fields of a config.json with the words of outputs."""
TYPED_LABELS = {**LABELS, "problem_type": training_only(None, optional(_problem))}
"""The same with the kind of problem."""


def label_words(content: ClassConfig) -> tuple[str, ...]:
    """Return the labels of a head's outputs, in order.

    Unnamed ones have transformers' default names. Raises CheckpointError where the numbers of
    labels and names differ.
    """
    words = content.fields["id2label"]
    if words is None:
        return default_words(content.fields["num_labels"])
    n_labels = content.given.get("num_labels", len(words))
    if n_labels != len(words):
        raise CheckpointError(
            f"{content.file}: num_labels = {n_labels}, and id2label has {len(words)}: leave "
            "num_labels out"
        )
    return tuple(words[str(index)] for index in range(len(words)))


def is_number(content: ClassConfig, words: tuple[str, ...]) -> bool:
    """Check whether a head has a single output, which is then a number.

    Raises CheckpointError where it has several numbers, or one class.
    """
    problem = content.fields["problem_type"]
    stated = f"{content.file}: problem_type = {format_value(problem)}"
    if problem == REGRESSION and len(words) > 1:
        raise CheckpointError(f"{stated} of {len(words)} outputs: a recipe can say one number")
    if problem == CLASSIFICATION and len(words) == 1:
        raise CheckpointError(f"{stated} of one output: it has nothing to choose")
    return len(words) == 1


def describe_labels(task: Task | None, n_outputs: int) -> dict[str, Any]:
    """Return the config fields of a head's outputs; without a task they are numbered."""
    words = default_words(n_outputs)
    problem = None if n_outputs == 1 else CLASSIFICATION
    if task is not None:
        words = task.labels or words
        problem = REGRESSION if task.kind == "number" else CLASSIFICATION
    return {
        "id2label": {str(index): word for index, word in enumerate(words)},
        "label2id": {word: index for index, word in enumerate(words)},
        "problem_type": problem,
    }


def default_words(n_labels: int) -> tuple[str, ...]:
    """Return transformers' default names of labels."""
    return tuple(f"LABEL_{index}" for index in range(n_labels))


def with_row_of_each(
    config: ResolvedModel, weights: Mapping[str, Tensor], task: Task | None
) -> tuple[ResolvedModel, dict[str, Tensor]]:
    """Return a config and weights whose head has a row for each of two labels, as transformers has.

    A single output is the second label's logit; the first gets 0. All else is unchanged.
    """
    if task is None or task.kind != "classes" or config.label_outputs != 1:
        return config, dict(weights)
    rows = {}
    for name in (WEIGHT, BIAS):
        rows[name] = torch.cat([torch.zeros_like(weights[name]), weights[name]])
    return config.model_copy(update={"label_outputs": 2}), {**weights, **rows}


def folder_task(
    folder: Path, answers: Answers, content: ClassConfig, config: ResolvedModel
) -> TaskSpec | None:
    """Return the task of a folder's model, if any.

    An export of ours says it. Of other folders the class names the kind of task, and the config the
    words of labels, in their order, and whether there is a number; texts are called ``text``, of
    spans ``context`` and ``question``. A number has no bounds, and its scale is that of the head.

    Raises CheckpointError where the file of an export is damaged, or contradicts the config.
    """
    path = folder / FILE_NAME
    by_config = _task_by_config(answers, content, config)
    if not path.is_file():
        return by_config
    spec = read_spec(read_json_object(path, CheckpointError), str(path))
    if config.kind not in KINDS[spec.format]:
        raise CheckpointError(f"{path} is of format {spec.format}, which no {config.kind} reads")
    if by_config is None:
        if spec.format != "text":
            raise CheckpointError(f"{path} is of format {spec.format}: the model has no such head")
        return spec
    task, expected = spec.tasks[0], by_config.tasks[0]
    contradictions = {
        f"{len(spec.tasks)} of format {spec.format}, not one of {by_config.format}": (
            spec.format != by_config.format or len(spec.tasks) > 1
        ),
        f"{task.kind}, not {expected.kind}": task.kind != expected.kind,
        f"labels {', '.join(task.labels)}, not {', '.join(expected.labels)}": (
            task.labels != expected.labels
        ),
        f"{spec.context} tokens, more than {by_config.context}": spec.context > by_config.context,
    }
    if conflicts := [words for words, is_so in contradictions.items() if is_so]:
        raise CheckpointError(
            f"{path} contradicts config.json ({conflicts[0]:.200}): leave {FILE_NAME} out"
        )
    return spec


def _task_by_config(
    answers: Answers, content: ClassConfig, config: ResolvedModel
) -> TaskSpec | None:
    if answers == "tokens":
        return None
    labels: tuple[str, ...] = ()
    kinds: dict[Answers, Kind] = {"choices": "choice", "spans": "span", "labels": "classes"}
    kind = kinds[answers]
    if answers == "labels":
        labels = label_words(content)
        if is_number(content, labels):
            kind, labels = "number", ()
    # An encoder's padding comes from its tokenizer; its class never searches rows for it.
    pad_id = content.fields.get("pad_token_id") if config.kind == "decoder" else None
    return replace(task_of(kind, labels, config), pad_id=pad_id)


def task_of(
    kind: Kind,
    labels: tuple[str, ...],
    config: ResolvedModel,
    *,
    numbers: tuple[float, float] = (-1.0, 1.0),
) -> TaskSpec:
    """Return a task that nothing names, of a model with this config; a number has no bounds.

    ``numbers`` are those at which a head of a number gives -1 and 1.
    """
    task = Task(
        NAME,
        NAME,
        TABLE,
        kind,
        _FIELDS[kind],
        METRICS[kind],
        labels=labels,
        numbers=numbers,
        is_bounded=kind != "number",
    )
    return TaskSpec((task,), _FORMATS[config.kind], config.max_len)
