"""Keys of content in the cache folder, where prepared data lives, and folders of corpora."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from sublayer.files.cache_folder import replacing
from sublayer.files.paths import expanded, resolved
from sublayer.files.storage import open_file

_LARGE_BYTES = 64 << 20
_DIGEST_CHARACTERS = 64


def content_key(*parts: Any) -> str:
    """Return the key of content: the SHA-256, in hexadecimal, of the JSON that identifies it.

    Equal values have equal keys on any machine: fields are sorted, and numbers written as JSON.
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


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
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def corpus_folders(cache: Path) -> list[Path]:
    """Return where published corpora are looked for: SUBLAYER_DATA, if set, and the cache."""
    folders = [cache / "corpora"]
    if named := os.environ.get("SUBLAYER_DATA"):
        folders.insert(0, expanded(named))
    return folders
