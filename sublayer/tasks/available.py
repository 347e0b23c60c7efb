"""Splits of a task in a folder: files, rows, rows left out, repaired or kept with a fault."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sublayer.errors import DataError
from sublayer.system.stages import stage
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.registry import find_files, read_split
from sublayer.tasks.releases import cached_folder
from sublayer.tasks.task import Task


@dataclass(frozen=True)
class Counted:
    """Rows with something wrong, and the first of them."""

    rows: int
    first: str
    """File and line."""


@dataclass(frozen=True)
class AvailableSplit:
    """A split of a task."""

    files: tuple[str, ...]
    rows: int | None = None
    """Examples; None where they were not read."""
    unlabelled: int = 0
    """Those of them without a label or answer."""
    left_out: Mapping[str, Counted] = field(default_factory=dict)
    """By the reason."""
    repaired: Mapping[str, Counted] = field(default_factory=dict)
    """By the repair."""
    kept: Mapping[str, Counted] = field(default_factory=dict)
    """Kept as they are, by their fault."""
    problem: str = ""
    """Why it cannot be read."""


def find_task(
    task: Task, folder: Path | None, cache: Path | None = None, *, reads: bool
) -> dict[str, AvailableSplit]:
    """Find the splits of a task in a folder, or without one in the cache, and count their rows.

    Where ``reads`` is false they are found alone. What cannot be read has its problem instead.
    Raises DataError where the folder does not exist.
    """
    place = cached_folder(task, cache) if folder is None else folder
    if place is None:
        return {}
    return {
        split: _read(task, split, paths) if reads else AvailableSplit(_names(paths))
        for split, paths in find_files(task, place).items()
    }


def _read(task: Task, split: str, paths: tuple[Path, ...]) -> AvailableSplit:
    try:
        with stage(f"reading {split} of {task.title}"):
            read = read_split(task, split, paths)
    except DataError as error:
        return AvailableSplit(_names(paths), problem=str(error))
    return AvailableSplit(
        files=_names(paths),
        rows=len(read.examples),
        unlabelled=sum(not example.is_labelled for example in read.examples),
        left_out=_counted(read, read.skipped),
        repaired=_counted(read, read.repaired),
        kept=_counted(read, read.kept),
    )


def _counted(read: ReadSplit, rows: Mapping[str, int]) -> dict[str, Counted]:
    return {reason: Counted(n, read.firsts[reason]) for reason, n in rows.items()}


def _names(paths: tuple[Path, ...]) -> tuple[str, ...]:
    return tuple(str(path) for path in paths)
