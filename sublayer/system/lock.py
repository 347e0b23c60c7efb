"""Lock of a folder against other processes: a file in it that never replaces a user's file."""

import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sublayer.errors import ConfigError, FolderHeld
from sublayer.system.stages import stage

LOCK = ".sublayer-lock"
_WAITING_S = 0.1
_CONTENT = b"sublayer is writing in this folder\n"


@contextmanager
def held(folder: Path, *, waits_for: str | None = None) -> Iterator[None]:
    """Lock a folder, created where it is missing, against other processes that lock it.

    With ``waits_for``, the holder in words, this process waits for it, and a file in place of the
    folder raises OSError.

    Removes the lock at the end, and created folders that are empty. A user's file with the lock's
    name is locked but never changed. Raises FolderHeld where another process holds the folder,
    ConfigError where the folder cannot exist; OSError.
    """
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    if waits_for is not None and folder not in missing:
        missing.insert(0, folder)  # the awaited process created it
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        if waits_for is not None:
            raise
        raise ConfigError(f"{folder} is not a folder: give another --out") from None
    try:
        descriptor = _acquire(folder, waits_for)
        try:
            yield
        finally:
            _release(descriptor, folder / LOCK)
    finally:
        for path in missing:
            with suppress(OSError):  # it is not empty
                path.rmdir()


def is_held(folder: Path) -> bool:
    """Return whether another process holds a folder; nothing is written."""
    if sys.platform == "win32":
        return False  # there a lock cannot be tested without taking it
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
    while True:
        descriptor = _open(path)
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
            # The holder may have removed it meanwhile: then others can lock a new one.
            if is_at(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        folder.mkdir(parents=True, exist_ok=True)


def _open(path: Path) -> int:
    """Open the lock, new or existing: follow no link, do not block, change nothing."""
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
            except OSError:  # the disk is full: the file's owner would be unknown
                os.close(descriptor)
                path.unlink()
                raise
            return descriptor
        if path.is_symlink() or not path.is_file():
            if not os.path.lexists(path):
                continue  # it was removed meanwhile
            raise ConfigError(
                f"{path} is in the way, it is not a file: move it, or give another --out"
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
    """Return whether an open file is still the one at a path."""
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def _release(descriptor: int, path: Path) -> None:
    """Remove the lock, unless it is a user's file."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    content = os.read(descriptor, len(_CONTENT) + 1)  # one more, to tell a longer file
    is_ours = content == _CONTENT
    if sys.platform == "win32":
        os.close(descriptor)  # an open file cannot be removed there
    with suppress(OSError):
        if is_ours and stat.S_ISREG(path.lstat().st_mode):
            path.unlink()
    if sys.platform != "win32":
        os.close(descriptor)
