"""Tasks by name, their files, averages of suites, and the tasks of a model."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.files.parsing import check_typed
from sublayer.files.storage import expanded
from sublayer.system.terminal import stage
from sublayer.tasks.metrics import METRICS
from sublayer.tasks.own_table import table_of
from sublayer.tasks.published import Found, Published, ReadSplit
from sublayer.tasks.suites.choices import CLOZE, DPR
from sublayer.tasks.suites.glue import GLUE, NLI
from sublayer.tasks.suites.passages import RACE, SQUAD
from sublayer.tasks.suites.superglue import SUPERGLUE
from sublayer.tasks.task import Task
from sublayer.tasks.wording import WORDINGS, Wording


@dataclass(frozen=True)
class Suite:
    """Tasks published together."""

    title: str
    """Heading of its tasks."""
    rows: tuple[Published, ...]


SUITES = {
    "glue": Suite("GLUE", GLUE),
    "superglue": Suite("SuperGLUE", SUPERGLUE),
    "squad": Suite("SQuAD", SQUAD),
    "race": Suite("RACE", RACE),
    "nli": Suite("inference", NLI),
    "cloze": Suite("Story Cloze", CLOZE),
    "dpr": Suite("pronouns", DPR),
}
"""Suites by name, in the order of ``sublayer tasks``."""
ROWS = {row.task.name: row for suite in SUITES.values() for row in suite.rows}
TASKS: dict[str, Task] = {name: row.task for name, row in ROWS.items()}
"""Tasks by name."""


AVERAGES: dict[str, tuple[str, ...]] = {
    title: tuple(name for name, row in ROWS.items() if title in row.averages)
    for title in dict.fromkeys(title for row in ROWS.values() for title in row.averages)
}
"""Tasks by the title of their average."""


def wording_of(task: Task) -> Wording:
    """Return the wording of a task's examples."""
    row = ROWS.get(task.name)
    wording = row.wording if row is not None else None
    return (wording or WORDINGS[task.kind])(task)


def find_files(task: Task, folder: str | Path) -> Found:
    """Find the files of each split of a task; a split without files is left out.

    Raises DataError where the folder does not exist.
    """
    path = expanded(str(folder))
    if not path.is_dir():
        raise DataError(f"{folder} is not a folder: name the folder of the tasks' files")
    return ROWS[task.name].find(path, [row.layout for row in ROWS.values()])


def cached_folder(task: Task, cache: Path | None = None) -> Path | None:
    """Return the folder of a task's files in the cache; None where they are not cached."""
    release = ROWS[task.name].release
    folder = None if release is None else release.path(cache)
    return folder if folder is not None and folder.is_dir() else None


def locate_files(task: Task, folder: str | Path | None = None, cache: Path | None = None) -> Found:
    """Find a task's files in a folder; without a folder in the cache, else download them.

    Raises DataError, with the remedy, where there are none, or they cannot be downloaded.
    """
    remedy = f"`sublayer tasks {folder}` lists its tasks"
    if folder is None:
        release = ROWS[task.name].release
        if release is None:
            raise DataError(
                f"{task.title} cannot be downloaded: name the folder of its files (finetune "
                "--data DIR, evaluate --path DIR)"
            )
        folder, remedy = release.fetched(task.title, cache), "remove it, and try again"
    files = find_files(task, folder)
    if not files:
        raise DataError(f"{folder} has no files of {task.title}: {remedy}")
    return files


def read_split(task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    """Read a split of a task. Raises DataError, with file and line, where its format is wrong."""
    return ROWS[task.name].read(split, paths)


def describe_files(
    task: Task, folder: Path | None, cache: Path | None = None, *, reads: bool
) -> dict[str, dict[str, Any]]:
    """Describe a task's splits by files and rows, in a folder, or without one in the cache.

    With ``reads`` false, files are only located, and ``rows`` is None. A split that cannot be read
    has its ``problem`` instead. Raises DataError where the folder does not exist.
    """
    task_folder = cached_folder(task, cache) if folder is None else folder
    by_split = {} if task_folder is None else find_files(task, task_folder)
    described = {}
    for split, paths in by_split.items():
        read, rows, problem = ReadSplit(split, paths), None, ""
        if reads:
            try:
                with stage(f"reading {split} of {task.title}"):
                    read = read_split(task, split, paths)
                rows = len(read.examples)
            except DataError as error:
                problem = str(error)
        faults = {"left_out": read.skipped, "repaired": read.repaired, "kept": read.kept}
        described[split] = {
            "files": tuple(map(str, paths)),
            "rows": rows,
            "unlabelled": sum(not example.is_labelled for example in read.examples),
            **{
                name: {why: {"rows": n, "first": read.firsts[why]} for why, n in counted.items()}
                for name, counted in faults.items()
            },
            "problem": problem,
        }
    return described


FILE_NAME = "task.json"
VERSION = 1
_MOST = 100_000_000
"""Tokens, more than any model's context."""
_PRESUMED = ("suite", "kind", "fields", "is_symmetric", "is_bounded", "has_unanswerable")
"""Fields of a published task that determine how its files are read and its formats written."""
_Positive = Annotated[int, Field(ge=1, le=_MOST)]
_Whole = Annotated[int, Field(ge=0, le=_MOST)]


@dataclass(frozen=True)
class TaskSpec:
    """Tasks of a model, and the format of their examples."""

    tasks: Annotated[tuple[Task, ...], Field(min_length=1)]
    format: Literal["pair", "traversal", "text"]
    context: _Positive
    """Most tokens of a row, including special tokens."""
    target_length: _Whole = 0
    """Most tokens of a target, in text to text."""
    answer: Literal["greedy", "rank"] = "greedy"
    """Text to text: answers written token by token, or the likeliest of the labels."""
    doc_stride: _Positive = 128
    """Tokens between the starts of a passage's windows, for spans."""
    max_answer: _Positive = 30
    """Most tokens of a span."""
    threshold: float | None = None
    """Score of no answer above which a question is left unanswered, for spans with unanswerable
    questions."""

    columns: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    """Roles of the columns of a user's table, as in ``data.columns``."""
    pad_id: _Whole | None = None
    """Padding id in the config of an imported model, if any."""

    def with_threshold(self, threshold: float) -> "TaskSpec":
        """Return a copy with another threshold."""
        return replace(self, threshold=threshold)

    def to_json(self) -> dict[str, Any]:
        """Return the content of its JSON file."""
        content = {"version": VERSION, **asdict(self)}
        if self.pad_id is None:
            del content["pad_id"]
        return content


_LATER = ("columns", "pad_id")
"""Fields missing from files of earlier versions."""


def read_spec(content: Mapping[str, Any], source: str) -> TaskSpec:
    """Read the output of ``to_json``; ``source`` names it in errors.

    Raises CheckpointError where it is damaged or of another version.
    """
    if content.get("version") != VERSION:
        raise CheckpointError(
            f"{source} has version {content.get('version')!r:.60}, this program reads {VERSION}"
        )
    names = {field.name for field in fields(TaskSpec)}
    lacking = [name for name in names if name not in content and name not in _LATER]
    if lacking:
        raise CheckpointError(f"{source} is damaged: it lacks {min(lacking)}")
    values = {name: value for name, value in content.items() if name in names}
    spec = check_typed(values, TaskSpec, source, CheckpointError, has_tuples=True)
    columns = {
        role: name if isinstance(name, str) else tuple(name) for role, name in spec.columns.items()
    }
    try:
        if columns:
            table_of("", columns)
    except ConfigError as error:
        raise CheckpointError(f"{source} is damaged: columns: {error}") from None
    for task in spec.tasks:
        _check(task, source)
    return replace(spec, columns=columns)


def _check(task: Task, source: str) -> None:
    """Raise CheckpointError where the fields of a task contradict each other."""
    shipped = TASKS.get(task.name, task)
    unknown = [name for name in task.metrics if name not in METRICS]
    words = (task.fields, task.metrics, task.labels, task.splits)
    low, high = task.numbers
    problems = {
        f"{task.suite} has no task {task.name:.60}": shipped is task and task.suite in SUITES,
        **{
            f"its {name} differs from {shipped.title}'s": getattr(task, name)
            != getattr(shipped, name)
            for name in _PRESUMED
        },
        "a field, metric, label or split occurs twice": any(len(set(w)) < len(w) for w in words),
        "it has no fields, or its labels do not fit its kind": not task.fields
        or (task.kind == "classes") != bool(task.labels),
        f"it has no metrics, or unknown ones: {', '.join(unknown) or 'none'}": bool(unknown)
        or not task.metrics,
        "is_symmetric needs two texts": task.is_symmetric
        and (len(task.fields) != 2 or task.kind == "choice"),
        "has_unanswerable needs passages": task.has_unanswerable and task.kind != "span",
        f"its numbers are {low:g} to {high:g}": not low < high,
    }
    for problem, is_one in problems.items():
        if is_one:
            raise CheckpointError(f"{source} is damaged: {problem}")
