"""Tasks of a fine-tuned model and their format: saved with it, and enough to use it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from sublayer.errors import CheckpointError, ConfigError
from sublayer.tasks.own_table import table_of
from sublayer.tasks.registry import SUITES, TASKS
from sublayer.tasks.scoring import METRICS
from sublayer.tasks.task import Kind, Task

FILE_NAME = "task.json"
VERSION = 1
_KINDS = get_args(Kind)
_FORMATS = ("pair", "traversal", "text")
_ANSWERS = ("greedy", "rank")
_LEAST = {"context": 1, "target_length": 0, "doc_stride": 1, "max_answer": 1}
_MOST = 100_000_000
"""Tokens: more than any model reads at a time."""
_FLAGS = ("is_symmetric", "is_bounded", "has_unanswerable")
_PRESUMED = ("suite", "kind", "fields", *_FLAGS)
"""Of a published task: what its files are read by, and its formats written by."""


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

    columns: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    """Of a table of one's own: which of its columns are what, as ``data.columns`` says it."""
    pad_id: int | None = None
    """The id that fills rows up by the config of an imported model, where that gives one."""

    def with_threshold(self, threshold: float) -> "TaskSpec":
        """Return the same with another threshold."""
        return replace(self, threshold=threshold)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        content = {"version": VERSION, **asdict(self)}
        if self.pad_id is None:
            del content["pad_id"]
        return content


_NAMES = tuple(each.name for each in fields(TaskSpec))
_LATER = ("columns", "pad_id")
"""Fields that files of earlier versions of this program lack."""


def spec_files(spec: TaskSpec | None) -> dict[str, bytes]:
    """Return the file of a model folder that has the model's task; none where there is no task."""
    if spec is None:
        return {}
    return {FILE_NAME: json.dumps(spec.to_json(), indent=1, ensure_ascii=False).encode() + b"\n"}


def read_spec(content: Mapping[str, Any], source: str) -> TaskSpec:
    """Read what ``to_json`` wrote; ``source`` is what errors call it.

    Raises CheckpointError where it is damaged or of another version.
    """
    if content.get("version") != VERSION:
        raise CheckpointError(
            f"{source} is of version {content.get('version')!r:.60}, this program reads {VERSION}"
        )
    try:
        known = [name for name in _NAMES if name in content or name not in _LATER]
        values = {name: content[name] for name in known}
        values["tasks"] = tuple(_read_task(task) for task in content["tasks"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{source} does not describe a task ({error!s:.200})") from None
    if not values["tasks"] or values["format"] not in _FORMATS:
        raise CheckpointError(f"{source} does not describe a task")
    if values["answer"] not in _ANSWERS:
        raise CheckpointError(f"{source} does not say how an answer is read off")
    for name, least in _LEAST.items():
        if type(values[name]) is not int or not least <= values[name] <= _MOST:
            raise CheckpointError(f"{source}: {name} is not a whole number of {least} to {_MOST:,}")
    if values["threshold"] is not None and type(values["threshold"]) not in (int, float):
        raise CheckpointError(f"{source}: threshold is no number")
    pad_id = values.get("pad_id")
    if pad_id is not None and (type(pad_id) is not int or not 0 <= pad_id <= _MOST):
        raise CheckpointError(f"{source}: pad_id is not a whole number of 0 to {_MOST:,}")
    values["columns"] = _read_columns(values.get("columns", {}), source)
    return TaskSpec(**values)


def _read_columns(content: Any, source: str) -> Mapping[str, str | Sequence[str]]:
    try:
        columns = {
            role: tuple(named) if isinstance(named, list) else named
            for role, named in content.items()
        }
        if columns:
            table_of("", columns)
    except (AttributeError, TypeError, ConfigError) as error:
        raise CheckpointError(f"{source}: its columns are none ({error})") from None
    return columns


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
    _check_texts(task)
    _check_flags(task)
    _check_published(task)
    is_number = [type(each) in (int, float) for each in task.numbers]
    if is_number != [True, True] or not task.numbers[0] < task.numbers[1]:
        raise ValueError("its numbers are not the lowest and the highest")
    return task


def _check_texts(task: Task) -> None:
    """Raise ValueError where words of a task are none, or a task lacks those that it needs."""
    for name in ("name", "title", "suite", "trained_as"):
        if type(getattr(task, name)) is not str:
            raise ValueError(f"its {name} is no text")
    for name in ("fields", "metrics", "labels", "splits"):
        words = getattr(task, name)
        if type(words) is not tuple or not all(type(word) is str for word in words):
            raise ValueError(f"its {name} are no texts")
        if len(set(words)) < len(words):
            raise ValueError(f"of its {name} two are one")
    if not task.fields or (task.kind == "classes") != bool(task.labels):
        raise ValueError("it lacks fields, or labels, or has labels of no classes")
    unknown = [name for name in task.metrics if name not in METRICS]
    if unknown or not task.metrics:
        raise ValueError(f"its metrics are {', '.join(unknown) or 'none'}: not known")


def _check_flags(task: Task) -> None:
    """Raise ValueError where a flag of a task is neither true nor false, or cannot be true."""
    for name in _FLAGS:
        if type(getattr(task, name)) is not bool:
            raise ValueError(f"its {name} is neither true nor false")
    if task.is_symmetric and (len(task.fields) != 2 or task.kind == "choice"):
        raise ValueError("it exchanges two texts, and has not two")
    if task.has_unanswerable and task.kind != "span":
        raise ValueError("it has questions without an answer, and no passages")


def _check_published(task: Task) -> None:
    """Raise ValueError where a task has the name of a published one, and is another."""
    known = TASKS.get(task.name)
    if known is None:
        if task.suite in SUITES:
            raise ValueError(f"{task.suite} has no task {task.name:.60}")
        return
    for name in _PRESUMED:
        if getattr(task, name) != getattr(known, name):
            raise ValueError(f"its {name} is not that of {known.title}")
