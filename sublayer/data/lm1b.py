"""The 1 Billion Word Benchmark as released: tokenised sentences in 99 training and 50 held-out files.

Source: Chelba et al. 2013; the archive 1-billion-word-language-modeling-benchmark-r13output.tar.gz.
"""

import re
import shutil
import tarfile
import uuid
import zlib
from pathlib import Path, PurePosixPath

from sublayer.config.texts import resolved
from sublayer.data.cache import content_key
from sublayer.data.divide import SplitName
from sublayer.data.text import FileDocument
from sublayer.errors import DataError

RELEASE = "1-billion-word-language-modeling-benchmark-r13output"
TRAINING = "training-monolingual.tokenized.shuffled"
HELD_OUT = "heldout-monolingual.tokenized.shuffled"

_NAMES = {
    TRAINING: re.compile(r"news\.en-\d{5}-of-\d{5}"),
    HELD_OUT: re.compile(r"news\.en\.heldout-\d{5}-of-\d{5}"),
}


def find_release(path: Path) -> Path | None:
    """Give the folder, at ``path`` or directly below it, that has the release's two folders; None if there is none."""
    for folder in (path, path / RELEASE):
        if (folder / TRAINING).is_dir() and (folder / HELD_OUT).is_dir():
            return folder
    return None


def read_release(folder: Path, cache: Path) -> dict[SplitName, tuple[FileDocument, ...]]:
    """Give the published split: training files, held-out file 0 for test, the other held-out files for validation.

    Raises DataError where files of any of the three are missing.
    """
    training, held_out = (
        [path for path in sorted((folder / name).iterdir()) if _NAMES[name].fullmatch(path.name)]
        for name in (TRAINING, HELD_OUT)
    )
    test = [path for path in held_out if path.name.startswith("news.en.heldout-00000-")]
    found: dict[SplitName, list[Path]] = {
        "train": training,
        "valid": [path for path in held_out if path not in test],
        "test": test,
    }
    for split, paths in found.items():
        if not paths:
            raise DataError(f"{folder} lacks the {split} files of lm1b: extract {RELEASE}.tar.gz again, all of it")
    return {split: tuple(FileDocument(path, cache) for path in paths) for split, paths in found.items()}


def extract_release(archive: Path, cache: Path) -> Path:
    """Extract the release's own files from its archive into the cache folder, once; nothing lands outside of it.

    Raises DataError if the archive is damaged or is not the release.
    """
    status = archive.stat()
    key = content_key(str(resolved(archive)), status.st_size, status.st_mtime_ns)
    folder = cache / "corpora" / f"lm1b-{key[:16]}"
    if folder.is_dir():
        return folder
    unfinished = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.tmp")
    try:
        _extract(archive, unfinished)
        if find_release(unfinished) is None:
            raise DataError(f"{archive} is an archive and not the lm1b release: unpack it and name its text files")
        unfinished.rename(folder)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} is a damaged archive ({error}): fetch it again") from error
    except OSError as error:
        if not folder.is_dir():
            raise DataError(f"cannot extract {archive} to {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _extract(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as opened:
        for member in opened:
            parts = PurePosixPath(member.name).parts
            if len(parts) < 2 or parts[-2] not in _NAMES or not _NAMES[parts[-2]].fullmatch(parts[-1]):
                continue
            source = opened.extractfile(member) if member.isfile() else None
            if source is not None:
                # The names are built from the two matched parts, never from the archive's path.
                place = target / parts[-2] / parts[-1]
                place.parent.mkdir(parents=True, exist_ok=True)
                with place.open("wb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
