"""The 1 Billion Word Benchmark as released: 99 training and 50 held-out files of sentences.

The sentences are tokenised. Source: Chelba et al. 2013; the archive
1-billion-word-language-modeling-benchmark-r13output.tar.gz.
"""

import re
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from sublayer.data.cache import content_key
from sublayer.data.text.files import FileDocument
from sublayer.data.text.splitting import SplitName
from sublayer.errors import DataError
from sublayer.files.paths import resolved
from sublayer.files.storage import new_folder

RELEASE = "1-billion-word-language-modeling-benchmark-r13output"
TRAINING = "training-monolingual.tokenized.shuffled"
HELD_OUT = "heldout-monolingual.tokenized.shuffled"

_TEST = "news.en.heldout-00000-"
_NAMES = {
    TRAINING: re.compile(r"news\.en-\d{5}-of-\d{5}"),
    HELD_OUT: re.compile(r"news\.en\.heldout-\d{5}-of-\d{5}"),
}


def find_release(path: Path) -> Path | None:
    """Return the folder, ``path`` or directly below it, that has the release's two; else None.

    The two are ``TRAINING`` and ``HELD_OUT``.
    """
    for folder in (path, path / RELEASE):
        if (folder / TRAINING).is_dir() and (folder / HELD_OUT).is_dir():
            return folder
    return None


def read_release(folder: Path, cache: Path) -> dict[SplitName, tuple[FileDocument, ...]]:
    """Return the published split.

    That is the training files, held-out file 0 for test, the other held-out files for validation.
    Raises DataError where files of any of the three are missing.
    """
    held_out = _files(folder, HELD_OUT)
    test = [path for path in held_out if path.name.startswith(_TEST)]
    paths_by_split: dict[SplitName, list[Path]] = {
        "train": _files(folder, TRAINING),
        "valid": [path for path in held_out if path not in test],
        "test": test,
    }
    documents: dict[SplitName, tuple[FileDocument, ...]] = {}
    for split, paths in paths_by_split.items():
        if not paths:
            raise DataError(
                f"{folder} lacks the {split} files of lm1b: "
                f"extract {RELEASE}.tar.gz again, all of it"
            )
        documents[split] = tuple(FileDocument(path, cache) for path in paths)
    return documents


def _files(folder: Path, name: str) -> list[Path]:
    paths = sorted((folder / name).iterdir())
    return [path for path in paths if _NAMES[name].fullmatch(path.name)]


def extract_release(archive: Path, cache: Path) -> Path:
    """Extract the release's own files from its archive into the cache folder, once.

    Returned is the folder; what was extracted before, from an archive of the same path, size and
    time of modification, is not extracted again. Nothing is written outside of it.

    Raises DataError if the archive is damaged or is not the release, or the folder cannot be
    written.
    """
    status = archive.stat()
    key = content_key(str(resolved(archive)), status.st_size, status.st_mtime_ns)
    folder = cache / "corpora" / f"lm1b-{key[:16]}"
    if folder.is_dir():
        return folder
    try:
        with new_folder(folder) as unfinished:
            _extract(archive, unfinished)
            if find_release(unfinished) is None:
                raise DataError(
                    f"{archive} is an archive and not the lm1b release: "
                    "unpack it and name its text files"
                )
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} is a damaged archive ({error}): fetch it again") from error
    except OSError as error:
        if not folder.is_dir():
            raise DataError(
                f"cannot extract {archive} to {folder}: {error.strerror or error}"
            ) from error
    return folder


def _extract(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as opened:
        for member in opened:
            member_path = PurePosixPath(member.name)
            folder = member_path.parent.name
            name = member_path.name
            if folder not in _NAMES or not _NAMES[folder].fullmatch(name):
                continue
            source = opened.extractfile(member) if member.isfile() else None
            if source is None:
                continue
            # The path is built from the two matched names, never from the archive's path.
            path = target / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
