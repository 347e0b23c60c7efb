"""A table of one's own as the files of a task, which its rows say."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sublayer.config.data import DataConfig
from sublayer.config.texts import own_table
from sublayer.counts import count
from sublayer.data.tasks.task_files import TaskFiles, task_files
from sublayer.system.stages import stage
from sublayer.tasks.own_table import NAME, Table, describe_left_out, read_table
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.registry import TASKS


@dataclass(frozen=True)
class TableFiles(TaskFiles):
    """The files of a table, which are read at once."""

    table: Table
    splits: Mapping[str, ReadSplit]
    in_parts: bool = False
    """Whether the development set selects, and the test set is scored, if all have labels."""

    def read(self, split: str) -> ReadSplit:
        """Return a split."""
        return self.splits[split]

    @property
    def scored_splits(self) -> list[str]:
        """The test set of three parts, of two the one that all of whose rows have labels."""
        labelled = [name for name in ("dev", "test") if self._is_labelled(name)]
        return ["test"] if self.selecting_split else labelled[:1]

    @property
    def selecting_split(self) -> str:
        """The development set of three parts."""
        has_all = "train" in self.splits and all(map(self._is_labelled, ("dev", "test")))
        return "dev" if has_all and self.in_parts else ""

    def notes(self, split: str) -> list[str]:
        """Say which rows of a split were left out, and, of the first, which files are not used."""
        notes = self.splits[split].described()
        if split == next(iter(self.splits)):
            used = [split, self.selecting_split, *self.scored_splits]
            notes += [
                f"{self.splits[name].paths[0]} is not used: {self._why_unused(name)}"
                for name in self.splits
                if name not in used
            ]
            notes += describe_left_out(self.table.path, self.found)
        return notes

    def _why_unused(self, name: str) -> str:
        if not self._is_labelled(name):
            n_without = sum(not example.is_labelled for example in self.splits[name].examples)
            return f"{count(n_without, 'row')} without a label; `sublayer predict` answers them"
        if "train" not in self.splits:
            return "there is no training part, and the development set is divided in three"
        return "dev is scored; with data.select=parts dev selects, and test is scored"

    def _is_labelled(self, name: str) -> bool:
        split = self.splits.get(name)
        return split is not None and all(example.is_labelled for example in split.examples)

    def identity(self, split: str) -> list[Any]:
        """Return what examples follow from: also the columns, and what the rows say of the task."""
        columns = {**asdict(self.table), "path": ""}
        if not self.table.target:
            del columns["target"]  # as identities were before there were targets
        return [*super().identity(split), columns, asdict(self.task)]


def find_task_files(config: DataConfig, cache: Path) -> list[TaskFiles]:
    """Find the files of all tasks that ``[data]`` names, or of a table of one's own.

    Raises DataError where there are none, and for what a table should not be, as ``read_table``.
    """
    if config.task_names != (NAME,):
        return [task_files(TASKS[name], config.path, cache) for name in config.task_names]
    table = own_table(config.path, config.columns)
    with stage(f"reading {table.path}"):
        task, splits = read_table(table)
    found = {name: split.paths for name, split in splits.items()}
    return [TableFiles(task, found, cache, table, splits, config.select == "parts")]
