"""A table of one's own as the files of a task, which its rows say."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sublayer.config.data import DataConfig
from sublayer.config.text.own_table import own_table
from sublayer.data.tasks.task_files import TaskFiles, task_files
from sublayer.system.stages import stage
from sublayer.tasks.own_table.table import Table
from sublayer.tasks.own_table.task import NAME, read_table
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.registry import TASKS


@dataclass(frozen=True)
class TableFiles(TaskFiles):
    """The files of a table, which are read at once."""

    table: Table
    splits: Mapping[str, ReadSplit]

    def read(self, split: str) -> ReadSplit:
        """Return a split."""
        return self.splits[split]

    @property
    def scored_splits(self) -> list[str]:
        """The development set, or else a test set all of whose rows have labels."""
        labelled = [name for name in ("dev", "test") if self._is_labelled(name)]
        return labelled[:1]

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
    return [TableFiles(task, found, cache, table, splits)]
