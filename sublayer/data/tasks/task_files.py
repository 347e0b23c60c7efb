"""The files of a task: each split read when it is first asked for, what is made of it kept."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.data.arrays import Bools
from sublayer.data.cache import content_key, file_digest
from sublayer.errors import DataError
from sublayer.files.arrays import dump_arrays, load_arrays
from sublayer.files.cache_folder import replacing
from sublayer.system.stages import stage
from sublayer.tasks.finding import SUFFIXES, entries, unpacked_name
from sublayer.tasks.reading import VERSION, ReadSplit
from sublayer.tasks.records import suffix_of
from sublayer.tasks.registry import locate_files, read_split
from sublayer.tasks.task import Task

Kept = tuple[dict[str, Any], Any]
"""Arrays by name, and a JSON header."""


@dataclass(frozen=True)
class TaskFiles:
    """The files of one task."""

    task: Task
    found: Mapping[str, tuple[Path, ...]]
    """By the publisher's splits."""
    cache: Path

    @cached_property
    def _read(self) -> dict[str, ReadSplit]:
        return {}

    def read(self, split: str) -> ReadSplit:
        """Read a split, once."""
        if split not in self._read:
            with stage(f"reading {self.task.title}, {split}"):
                self._read[split] = read_split(self.task, split, self.found[split])
        return self._read[split]

    @property
    def scored_splits(self) -> list[str]:
        """The splits that are scored in the end: those of the published development set."""
        return [name for name in self.task.dev_splits if name in self.found]

    @property
    def selecting_split(self) -> str:
        """The split that selects beside the one that is scored; empty: there is none."""
        return ""

    @property
    def test_splits(self) -> list[str]:
        """The published test sets that are here."""
        return [name for name in self.task.test_splits if name in self.found]

    def usable(self, split: str) -> Bools:
        """Return which examples of a split have labels: ``[N]``."""
        arrays, _ = self._summary(split)
        usable: Bools = arrays["usable"].astype(np.bool_)
        return usable

    def notes(self, split: str) -> list[str]:
        """Say which rows of a split were left out, repaired or kept, and what else is odd."""
        _, header = self._summary(split)
        notes: list[str] = header["notes"]
        read = {path for paths in self.found.values() for path in paths}
        stems = {_stem(path) for path in self.found[split]}
        others = [
            path.name
            for path in entries(self.found[split][0].parent)
            if path not in read and _stem(path) in stems and suffix_of(path) in SUFFIXES
        ]
        if others:
            paths = " and ".join(path.name for path in self.found[split])
            notes = [*notes, f"{', '.join(others)} beside {paths} not read"]
        return notes

    def _summary(self, split: str) -> Kept:
        def compute() -> Kept:
            read = self.read(split)
            usable = np.array([each.is_labelled for each in read.examples], dtype=np.uint8)
            return {"usable": usable}, {"notes": read.described()}

        names = [path.name for path in self.found[split]]
        key = content_key("read, with places, fields", [names, self.identity(split)])
        return self.kept(key, compute)

    def identity(self, split: str) -> list[Any]:
        """Return what the examples of a split follow from, as JSON."""
        digests = [file_digest(path, self.cache) for path in self.found[split]]
        return [VERSION, self.task.name, split, digests]

    def kept(self, key: str, compute: Callable[[], Kept]) -> Kept:
        """Read from the cache what has a key, or compute and keep it."""
        path = self.cache / "tasks" / key
        if path.is_file():
            try:
                return load_arrays(path.read_bytes(), str(path), DataError)
            except DataError:
                # A damaged file of the cache is made again.
                path.unlink(missing_ok=True)
        data = dump_arrays(*compute())
        with replacing(path) as file:
            file.write(data)
        return load_arrays(data, str(path), DataError)


def _stem(path: Path) -> str:
    return Path(unpacked_name(path)).stem


def task_files(task: Task, path: Any, cache: Path) -> TaskFiles:
    """Find a task's files in the folder that ``data.path`` names; without one in the cache, or else
    download them.

    Raises DataError where there are none.
    """
    if path is not None and not isinstance(path, str):
        raise DataError(f"data.path must name the folder of {task.title}'s files: one, not several")
    found = locate_files(task, path, cache)
    if not any(name.startswith(("train", "dev")) for name in found):
        raise DataError(
            f"{path or 'the cache'} has no files of {task.title} with labels: `sublayer tasks` "
            "lists what is there, also of a folder"
        )
    return TaskFiles(task, found, cache)
