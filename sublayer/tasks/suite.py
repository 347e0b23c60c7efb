"""A suite: tasks that are published together, where their files lie, and how they are read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sublayer.tasks.columns import Columns
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.task import Task

Found = Mapping[str, tuple[Path, ...]]
"""The files of each split that is there, by its name."""


@dataclass(frozen=True)
class Suite:
    """A row for each publisher."""

    name: str
    """As ``Task.suite``."""
    tasks: tuple[Task, ...]
    find: Callable[[Task, Path], Found]
    """Finds a task's files in a folder, by the names that its publishers and the hub give them:
    the folder of the suite, of the task, or one above."""
    read: Callable[[Task, str, tuple[Path, ...]], ReadSplit]
    """Reads a split's files. Rows that have no meaning are left out and counted.

    Raises DataError, with file and line, where a file is not of the format."""
    files: Mapping[str, str] = field(default_factory=dict)
    """By the task, the names that its files are found by."""
    columns: Mapping[str, Columns] = field(default_factory=dict)
    """By the task, what the columns of its files are called; of others, as its fields are."""
