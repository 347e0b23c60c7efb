"""What a fine-tuned model answers, and how: saved with it, and enough to use it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from sublayer.errors import CheckpointError
from sublayer.tasks.task import Task

FILE_NAME = "task.json"
VERSION = 1
_KINDS = ("classes", "choice", "number", "span")
_FORMATS = ("pair", "traversal", "text")


@dataclass(frozen=True)
class TaskSpec:
    """The tasks of a model, and how their examples are written for it."""

    tasks: tuple[Task, ...]
    format: Literal["pair", "traversal", "text"]
    context: int
    """Tokens of a row at most, marks included."""
    target_length: int = 0
    """Of text to text: tokens of a target at most."""
    answer: Literal["greedy", "rank"] = "greedy"
    """Of text to text: written token by token, or the likeliest of the labels."""
    doc_stride: int = 128
    """Of spans: tokens between the windows of a passage."""
    max_answer: int = 30
    """Of spans: tokens of the longest."""
    threshold: float | None = None
    """Of spans with unanswerable questions: the score of no answer above which none is given."""

    def with_threshold(self, threshold: float) -> "TaskSpec":
        """Return the same with another threshold."""
        return replace(self, threshold=threshold)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"version": VERSION, **asdict(self)}


def spec_files(spec: TaskSpec | None) -> dict[str, bytes]:
    """Return the file of a model folder that says what the model answers; none where nothing."""
    if spec is None:
        return {}
    return {FILE_NAME: json.dumps(spec.to_json(), indent=1, ensure_ascii=False).encode() + b"\n"}


def read_spec(content: Mapping[str, Any], source: str) -> TaskSpec:
    """Read what ``to_json`` wrote; ``source`` is what errors call it.

    Raises CheckpointError where it is damaged or of another version.
    """
    if content.get("version") != VERSION:
        raise CheckpointError(
            f"{source} is of version {content.get('version')!r}, this program reads {VERSION}"
        )
    try:
        values = {each.name: content[each.name] for each in fields(TaskSpec)}
        values["tasks"] = tuple(_read_task(task) for task in content["tasks"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{source} does not describe a task ({error})") from None
    if not values["tasks"] or values["format"] not in _FORMATS:
        raise CheckpointError(f"{source} does not describe a task")
    if not isinstance(values["context"], int) or values["context"] < 1:
        raise CheckpointError(f"{source} has no context")
    return TaskSpec(**values)


def _read_task(content: Mapping[str, Any]) -> Task:
    values: dict[str, Any] = {}
    for each in fields(Task):
        if each.name not in content:
            continue
        value = content[each.name]
        values[each.name] = tuple(value) if isinstance(value, list) else value
    task = Task(**values)
    if task.kind not in _KINDS:
        raise ValueError(f"{task.kind!r} is no kind of task")
    return task
