"""Splits of a task in a folder: files, rows, rows left out, repaired or kept with a fault."""

from pathlib import Path
from typing import Any

from sublayer.errors import DataError
from sublayer.system.stages import stage
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.registry import cached_folder, find_files, read_split
from sublayer.tasks.task import Task


def find_task(
    task: Task, folder: Path | None, cache: Path | None = None, *, reads: bool
) -> dict[str, dict[str, Any]]:
    """Find the splits of a task in a folder, or without one in the cache, and count their rows.

    Where ``reads`` is false they are found alone, and ``rows`` is None. What cannot be read has its
    problem instead. Raises DataError where the folder does not exist.
    """
    task_folder = cached_folder(task, cache) if folder is None else folder
    by_split = {} if task_folder is None else find_files(task, task_folder)
    described = {}
    for split, paths in by_split.items():
        read, rows, problem = ReadSplit(split, paths), None, ""
        if reads:
            try:
                with stage(f"reading {split} of {task.title}"):
                    read = read_split(task, split, paths)
                rows = len(read.examples)
            except DataError as error:
                problem = str(error)
        faults = {"left_out": read.skipped, "repaired": read.repaired, "kept": read.kept}
        described[split] = {
            "files": tuple(map(str, paths)),
            "rows": rows,
            "unlabelled": sum(not example.is_labelled for example in read.examples),
            **{
                name: {why: {"rows": n, "first": read.firsts[why]} for why, n in counted.items()}
                for name, counted in faults.items()
            },
            "problem": problem,
        }
    return described
