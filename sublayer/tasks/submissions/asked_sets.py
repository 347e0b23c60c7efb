"""The sets whose answers are handed in, every row of them."""

from pathlib import Path

from sublayer.errors import DataError
from sublayer.tasks.reading import SAME_ID, ReadSplit
from sublayer.tasks.registry import SUITES, read_split
from sublayer.tasks.submissions.filling import SuiteFile
from sublayer.tasks.submissions.glue import FILES as GLUE_FILES
from sublayer.tasks.submissions.superglue import FILES as SUPERGLUE_FILES
from sublayer.tasks.task import Task

_FILES: dict[str, tuple[SuiteFile, ...]] = {"glue": GLUE_FILES, "superglue": SUPERGLUE_FILES}
_SPLITS = {"squad": "dev", "race": "test"}
"""Of suites whose tasks are handed in one by one. SQuAD's test set is its publisher's alone: the
predictions for its development set are what the evaluation script takes."""


def asked_sets(suite: str) -> tuple[tuple[str, str], ...]:
    """Return task and split of each set that a suite's publisher asks for."""
    if suite in _FILES:
        return tuple((file.task, file.split) for file in _FILES[suite])
    return tuple((task.name, _SPLITS[suite]) for task in SUITES[suite].tasks)


def read_test_set(task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    """Read a set that is handed in.

    Raises DataError where rows of it are left out, or two have one id: nothing may be missing.
    """
    read = read_split(task, split, paths)
    problems = [*read.skipped, *(what for what in read.repaired if what == SAME_ID)]
    if problems:
        first = problems[0]
        n = read.skipped[first] or read.repaired[first]
        raise DataError(
            f"{read.firsts[first]}: {first} (in {n:,}): a submission has an answer for each row, "
            "by its id: mend the file"
        )
    return read
