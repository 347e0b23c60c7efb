"""The cache folder: where prepared data lives, written so that no reader ever sees half a file."""

import errno
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from sublayer.errors import DataError
from sublayer.files.paths import resolved
from sublayer.files.storage import new_file, remove_abandoned

_LARGE_BYTES = 64 << 20
_DIGEST_CHARACTERS = 64
_NO_ACCESS = {errno.EACCES, errno.EEXIST, errno.ENOTDIR, errno.EPERM, errno.EROFS}
_NO_ROOM = {errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC}


def content_key(*parts: Any) -> str:
    """Return the key of content: the SHA-256, in hexadecimal, of the JSON that identifies it.

    Equal values have equal keys on any machine: fields are sorted, and numbers written as JSON.
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file that appears at ``path`` only when it is whole, even with two processes at it.

    The folder is made where it is missing, and what processes that died left in it is removed.

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
            f"cannot write {path}: {error.strerror or error}; "
            "set SUBLAYER_CACHE to a folder with room"
        ) from error


def file_digest(path: Path, cache: Path) -> str:
    """Compute the SHA-256 of a file's bytes, in hexadecimal.

    That of a file of 64 MiB or more is cached by its path, size and time of modification.

    Raises OSError where the file cannot be read, DataError where the cache cannot be written.
    """
    status = path.stat()
    if status.st_size < _LARGE_BYTES:
        return _digest(path)
    key = content_key(str(resolved(path)), status.st_size, status.st_mtime_ns)
    cached = cache / "digests" / key
    if cached.is_file():
        known = cached.read_text(encoding="ascii", errors="replace")
        if len(known) == _DIGEST_CHARACTERS:
            return known
    digest = _digest(path)
    with replacing(cached) as file:
        file.write(digest.encode())
    return digest


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
