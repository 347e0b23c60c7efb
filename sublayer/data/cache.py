"""The cache folder: where prepared data lives, written so that no reader ever sees half a file."""

import errno
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from sublayer.config.texts import resolved
from sublayer.errors import DataError
from sublayer.storage import new_file, remove_abandoned

_REMEMBERED_BYTES = 64 << 20
_NO_ACCESS = {errno.EACCES, errno.EEXIST, errno.ENOTDIR, errno.EPERM, errno.EROFS}
_NO_ROOM = {errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC}


def content_key(*parts: Any) -> str:
    """Name content by what it is made of: a hash of JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file that appears at ``path`` only when it is whole, even with two processes at it.

    Raises DataError where the folder cannot be written or is full; nothing is left behind then.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path.parent)
        with new_file(path) as file:
            yield file
    except OSError as error:
        if error.errno not in _NO_ACCESS | _NO_ROOM:
            raise
        raise DataError(
            f"cannot write {path}: {error.strerror or error}; set SUBLAYER_CACHE to a folder with room"
        ) from error


def file_digest(path: Path, cache: Path) -> str:
    """SHA-256 of a file's bytes; that of a large one is remembered by its path, size and time of change."""
    status = path.stat()
    if status.st_size < _REMEMBERED_BYTES:
        return _digest(path)
    key = content_key(str(resolved(path)), status.st_size, status.st_mtime_ns)
    remembered = cache / "digests" / key
    if remembered.is_file() and len(known := remembered.read_text(encoding="ascii", errors="replace")) == 64:
        return known
    digest = _digest(path)
    with replacing(remembered) as file:
        file.write(digest.encode())
    return digest


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
