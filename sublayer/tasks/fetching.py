"""The files of tasks in the cache: looked for, or else downloaded from their publishers."""

import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from sublayer.errors import DataError
from sublayer.files.cache_folder import cache_folder
from sublayer.files.download import fetch
from sublayer.files.storage import new_folder, remove_abandoned
from sublayer.system.stages import stage
from sublayer.tasks.releases import RELEASES, Release
from sublayer.tasks.task import Task

_ARCHIVES = (".zip", ".tar.gz")
_MOST_BYTES = 8 << 30
_BLOCK_BYTES = 1 << 20
_Member = tuple[str, int, IO[bytes]]


def cached_folder(task: Task, cache: Path | None = None) -> Path | None:
    """Return the folder of a task's files in the cache; None where there is none."""
    release = RELEASES.get(task.name)
    if release is None:
        return None
    folder = _folder(release, cache)
    return folder if folder.is_dir() else None


def fetched_folder(task: Task, cache: Path | None = None) -> Path:
    """Return the folder of a task's files in the cache, downloaded where they are not there.

    Raises DataError, with what to fetch and how to name it, where that is not possible.
    """
    release = RELEASES.get(task.name)
    if release is None:
        raise DataError(
            f"{task.title} is not served for download: name the folder of its files with --data DIR"
        )
    folder = _folder(release, cache)
    if folder.is_dir():
        return folder
    try:
        _fetch(release, folder)
    except DataError as error:
        urls = ", ".join(file.url for file in release.files)
        raise DataError(
            f"{task.title} is not in the cache, and {error}. By hand: fetch {urls}, unpack what is "
            "packed, and name the folder with --data DIR"
        ) from error
    return folder


def _folder(release: Release, cache: Path | None) -> Path:
    return cache_folder(cache) / "tasks" / release.folder


def _fetch(release: Release, folder: Path) -> None:
    try:
        remove_abandoned(folder.parent)
        with new_folder(folder) as unfinished:
            for download in release.files:
                name = download.url.rpartition("/")[2]
                path = fetch(download, unfinished / name)
                if name.endswith(_ARCHIVES):
                    _extract(path, release.keeps, unfinished)
                    path.unlink()
    except OSError as error:
        if not folder.is_dir():  # that is, no other process was quicker
            raise DataError(f"cannot write {folder}: {error.strerror or error}") from error


def _extract(archive: Path, keeps: str, target: Path) -> None:
    """Extract the files of an archive that are wanted; raise DataError where there are none."""
    n_files = 0
    n_bytes = 0
    with stage(f"extracting {archive.name}"), _opened(archive) as members:
        for name, size, content in members:
            parts = PurePosixPath(name).parts
            if not re.fullmatch(keeps, name) or any(part[0] in "._/" for part in parts):
                continue
            n_files += 1
            n_bytes += size
            if n_bytes > _MOST_BYTES:
                raise DataError(f"{archive.name} becomes more than {_MOST_BYTES >> 30} GiB")
            path = target.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("xb") as file:
                shutil.copyfileobj(content, file, _BLOCK_BYTES)
    if not n_files:
        raise DataError(f"{archive.name} holds none of the files that it is known for")


@contextmanager
def _opened(archive: Path) -> Iterator[Iterator[_Member]]:
    try:
        if archive.name.endswith(".zip"):
            with zipfile.ZipFile(archive) as packed:
                yield _zip_members(packed)
        else:
            with tarfile.open(archive) as tar:
                yield _tar_members(tar)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, RuntimeError) as error:
        raise DataError(f"{archive.name} is a damaged archive ({error})") from error


def _zip_members(archive: zipfile.ZipFile) -> Iterator[_Member]:
    for member in archive.infolist():
        if not member.is_dir():
            yield member.filename, member.file_size, archive.open(member)


def _tar_members(archive: tarfile.TarFile) -> Iterator[_Member]:
    for member in archive:
        content = archive.extractfile(member) if member.isfile() else None
        if content is not None:
            yield member.name, member.size, content
