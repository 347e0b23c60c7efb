"""The files of tasks that are on this machine."""

from collections.abc import Sequence

from sublayer.errors import DataError
from sublayer.tasks.fetching import cached_folder
from sublayer.tasks.registry import TASKS, find_files


def local_folder(tasks: Sequence[str], data: str | None) -> str:
    """Return the folder with files of one of several tasks: the one named, or else the cache's.

    Raises DataError where none is there: nothing is downloaded.
    """
    titles = " or ".join(TASKS[name].title for name in tasks)
    if data is not None:
        if not any(find_files(TASKS[name], data) for name in tasks):
            raise DataError(
                f"{data} has no files of {titles}: `sublayer tasks {data}` lists what it has"
            )
        return data
    for name in tasks:
        folder = cached_folder(TASKS[name])
        if folder is not None:
            return str(folder)
    raise DataError(
        f"{titles} is not in the cache, and a suite downloads nothing: name the folder of its "
        'files, data = "DIR"'
    )
