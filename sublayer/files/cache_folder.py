"""Cache folder: files named by keys of their content, and downloads, verified."""

import errno
import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from platformdirs import user_cache_path

from sublayer.errors import DataError
from sublayer.files.storage import expanded, held, new_file, remove_abandoned, resolved, sha256_of
from sublayer.system.terminal import display, note, stage

Read = TypeVar("Read")
_LARGE_BYTES = 64 << 20
_TIMEOUT_S = 30.0
_BLOCK_BYTES = 1 << 20
_NO_ACCESS = {errno.EACCES, errno.EEXIST, errno.ENOTDIR, errno.EPERM, errno.EROFS}
_NO_ROOM = {errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC}


def cache_folder(cache: Path | None = None) -> Path:
    """Return the cache folder: ``cache``, else SUBLAYER_CACHE, else the platform's for sublayer.

    The platform's folder is below XDG_CACHE_HOME or ~/.cache on Linux, ~/Library/Caches on macOS,
    the local application data on Windows; until it exists, ~/.cache/sublayer, the earlier location,
    is used if that exists. An empty SUBLAYER_CACHE counts as unset. The folder may not exist yet.
    Raises ConfigError for the home folder of an unknown user.
    """
    if cache is not None:
        return cache
    if named := os.environ.get("SUBLAYER_CACHE"):
        return expanded(named)
    folder, earlier = expanded(user_cache_path("sublayer", False)), expanded("~/.cache/sublayer")
    return earlier if earlier.is_dir() and not folder.is_dir() else folder


@contextmanager
def replacing(path: Path, *, is_durable: bool = True) -> Iterator[BinaryIO]:
    """Write a file atomically, even if several processes write it.

    The folder is created, and temporary files of dead processes in it are removed. A file that is
    checked whenever it is read need not be durable, see ``new_file``.

    Raises DataError, leaving nothing behind, where the folder cannot be written or is full.
    """
    with writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path.parent)
        with new_file(path, is_durable=is_durable) as file:
            yield file


@contextmanager
def held_in_cache(folder: Path, does: str) -> Iterator[None]:
    """Lock a folder of the cache, waiting for another process that holds it.

    ``does`` says, in the progress line, what that process does. The caller must check again whether
    the file exists. Raises DataError where the cache cannot be written.
    """
    with ExitStack() as stack:
        with writing_to(folder):
            stack.enter_context(held(folder, waits_for=f"another process, which {does}"))
        yield


def read_or_make(
    path: Path, does: str, read: Callable[[], Read | None], make: Callable[[], object]
) -> Read:
    """Read a file of the cache; ``make`` writes it where ``read`` returns None.

    Of several processes one writes it, and the others wait. Raises DataError where the cache cannot
    be written.
    """
    content = read()
    if content is None:
        with held_in_cache(lock_of(path), does):
            content = read()
            if content is None:
                make()
    content = read() if content is None else content
    assert content is not None, f"a file just written must be complete: {path}"
    return content


def lock_of(path: Path) -> Path:
    """Return the folder that is locked while a file of the cache is written."""
    return path.with_name(f"{path.name}.lock")


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Raise DataError where ``path`` in the cache cannot be written or the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ACCESS | _NO_ROOM:
            raise
        raise DataError(
            f"cannot write {path}: {error.strerror or error}: "
            "set SUBLAYER_CACHE to a folder with room"
        ) from error


def content_key(*parts: Any) -> str:
    """Return the key of content: the SHA-256, in hexadecimal, of the JSON values that identify it.

    Equal values have equal keys on any machine, since fields are sorted, and numbers are written as
    JSON.
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
    """Compute a JSON value from a file's content, cached by the file's version if it is large.

    A large file has at least ``least`` bytes, by default 64 MiB. A version is the path, the size
    and the time of modification. Raises OSError where the file cannot be read, DataError where the
    cache cannot be written.
    """
    status = path.stat()
    if status.st_size < (_LARGE_BYTES if least is None else least):
        return compute(path)
    key = content_key(str(resolved(path)), status.st_size, status.st_mtime_ns)
    cached = cache / kind / key
    with suppress(OSError, ValueError):
        return json.loads(cached.read_bytes())
    value = compute(path)
    with replacing(cached) as file:
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


@dataclass(frozen=True)
class Download:
    """File to download, as its publisher serves it."""

    url: str
    n_bytes: int | None
    """Size for the display of progress, if known; only the checksum is verified."""
    algorithm: str
    """Name of the hash function in hashlib."""
    checksum: str
    """Checksum in hexadecimal."""
    may_differ: bool = False
    """Whether a file with another checksum is accepted, with a note, since its publisher may have
    replaced it by a newer one."""

    def fetch(self, target: Path) -> Path:
        """Download a file to ``target``, written atomically once verified; return it.

        Raises DataError without a network, for a file with another checksum, unless it may
        differ, and where ``target`` cannot be written.
        """
        import http.client
        import urllib.error
        import urllib.request

        name = self.url.rpartition("/")[2]
        try:
            with (
                stage(f"downloading {name}"),
                urllib.request.urlopen(self.url, timeout=_TIMEOUT_S) as response,
                replacing(target) as file,
            ):
                hash_ = hashlib.new(self.algorithm)
                n_announced = int(response.headers.get("Content-Length") or 0)
                n_bytes = self.n_bytes or n_announced or None
                digest = _copy(response, file, hash_, f"downloading {name}", n_bytes)
                if file.tell() < n_announced:
                    raise DataError(
                        f"the download of {self.url} ended after {file.tell():,} of "
                        f"{n_announced:,} bytes: try again"
                    )
                if digest != self.checksum and not self.may_differ:
                    raise DataError(f"the download of {self.url} is damaged ({digest}): try again")
        except (
            urllib.error.URLError,
            http.client.HTTPException,
            ConnectionError,
            TimeoutError,
        ) as error:
            reason = getattr(error, "reason", error)
            raise DataError(f"{name} cannot be downloaded from {self.url} ({reason})") from error
        if digest != self.checksum:
            note(
                f"{self.url} has another {self.algorithm} than expected: {digest}; the file may be "
                "newer, or come from a mirror"
            )
        return target


def unzip(archive: Path, member: str, target: Path, *, md5: str) -> Path:
    """Extract one member of a zip file to ``target`` and verify it; return ``target``.

    Other members are ignored. Raises DataError where the member is missing or is not the published
    file, or where ``target`` cannot be written.
    """
    try:
        with (
            stage(f"extracting {member}"),
            zipfile.ZipFile(archive) as opened,
            opened.open(member) as source,
            replacing(target) as file,
        ):
            hash_ = hashlib.md5(usedforsecurity=False)
            digest = _copy(source, file, hash_, f"extracting {member}", None)
            if digest != md5:
                raise DataError(
                    f"{member} in {archive} is not the published file (md5 {digest}): "
                    "fetch it again"
                )
    except (zipfile.BadZipFile, EOFError, KeyError, zlib.error) as error:
        raise DataError(f"{archive} is not a zip file with {member}: fetch it again") from error
    return target


def _copy(
    source: Any, target: BinaryIO, digest: "hashlib._Hash", what: str, n_bytes: int | None
) -> str:
    done = 0
    while block := source.read(_BLOCK_BYTES):
        target.write(block)
        digest.update(block)
        done += len(block)
        total = f" of {n_bytes / 1e6:.0f}" if n_bytes else ""
        display().change_innermost(f"{what}: {done / 1e6:.0f}{total} MB")
    return digest.hexdigest()
