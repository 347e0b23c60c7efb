"""Files of a task, or a user's table, divided into training, selection and scoring."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sublayer.config.data import DEFAULT_HELD_OUT, DataConfig, own_table
from sublayer.counts import count
from sublayer.data.arrays import Bools
from sublayer.data.cache import content_key, file_digest
from sublayer.errors import DataError
from sublayer.files.arrays import dump_arrays, load_arrays
from sublayer.files.cache_folder import replacing
from sublayer.system.stages import stage
from sublayer.tasks.division import count_bundles, held_out
from sublayer.tasks.finding import SUFFIXES, entries, unpacked_name
from sublayer.tasks.own_table import NAME, OwnTable, describe_left_out, read_table
from sublayer.tasks.reading import VERSION, ReadSplit
from sublayer.tasks.records import suffix_of
from sublayer.tasks.registry import TASKS, locate_files, read_split
from sublayer.tasks.task import Example, Task

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
        """Scored splits: the published development set."""
        return [name for name in self.task.dev_splits if name in self.found]

    @property
    def selecting_split(self) -> str:
        """Selection split besides the scored one; empty without one."""
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
        """Describe omitted, repaired and kept rows of a split, and other anomalies."""
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
            usable = np.array([example.is_labelled for example in read.examples], dtype=np.uint8)
            return {"usable": usable}, {"notes": read.described()}

        names = [path.name for path in self.found[split]]
        key = content_key("read, with places, fields", [names, self.identity(split)])
        return self.kept(key, compute)

    def identity(self, split: str) -> list[Any]:
        """Return the identity of a split's examples, as JSON."""
        digests = [file_digest(path, self.cache) for path in self.found[split]]
        return [VERSION, self.task.name, split, digests]

    def kept(self, key: str, compute: Callable[[], Kept]) -> Kept:
        """Read arrays from the cache by key, or compute and cache them."""
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
    located = locate_files(task, path, cache)
    if not any(name.startswith(("train", "dev")) for name in located):
        raise DataError(
            f"{path or 'the cache'} has no files of {task.title} with labels: `sublayer tasks` "
            "lists what is there, also of a folder"
        )
    return TaskFiles(task, located, cache)


@dataclass(frozen=True)
class TableFiles(TaskFiles):
    """The files of a table, which are read at once."""

    table: OwnTable
    splits: Mapping[str, ReadSplit]
    in_parts: bool = False
    """True where the development set selects, and the test set is scored, if all have labels."""

    def read(self, split: str) -> ReadSplit:
        """Return a split."""
        return self.splits[split]

    @property
    def scored_splits(self) -> list[str]:
        """The test set of three parts, of two the fully labelled one."""
        labelled = [name for name in ("dev", "test") if self._is_labelled(name)]
        return ["test"] if self.selecting_split else labelled[:1]

    @property
    def selecting_split(self) -> str:
        """The development set of three parts."""
        has_all = "train" in self.splits and all(map(self._is_labelled, ("dev", "test")))
        return "dev" if has_all and self.in_parts else ""

    def notes(self, split: str) -> list[str]:
        """Describe omitted rows of a split, and, for the first, unused files."""
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
        """Return the identity of a split: also the columns, and the task as the rows define it."""
        columns = {**asdict(self.table), "path": ""}
        if not self.table.target:
            del columns["target"]  # as identities were before there were targets
        return [*super().identity(split), columns, asdict(self.task)]


def find_task_files(config: DataConfig, cache: Path) -> list[TaskFiles]:
    """Find the files of all tasks in ``[data]``, or of a user's table.

    Raises DataError where there are none, and for a table with faults, as ``read_table``.
    """
    if config.task_names != (NAME,):
        return [task_files(TASKS[name], config.path, cache) for name in config.task_names]
    table = own_table(config.path, config.columns)
    with stage(f"reading {table.path}"):
        task, splits = read_table(table)
    paths = {name: split.paths for name, split in splits.items()}
    return [TableFiles(task, paths, cache, table, splits, config.select == "parts")]


MOST_HELD_OUT = 2000
"""Examples that are held out of the training part at most."""
_TEST_SHARE = 0.2
"""Of the rows of a folder with one part alone: those that are scored in the end."""
_MISMATCHED = "dev-mismatched"

_FIRST_EXAMPLES = 20
"""The seed of which examples come first where some are trained on."""


class Chosen(NamedTuple):
    """Some examples of a published split."""

    split: str
    examples: Bools | None = None
    """``[N]``; None: all."""


class TaskDivision:
    """The division of one task's examples.

    Where there is a training part and a development set, the latter is scored, and either selects
    (``data.select``). Where there is one of both alone, its examples are divided in three. A table
    in three parts is not divided. With ``data.score_on = "test"`` the published test set is scored,
    and one part is divided in two.

    Raises DataError where nothing is left for one of the three, and where the test set that is to
    be scored is not there.
    """

    def __init__(self, config: DataConfig, files: TaskFiles) -> None:
        self._config = config
        self._files = files
        self._title = files.task.title
        self._devs = files.scored_splits
        scores_test = config.score_on == "test"
        self._tests = files.test_splits if scores_test else []
        has_train = "train" in files.found
        self._source = "train" if has_train else self._devs[0]
        self._is_published = has_train and bool(self._devs)
        self._selects_by_dev = config.select.startswith("dev")
        # Of several development sets the first is the matched one.
        is_second = config.select == _MISMATCHED
        self._dev = "dev_mismatched" if is_second else next(iter(self._devs), "")
        select = f"data.select = {config.select}"
        refusals = {
            "data.score_on = test scores the published test set": scores_test and not self._tests,
            f"{select} is of a table of your own in three files": config.select == "parts"
            and files.task.name != NAME,
            f"data.held_out has no effect, {files.selecting_split} selects": bool(
                files.selecting_split
            )
            and config.held_out != DEFAULT_HELD_OUT,
            f"{select} needs a training part and a development set": self._selects_by_dev
            and not self._is_published,
            f"{select} needs MNLI's second development set": is_second
            and self._dev not in self._devs,
        }
        for why, is_refused in refusals.items():
            if is_refused:
                raise DataError(f"{why}; {self._title} has {', '.join(files.found)}: leave it out")

    @property
    def trained(self) -> Chosen:
        """Training examples."""
        chosen = self._is_usable & ~self._is_test & ~self._is_held_out
        asked = self._config.train_examples
        n_there = int(chosen.sum())
        if asked is not None and n_there < asked:
            raise DataError(
                f"data.train_examples = {asked:,} are more than the {n_there:,} examples of "
                f"{self._title}, {self._source}, that are left to train on: give fewer"
            )
        if asked is not None:
            # Depends only on the row, so that larger subsets contain smaller ones.
            order = np.random.default_rng(_FIRST_EXAMPLES).permutation(len(chosen))
            places = order[chosen[order]][:asked]
            chosen = np.zeros_like(chosen)
            chosen[places] = True
        return self._some(chosen, "left to train on", "")

    @property
    def selecting(self) -> list[Chosen]:
        """Selection examples."""
        if self._files.selecting_split:
            return self._published([self._files.selecting_split])
        if self._selects_by_dev:
            return self._published([self._dev])
        remedy = ", or data.select=dev" if self._is_published else ""
        return [self._some(self._is_held_out, "held out to select by", remedy)]

    @property
    def scored(self) -> list[Chosen]:
        """Scored examples."""
        if self._tests or self._is_published:
            return self._published(self._tests or self._devs)
        return [self._some(self._is_test, "left out to be scored", "")]

    def _published(self, splits: list[str]) -> list[Chosen]:
        for split in splits:
            if not self._files.usable(split).any():
                remedy = ": give data.score_on=dev" if split in self._tests else ""
                raise DataError(
                    f"no row of {self._title}, {split}, has a label to score by"
                    f"{self._reasons(split)}{remedy}"
                )
        return [Chosen(split) for split in splits]

    def _some(self, examples: Bools, what: str, remedy: str) -> Chosen:
        """Return chosen examples of the divided part; raise DataError where there are none."""
        if examples.any():
            return Chosen(self._source, examples)
        n = int(self._is_usable.sum())
        # Rows with the same texts, of one source or of one group stay together.
        n_bundles = count_bundles(self._examples(self._is_usable))
        bundles = f", in {count(n_bundles, 'group')} that one side takes" if n_bundles < n else ""
        raise DataError(
            f"no row of {self._title}, {self._source}, is {what}: {n:,} of "
            f"{len(self._is_usable):,} rows have a label{bundles}: give more{remedy}"
            f"{self._reasons(self._source)}"
        )

    def _reasons(self, split: str) -> str:
        """Describe omitted rows of a split, after a colon."""
        reasons = "; ".join(note for note in self._files.notes(split) if " left out: " in note)
        return f": {reasons}" if reasons else ""

    def _examples(self, chosen: Bools) -> list[Example]:
        examples = self._files.read(self._source).examples
        return [examples[index] for index in np.flatnonzero(chosen)]

    @cached_property
    def _is_usable(self) -> Bools:
        return self._files.usable(self._source)

    @cached_property
    def _is_test(self) -> Bools:
        if self._is_published or self._tests:
            return np.zeros(len(self._is_usable), dtype=np.bool_)
        return self._divided(_TEST_SHARE, len(self._is_usable), self._is_usable)

    @cached_property
    def _is_held_out(self) -> Bools:
        if self._selects_by_dev or self._files.selecting_split:
            return np.zeros(len(self._is_usable), dtype=np.bool_)
        usable = self._is_usable & ~self._is_test
        return self._divided(self._config.held_out, MOST_HELD_OUT, usable)

    def _divided(self, share: float, at_most: int, usable: Bools) -> Bools:
        identity = self._files.identity(self._source)
        key = content_key(
            "divided", identity, share, at_most, len(usable), np.flatnonzero(~usable).tolist()
        )

        def compute() -> Kept:
            is_out = np.zeros(len(usable), dtype=np.uint8)
            is_out[usable] = held_out(self._examples(usable), share, at_most)
            return {"out": is_out}, {}

        arrays, _ = self._files.kept(key, compute)
        is_out: Bools = arrays["out"].astype(np.bool_)
        return is_out
