"""A task's published parts divided into what trains, what selects and what is scored."""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from sublayer.config.data import DEFAULT_HELD_OUT, DataConfig
from sublayer.counts import count
from sublayer.data.arrays import Bools
from sublayer.data.cache import content_key
from sublayer.data.tasks.task_files import Kept, TaskFiles
from sublayer.errors import DataError
from sublayer.tasks.division import count_bundles, held_out
from sublayer.tasks.own_table import NAME
from sublayer.tasks.task import Example

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


class Division:
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
        self._devs = files.scored_splits
        self._tests = files.test_splits if config.score_on == "test" else []
        if config.score_on == "test" and not self._tests:
            raise DataError(
                f"data.score_on = test scores the published test set, and {files.task.title} has "
                f"none here ({', '.join(files.found)}): leave it out"
            )
        self._has_train = "train" in files.found
        self._source = "train" if self._has_train else self._devs[0]
        self._is_published = self._has_train and bool(self._devs)
        self._selects_by_dev = config.select.startswith("dev")
        if config.select == "parts" and files.task.name != NAME:
            raise DataError(
                "data.select = parts is of a table of your own in three files, and "
                f"{files.task.title} is none: leave it out"
            )
        if files.selecting_split and config.held_out != DEFAULT_HELD_OUT:
            raise DataError(
                f"data.held_out has no effect: {files.selecting_split} of {files.task.title} "
                "selects, and nothing is held out of the training part: leave it out"
            )
        if self._selects_by_dev and not self._is_published:
            missing = "development set" if self._has_train else "training part"
            raise DataError(
                f"data.select = {config.select} selects by the development set, and there is no "
                f"{missing} of {files.task.title}: leave it out"
            )
        if config.select == _MISMATCHED and self._selecting_dev not in self._devs:
            raise DataError(
                f"data.select = {config.select} selects by MNLI's second development set, and "
                f"{files.task.title} has {' and '.join(self._devs)}: give data.select=dev"
            )

    @property
    def trained(self) -> Chosen:
        """What is trained on."""
        chosen = self._is_usable & ~self._is_test & ~self._is_held_out
        asked = self._config.train_examples
        n_there = int(chosen.sum())
        if asked is not None and n_there < asked:
            raise DataError(
                f"data.train_examples = {asked:,} are more than the {n_there:,} examples of "
                f"{self._files.task.title}, {self._source}, that are left to train on: give fewer"
            )
        if asked is not None:
            # By the row alone, so that more examples are these and others.
            order = np.random.default_rng(_FIRST_EXAMPLES).permutation(len(chosen))
            places = order[chosen[order]][:asked]
            chosen = np.zeros_like(chosen)
            chosen[places] = True
        if not chosen.any():
            raise DataError(
                f"no row of {self._files.task.title}, {self._source}, is left to train on: "
                f"{self._reasons(self._source) or f'{self._n_usable} with a label'}"
            )
        return Chosen(self._source, chosen)

    @property
    def selecting(self) -> list[Chosen]:
        """What selects."""
        if self._files.selecting_split:
            return self._published([self._files.selecting_split])
        if self._selects_by_dev:
            return self._published([self._selecting_dev])
        if not self._is_held_out.any():
            otherwise = ", or data.select=dev" if self._is_published else ""
            raise DataError(
                f"nothing can be held out of {self._files.task.title}, {self._source}, which has "
                f"{self._n_usable} with a label: give more{otherwise}{self._bound}"
                f"{_after_colon(self._reasons(self._source))}"
            )
        return [Chosen(self._source, self._is_held_out)]

    @property
    def _selecting_dev(self) -> str:
        """The development set that selects: of several the first, which is the matched one."""
        return "dev_mismatched" if self._config.select == _MISMATCHED else self._devs[0]

    @property
    def scored(self) -> list[Chosen]:
        """What is scored in the end."""
        if self._tests:
            return self._published(self._tests)
        if self._is_published:
            return self._published(self._devs)
        if not self._is_test.any():
            raise DataError(
                f"{self._files.task.title} has no development set, and nothing of its "
                f"{self._n_usable} with a label can be left out to be scored: give "
                f"more{self._bound}{_after_colon(self._reasons(self._source))}"
            )
        return [Chosen(self._source, self._is_test)]

    def _published(self, splits: list[str]) -> list[Chosen]:
        for split in splits:
            if not self._files.usable(split).any():
                raise DataError(
                    f"no row of {self._files.task.title}, {split}, has a label to score by"
                    f"{_after_colon(self._reasons(split))}"
                    + (": give data.score_on=dev" if split in self._tests else "")
                )
        return [Chosen(split) for split in splits]

    def _reasons(self, split: str) -> str:
        """Say why rows were left out; empty where none was."""
        return "; ".join(note for note in self._files.notes(split) if " left out: " in note)

    @property
    def _n_usable(self) -> str:
        n = int(self._is_usable.sum())
        return f"{n:,} of {len(self._is_usable):,} rows"

    @property
    def _bound(self) -> str:
        """Say into how few parts rows can be divided, where these are less than the rows."""
        n_bundles = count_bundles(self._examples(self._is_usable))
        if n_bundles == self._is_usable.sum():
            return ""
        return (
            "; rows with the same texts, of one source or of one group stay together, which makes "
            f"{count(n_bundles, 'part')} of them"
        )

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


def _after_colon(reasons: str) -> str:
    return f": {reasons}" if reasons else ""
