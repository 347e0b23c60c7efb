"""Keys of content in the cache folder, where prepared data lives, and folders of corpora."""

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sublayer.files.cache_folder import replacing
from sublayer.files.paths import expanded, resolved
from sublayer.files.storage import sha256_of

_LARGE_BYTES = 64 << 20


def content_key(*parts: Any) -> str:
    """Return the key of content: the SHA-256, in hexadecimal, of the JSON that identifies it.

    Equal values have equal keys on any machine: fields are sorted, and numbers written as JSON.
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def remembered(
    kind: str,
    path: Path,
    cache: Path,
    compute: Callable[[Path], Any],
    least: int | None = None,
) -> Any:
    """Compute a JSON value of a file's content, cached by version for large files.

    Large is a file of ``least`` bytes, by default 64 MiB. A version is a path, a size and a time of
    modification. Raises OSError where the file cannot be read, DataError where the cache cannot be
    written.
    """
    status = path.stat()
    if status.st_size < (_LARGE_BYTES if least is None else least):
        return compute(path)
    key = content_key(str(resolved(path)), status.st_size, status.st_mtime_ns)
    known = cache / kind / key
    with suppress(OSError, ValueError):
        return json.loads(known.read_bytes())
    value = compute(path)
    with replacing(known) as file:
        file.write(json.dumps(value).encode())
    return value


def file_digest(path: Path, cache: Path) -> str:
    """Compute the SHA-256 of a file's bytes, in hexadecimal, as ``remembered`` does."""
    return str(remembered("sha256", path, cache, sha256_of))


def corpus_folders(cache: Path) -> list[Path]:
    """Return the folders of published corpora: SUBLAYER_DATA, if set, and the cache."""
    folders = [cache / "corpora"]
    if named := os.environ.get("SUBLAYER_DATA"):
        folders.insert(0, expanded(named))
    return folders
