"""Rows with labels, of a file or a folder, all of which are to be scored."""

from sublayer.errors import DataError
from sublayer.files.paths import expanded
from sublayer.tasks.own_table.rows import find_table
from sublayer.tasks.own_table.table import Table
from sublayer.tasks.own_table.task import read_rows
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.registry import find_files, read_split
from sublayer.tasks.task import Task

_HANDED_IN = (
    "a test set is handed in (`sublayer predict RUN --submission`), a development set is scored"
)


def read_labelled(task: Task, path: str) -> tuple[list[ReadSplit], ReadSplit | None]:
    """Read a file of a task, or the development sets of a folder, and the training set beside.

    The latter is None where there is none. Raises DataError where no row has a label.
    """
    place = expanded(path)
    if place.is_file():
        asked = read_split(task, "test", (place,))
        if not any(example.is_labelled for example in asked.examples):
            raise DataError(f"no row of {path} has a label to score {task.title} by: {_HANDED_IN}")
        return [read_split(task, "dev", (place,))], None
    found = find_files(task, place)
    devs = [name for name in task.dev_splits if name in found]
    if not devs:
        there = ", ".join(found) or "nothing"
        raise DataError(
            f"{path} has {there} of {task.title}, and no development set to score: {_HANDED_IN}"
        )
    scored = [read_split(task, name, found[name]) for name in devs]
    train = read_split(task, "train", found["train"]) if "train" in found else None
    return scored, train


def read_labelled_table(table: Table, task: Task) -> ReadSplit:
    """Read a table of one's own, or of a folder the development set, or else the test set.

    Raises DataError where no row has a label, and for labels that the task has not.
    """
    found = find_table(table.path)
    name = next(name for name in ("dev", "test", "train") if name in found)
    if len(found) == 3:  # the development set selected
        tests = read_rows(table, task, "test", found["test"]).examples
        name = "test" if all(example.is_labelled for example in tests) else "dev"
    read = read_rows(table, task, "dev", found[name])
    if not read.examples:
        raise DataError(f"no row of {table.path} has a label to score by: answer it, by predict")
    if len(found) > 1:
        others = ", ".join(str(paths[0]) for each, paths in found.items() if each != name)
        read.notes.append(f"{found[name][0]} is scored, and not {others}")
    return read
