"""What the model of a HuggingFace folder answers: as an export wrote it, or as its config says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from sublayer.config.objectives.supervised import KINDS
from sublayer.config.resolved import ResolvedModel
from sublayer.errors import CheckpointError
from sublayer.files.parsing import read_json_object
from sublayer.interop.answers.label_fields import is_number, label_words
from sublayer.interop.huggingface.class_fields import ClassConfig
from sublayer.interop.huggingface.family import Answers
from sublayer.tasks.own_table.task import METRICS
from sublayer.tasks.own_table.task import NAME as TABLE
from sublayer.tasks.spec import FILE_NAME, TaskSpec, read_spec
from sublayer.tasks.task import Kind, Task

NAME = "imported"
"""Of a task that no folder names."""
_FIELDS: dict[Kind, tuple[str, ...]] = {
    "classes": ("text",),
    "number": ("text",),
    "choice": ("text",),
    "span": ("context", "question"),
}
_FORMATS: dict[str, Any] = {"encoder": "pair", "decoder": "traversal"}


def folder_task(
    folder: Path, answers: Answers, content: ClassConfig, config: ResolvedModel
) -> TaskSpec | None:
    """Return what a model answers; None where it answers no task.

    An export of ours says it. Of other folders the class says what is asked, and the config the
    words of labels, in their order, and whether there is a number; texts are called ``text``, of
    spans ``context`` and ``question``. A number has no bounds, and its scale is that of the head.

    Raises CheckpointError where the file of an export is damaged, or contradicts the config.
    """
    path = folder / FILE_NAME
    said = _of_config(answers, content, config)
    if not path.is_file():
        return said
    spec = read_spec(read_json_object(path, CheckpointError), str(path))
    if config.kind not in KINDS[spec.format]:
        raise CheckpointError(f"{path} is of format {spec.format}, which no {config.kind} reads")
    if said is None:
        if spec.format != "text":
            raise CheckpointError(f"{path} is of format {spec.format}: the model has no such head")
        return spec
    _check(spec, said, path)
    return spec


def _of_config(answers: Answers, content: ClassConfig, config: ResolvedModel) -> TaskSpec | None:
    kind: Kind
    labels: tuple[str, ...] = ()
    match answers:
        case "tokens":
            return None
        case "choices":
            kind = "choice"
        case "spans":
            kind = "span"
        case "labels":
            words = label_words(content)
            kind = "number" if is_number(content, words) else "classes"
            labels = () if kind == "number" else words
    spec = task_of(kind, labels, config)
    # An encoder's padding is its tokenizer's, which its class never looks for in a row.
    pad_id = content.fields.get("pad_token_id") if config.kind == "decoder" else None
    return replace(spec, pad_id=pad_id)


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


def _check(spec: TaskSpec, said: TaskSpec, path: Path) -> None:
    """Raise CheckpointError where an export's own file and its config say different things."""
    task, expected = spec.tasks[0], said.tasks[0]
    contradiction = None
    if spec.format != said.format or len(spec.tasks) > 1:
        contradiction = f"{len(spec.tasks)} of format {spec.format}, not one of {said.format}"
    elif task.kind != expected.kind:
        contradiction = f"{task.kind}, not {expected.kind}"
    elif task.labels != expected.labels:
        contradiction = f"labels {', '.join(task.labels)}, not {', '.join(expected.labels)}"
    elif spec.context > said.context:
        contradiction = f"{spec.context} tokens, more than {said.context}"
    if contradiction is not None:
        raise CheckpointError(
            f"{path} contradicts config.json ({contradiction:.200}): leave {FILE_NAME} out"
        )
