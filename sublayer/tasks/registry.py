"""The tasks that there are, by name, their files, and the averages of suites."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from sublayer.errors import DataError
from sublayer.files.storage import expanded
from sublayer.system.stages import stage
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.rows import Found, Published
from sublayer.tasks.suites.choices import CLOZE, DPR
from sublayer.tasks.suites.glue import GLUE, NLI
from sublayer.tasks.suites.race import RACE
from sublayer.tasks.suites.squad import SQUAD
from sublayer.tasks.suites.superglue import SUPERGLUE
from sublayer.tasks.task import Task
from sublayer.tasks.wording import WORDINGS, Wording


@dataclass(frozen=True)
class Suite:
    """Tasks that are published together."""

    title: str
    """The heading of its tasks."""
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
"""By name, in the order of ``sublayer tasks``."""
ROWS = {row.task.name: row for suite in SUITES.values() for row in suite.rows}
TASKS: dict[str, Task] = {name: row.task for name, row in ROWS.items()}
"""By name."""


AVERAGES: dict[str, tuple[str, ...]] = {
    title: tuple(name for name, row in ROWS.items() if title in row.averages)
    for title in dict.fromkeys(title for row in ROWS.values() for title in row.averages)
}
"""Tasks by the title of their average."""


def suite_averages(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Average the scores of tasks over each complete suite.

    ``scores`` has those of a task's sets: MNLI's score is the mean of matched and mismatched.
    """
    of_tasks = {task: fmean(sets) for task, sets in scores.items()}
    return {
        title: fmean(of_tasks[task] for task in tasks)
        for title, tasks in AVERAGES.items()
        if of_tasks.keys() >= set(tasks)
    }


def wording_of(task: Task) -> Wording:
    """Return the wording of a task's examples."""
    row = ROWS.get(task.name)
    wording = row.wording if row is not None else None
    return (wording or WORDINGS[task.kind])(task)


def find_files(task: Task, folder: str | Path) -> Found:
    """Find the files of each split of a task; a split without any is left out.

    Raises DataError where the folder does not exist.
    """
    path = expanded(str(folder))
    if not path.is_dir():
        raise DataError(f"{folder} is no folder: name the one that holds the tasks' files")
    return ROWS[task.name].find(path, [row.layout for row in ROWS.values()])


def cached_folder(task: Task, cache: Path | None = None) -> Path | None:
    """Return the folder of a task's files in the cache; None where there is none."""
    release = ROWS[task.name].release
    folder = None if release is None else release.path(cache)
    return folder if folder is not None and folder.is_dir() else None


def locate_files(task: Task, folder: str | Path | None = None, cache: Path | None = None) -> Found:
    """Find a task's files in a folder; without one in the cache, else download them.

    Raises DataError where there are none, or they cannot be downloaded, with what to do.
    """
    remedy = f"`sublayer tasks {folder}` lists what it has"
    if folder is None:
        release = ROWS[task.name].release
        if release is None:
            raise DataError(
                f"{task.title} is not served for download: name the folder of its files (finetune "
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
    """Describe the splits of a task in a folder, or without one in the cache, by files and rows.

    Where ``reads`` is false they are found alone, and ``rows`` is None. What cannot be read has its
    problem instead. Raises DataError where the folder does not exist.
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
