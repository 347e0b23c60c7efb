"""The tasks that there are, by name, and their files."""

from pathlib import Path

from sublayer.errors import DataError
from sublayer.files.paths import expanded
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.releases import fetched_folder
from sublayer.tasks.rows import Found, Published
from sublayer.tasks.suites.choices import CLOZE, DPR
from sublayer.tasks.suites.glue import GLUE, NLI
from sublayer.tasks.suites.race import RACE
from sublayer.tasks.suites.squad import SQUAD
from sublayer.tasks.suites.superglue import SUPERGLUE
from sublayer.tasks.task import Task
from sublayer.tasks.wording import WORDINGS, Wording

SUITES: dict[str, tuple[Published, ...]] = {
    "glue": GLUE,
    "superglue": SUPERGLUE,
    "squad": SQUAD,
    "race": RACE,
    "nli": NLI,
    "cloze": CLOZE,
    "dpr": DPR,
}
"""Rows by suite, in the order of ``sublayer tasks``."""
ROWS = {row.task.name: row for rows in SUITES.values() for row in rows}
TASKS: dict[str, Task] = {name: row.task for name, row in ROWS.items()}
"""By name."""


def wording_of(task: Task) -> Wording:
    """Return how the examples of a task are written for a model."""
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
    return ROWS[task.name].find(path)


def locate_files(task: Task, folder: str | Path | None = None, cache: Path | None = None) -> Found:
    """Find a task's files in a folder; without one in the cache, else download them.

    Raises DataError where there are none, or they cannot be downloaded, with what to do.
    """
    if folder is None:
        fetched = fetched_folder(task, cache)
        files = find_files(task, fetched)
        if not files:
            raise DataError(f"{fetched} has no files of {task.title}: remove it, and try again")
        return files
    files = find_files(task, folder)
    if not files:
        raise DataError(
            f"{folder} has no files of {task.title}: `sublayer tasks {folder}` lists what it has"
        )
    return files


def read_split(task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    """Read a split of a task. Raises DataError, with file and line, where its format is wrong."""
    return ROWS[task.name].read(split, paths)
