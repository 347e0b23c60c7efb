"""Files and folders: users' paths, atomic writing, locks between processes."""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from sublayer.errors import ConfigError, FolderHeld, SublayerError
from sublayer.system.terminal import stage

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

_NO_FILE = "it is a pipe or a device: write its content to a file"
_FOLDER = "it is a folder: name a file"
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.partial")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+:)//?(.+)")
_ABANDONED_S = 24 * 3600.0
LOCK = ".sublayer-lock"
_WAITING_S = 0.1
_MOST_FAILED = 100
"""Tries to create a folder and its lock, before the error is raised."""
_CONTENT = b"sublayer is writing in this folder\n"


def expanded(path: str | os.PathLike[str]) -> Path:
    """Expand a leading ``~`` to the home folder; raise ConfigError for an unknown user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(
            f"{os.fspath(path)!r} names a user without a home folder: give another path"
        ) from None


def resolved(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path with links resolved, or the path itself for a loop of links."""
    return Path(os.path.realpath(path))


def describe_runs_within(folder: str | os.PathLike[str]) -> str:
    """Suggest a run in a comparison's folder, to end an error message; empty for other folders."""
    runs = sorted(recipe.parent for recipe in Path(folder).glob("arms/**/recipe.toml"))
    if not runs:
        return ""
    return f"; it is a comparison: name one of its runs, such as {as_typed(str(runs[0]))}"


def as_typed(name: str) -> str:
    """Return a path below the current folder as a relative path, and any other path unchanged.

    In a name ``A and B`` both paths are converted.
    """
    shown = []
    for part in name.split(" and "):
        path = Path(part)
        is_below = path.is_absolute() and path.is_relative_to(Path.cwd())
        shown.append(str(path.relative_to(Path.cwd())) if is_below else part)
    return " and ".join(shown)


def check_name(path: Path, error: type[SublayerError]) -> None:
    """Raise ``error`` for a path that is not UTF-8, which libraries and records cannot name."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        shown = str(path.absolute()).encode("utf-8", "backslashreplace").decode()
        raise error(f"{shown} is not UTF-8: give another name") from None


def check_paths(source: Path, folder: Path) -> None:
    """Raise ConfigError if ``folder`` exists, even as a dangling link.

    Also where either path is not valid Unicode, since safetensors cannot open it.
    """
    check_name(source, ConfigError)
    check_name(folder, ConfigError)
    if folder.exists() or folder.is_symlink():
        raise ConfigError(f"{folder} exists, and nothing is overwritten: name another folder")


class RegularFile(FileIO):
    """Regular file, whose bytes are read without blocking.

    Raises OSError, also for pipes and devices, which may never end, and for reads that would block,
    such as those of ``/proc/kmsg``.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, opener=open_regular)

    def read(self, size: int | None = -1) -> bytes:
        """Read at most ``size`` bytes, or all."""
        data: bytes = self._there(super().read(size))
        return data

    def readall(self) -> bytes:
        """Read all bytes."""
        data: bytes = self._there(super().readall())
        return data

    def readinto(self, buffer: "Buffer") -> int:
        """Read into a buffer; return the number of bytes."""
        n_bytes: int = self._there(super().readinto(buffer))
        return n_bytes

    def _there(self, read: Any) -> Any:
        if read is None:
            raise OSError(errno.EAGAIN, _NO_FILE, str(self.name))
        return read


def describe_absence(path: str | Path) -> str:
    """Describe a path that is missing, or a pipe or device."""
    return f"{path} {'is a pipe or a device' if Path(path).exists() else 'is not there'}"


def describe_url(path: str | Path) -> str:
    """Word the refusal of a URL in place of a path; empty if it is none.

    A ``Path`` has lost one of its slashes.
    """
    found = _URL.fullmatch(str(path))
    if found is None:
        return ""
    url = "//".join(found.groups())
    return (
        f"{url} is a URL, but only local files and folders are read: download it, as in "
        f"`curl -LO {url}`, and name the file"
    )


def open_file(path: Path) -> BufferedReader:
    """Open a regular file for reading bytes; raise OSError as ``RegularFile`` does."""
    return BufferedReader(RegularFile(path))


def sha256_of(path: Path) -> str:
    """Compute the SHA-256 of a file, in hexadecimal; raise OSError as ``open_file`` does."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(path: Path) -> None:
    """Raise OSError where a library could not open ``path`` or would block (``open_file``)."""
    open_file(path).close()


def open_regular(path: str | Path, flags: int) -> int:
    """Open a regular file; return its descriptor, or raise OSError as ``RegularFile`` does."""
    # Opened without blocking, since opening a pipe without a writer would never return.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, _FOLDER, str(path))
        raise OSError(errno.EINVAL, _NO_FILE, str(path))
    return descriptor


def temporary_path(path: Path) -> Path:
    """Return a new, unique hidden path in the folder of ``path``."""
    # The name is truncated, so that it is not too long for the file system.
    return path.with_name(f".{path.name[:64]}.{uuid.uuid4().hex}.partial")


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Return a temporary path for ``path``, which errors of the system name in its place."""
    partial = temporary_path(path)
    try:
        yield partial
    except OSError as error:
        if error.filename is not None and os.fspath(error.filename) == str(partial):
            error.filename = str(path)
        raise


@contextmanager
def new_file(path: Path, *, is_durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces ``path`` once it is on disk, or leaves no trace.

    The temporary file is created exclusively, and thus follows no link; a link at ``path`` is
    replaced itself. Unless ``is_durable``, a crash of the machine may leave a damaged file. Raises
    OSError.
    """
    with _replacing(path) as partial:
        try:
            with partial.open("xb") as file:
                yield file
                file.flush()
                if is_durable:
                    os.fsync(file.fileno())
            os.replace(partial, path)
            if is_durable:
                sync(path.parent)
        finally:
            with suppress(OSError):
                partial.unlink()


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file atomically, text as UTF-8; an existing file is replaced.

    Raises OSError, also where the folder is missing.
    """
    data = content.encode() if isinstance(content, str) else content
    with new_file(path) as file:
        file.write(data)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object atomically.

    Raises ValueError for a number that is not finite, and OSError.
    """
    text = json.dumps(content, indent=1, allow_nan=False)
    write_file(path, f"{text}\n")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Create a folder that becomes ``path`` once it is on disk, or leaves no trace.

    Missing parents are created, and removed if the caller fails. Raises FileExistsError where
    ``path`` exists, before or after, and OSError.
    """
    if os.path.lexists(path):
        raise FileExistsError(f"{path} exists")
    # Only folders created here are removed after a failure.
    made = [folder for folder in path.parents if not folder.exists()]
    try:
        with _replacing(path) as partial:
            partial.mkdir(parents=True)
        yield partial
        for inner in [*partial.rglob("*"), partial]:
            sync(inner)
        if os.path.lexists(path):
            raise FileExistsError(f"{path} exists")
        partial.rename(path)
        sync(path.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        for folder in made:
            with suppress(OSError):  # another process has written to the folder
                folder.rmdir()
        raise


def remove_abandoned(folder: Path) -> None:
    """Remove temporary files and folders that killed processes left more than a day ago."""
    for path in folder.glob(".*.partial"):
        if not _TEMPORARY.fullmatch(path.name):
            continue
        with suppress(OSError):  # already removed by another process, or no permission
            age_s = time.time() - path.lstat().st_mtime
            if age_s <= _ABANDONED_S:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def sync(path: Path) -> None:
    """Flush a file or a folder's entries to disk, if the system can. Raises OSError."""
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open folders
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_free(path: Path | None, option: str, suffixes: tuple[str, ...]) -> None:
    """Raise ConfigError where a file to be written exists already, or has another suffix."""
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        *others, last = suffixes
        kinds = f"{', '.join(others)} or {last}" if others else last
        raise ConfigError(f"{option} {path} must end in {kinds}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{option} {path}: the folder {path.parent} is missing: create it first")
    if os.path.lexists(path):
        raise ConfigError(f"{path} exists already: move it, or name another file")


@contextmanager
def held(folder: Path, *, waits_for: str | None = None) -> Iterator[None]:
    """Lock a folder, created if missing, against other processes that lock it.

    With ``waits_for``, a description of the holder, this process waits for the holder, and a file
    in place of the folder raises OSError.

    The lock, and created folders that are empty, are removed at the end. A user's file with the
    name of the lock is locked but never changed. Raises FolderHeld where another process holds the
    folder, ConfigError where the folder cannot be created; OSError.
    """
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    if waits_for is not None and folder not in missing:
        missing.insert(0, folder)  # created by the awaited process
    try:
        try:
            descriptor = _acquire(folder, waits_for)
        except (FileExistsError, NotADirectoryError):
            if waits_for is not None:
                raise
            raise ConfigError(f"{folder} is not a folder: give another --out") from None
        try:
            yield
        finally:
            # The lock is removed, unless it is a user's file, or another process's new lock.
            path = folder / LOCK
            is_ours = is_at(descriptor, path)
            os.lseek(descriptor, 0, os.SEEK_SET)
            content = os.read(descriptor, len(_CONTENT) + 1)  # one more detects a longer file
            if sys.platform == "win32":
                os.close(descriptor)  # an open file cannot be removed there
            with suppress(OSError):
                if is_ours and content == _CONTENT:
                    path.unlink()
            if sys.platform != "win32":
                os.close(descriptor)
    finally:
        for path in missing:
            with suppress(OSError):  # the folder is not empty
                path.rmdir()


def is_held(folder: Path) -> bool:
    """Return whether another process holds a folder; nothing is written."""
    if sys.platform == "win32":
        return False  # on Windows a lock cannot be tested without taking it
    import fcntl

    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _acquire(folder: Path, waits_for: str | None) -> int:
    path = folder / LOCK
    n_failed = 0
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = _open(path)
        except (FileExistsError, FileNotFoundError):
            # Either folder or file may be removed by its holder between two calls.
            n_failed += 1
            if n_failed == _MOST_FAILED:
                raise
            continue
        try:
            if not try_lock(descriptor):
                if waits_for is None:
                    raise FolderHeld(
                        f"another process is training in {folder}: wait for it, or give another "
                        "--out"
                    )
                with stage(f"waiting for {waits_for}"):
                    while not try_lock(descriptor):
                        time.sleep(_WAITING_S)
            # The holder may have removed the lock meanwhile: then others can lock a new one.
            if is_at(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _open(path: Path) -> int:
    """Open the lock, new or existing, without following links, blocking or changing it."""
    flags = (
        os.O_RDWR
        | getattr(os, "O_NOFOLLOW", 0)
        | getattr(os, "O_NONBLOCK", 0)
        | getattr(os, "O_CLOEXEC", 0)
    )
    while True:
        with suppress(FileExistsError):
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            try:
                os.write(descriptor, _CONTENT)
            except OSError:  # the disk is full: the file could not be recognized as a lock
                os.close(descriptor)
                path.unlink()
                raise
            return descriptor
        if path.is_symlink() or not path.is_file():
            if not os.path.lexists(path):
                continue  # the lock was removed meanwhile
            raise ConfigError(
                f"{path} is not a file, but the name of the lock: move it, or give another --out"
            )
        with suppress(FileNotFoundError):
            return os.open(path, flags)


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; return whether that succeeded."""
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
    else:
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether a path still names an open file."""
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)
