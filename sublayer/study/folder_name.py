"""Where a comparison goes: the folder that is named, that it began in, or a free one."""

import os
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from sublayer.runs.folder import earlier_folders_named, folders_named
from sublayer.study.definition import Study
from sublayer.study.folder import StudyFolder
from sublayer.study.plan_file import Request


def find_folder(study: Study, request: Request, out: Path | None) -> StudyFolder:
    """Return the folder ``out``, else the one that holds the study, else the first that is free.

    One that an earlier version began, which named it after the recipe alone, is found too. Raises
    ConfigError where a study.toml on the way is damaged.
    """
    if out is not None:
        return StudyFolder(out, request)
    for path in _taken(study):
        folder = StudyFolder(path, request)
        if folder.is_ours():
            return folder  # its margin and looks are checked where it is gone on with
    every = (StudyFolder(path, request) for path in folders_named(study.folder or study.name))
    return next(folder for folder in every if folder.is_free())


def _taken(study: Study) -> Iterator[Path]:
    yield from takewhile(os.path.lexists, folders_named(study.folder or study.name))
    yield from takewhile(os.path.lexists, earlier_folders_named(study.name))
