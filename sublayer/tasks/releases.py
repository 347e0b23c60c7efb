"""Releases of tasks: files with their addresses and checksums, and the cache of downloads.

Source of the addresses and sums in the rows of tasks: huggingface/datasets at 040102f,
``dataset_infos.json`` of glue, super_glue, squad, squad_v2, snli, race and scitail.
"""

import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from sublayer.errors import DataError
from sublayer.files.cache_folder import Download, cache_folder, fetch
from sublayer.files.storage import new_folder, remove_abandoned
from sublayer.system.stages import stage

_ARCHIVES = (".zip", ".tar.gz")
_MOST_BYTES = 8 << 30
_BLOCK_BYTES = 1 << 20
_Member = tuple[str, int, IO[bytes]]


@dataclass(frozen=True)
class Release:
    """The files that a task is published in; several tasks may share them."""

    folder: str
    """Folder in the cache, below the folder of all tasks."""
    files: tuple[Download, ...]
    keeps: str = r"[^/]+/[^/]+\.(tsv|jsonl)"
    """A pattern of the paths in an archive that are kept."""

    @classmethod
    def of(cls, folder: str, sums: Mapping[str, str], **keeps: str) -> "Release":
        """Return the release of files, by their addresses, with their SHA-256."""
        # The sums are of one time: a mirror's archive, or a mended one, may have another.
        files = (Download(url, None, "sha256", sha, may_differ=True) for url, sha in sums.items())
        return cls(folder, tuple(files), **keeps)

    def path(self, cache: Path | None) -> Path:
        """Return the folder of the files in the cache, whether it is there or not."""
        return cache_folder(cache) / "tasks" / self.folder

    def fetched(self, title: str, cache: Path | None) -> Path:
        """Return the folder of the files in the cache, downloaded where they are not there.

        Raises DataError, with the addresses to fetch, where a task of a ``title`` cannot be
        downloaded.
        """
        folder = self.path(cache)
        if folder.is_dir():
            return folder
        try:
            self._fetch(folder)
        except DataError as error:
            urls = ", ".join(file.url for file in self.files)
            raise DataError(
                f"{title} is not in the cache, and {error}. By hand: fetch {urls}, unpack what is "
                "packed, and name the folder (finetune --data DIR, evaluate --path DIR)"
            ) from error
        return folder

    def _fetch(self, folder: Path) -> None:
        try:
            remove_abandoned(folder.parent)
            with new_folder(folder) as unfinished:
                for download in self.files:
                    name = download.url.rpartition("/")[2]
                    path = fetch(download, unfinished / name)
                    if name.endswith(_ARCHIVES):
                        _extract(path, self.keeps, unfinished)
                        path.unlink()
        except OSError as error:
            if not folder.is_dir():  # that is, no other process was quicker
                raise DataError(f"cannot write {folder}: {error.strerror or error}") from error


def _extract(archive: Path, keeps: str, target: Path) -> None:
    """Extract the files of an archive that are wanted; raise DataError where there are none."""
    n_files = 0
    n_bytes = 0
    try:
        with stage(f"extracting {archive.name}"):
            for name, size, content in _members(archive):
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
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, RuntimeError) as error:
        raise DataError(f"{archive.name} is a damaged archive ({error})") from error
    if not n_files:
        raise DataError(f"{archive.name} holds none of the files that it is known for")


def _members(archive: Path) -> Iterator[_Member]:
    """Open the files of an archive, one after another, with their names and sizes."""
    if archive.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as packed:
            for member in packed.infolist():
                if not member.is_dir():
                    yield member.filename, member.file_size, packed.open(member)
        return
    with tarfile.open(archive) as tar:
        for entry in tar:
            content = tar.extractfile(entry) if entry.isfile() else None
            if content is not None:
                yield entry.name, entry.size, content
