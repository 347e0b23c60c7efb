"""The bytes of a file as a text, read on access and not kept in memory."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import overload

from sublayer.errors import DataError
from sublayer.files.storage import open_regular

_BLOCK_BYTES = 1 << 20


class FileText:
    """The bytes of a file from ``start`` to before ``stop``, or to its end.

    Slices are read on access, so that a text of any size takes no memory.

    Raises OSError where the file cannot be opened; a slice DataError where the file was truncated.
    """

    def __init__(self, path: Path, start: int = 0, stop: int | None = None) -> None:
        self._path = path
        self._start = start
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        self._descriptor = open_regular(path, flags)
        end = os.fstat(self._descriptor).st_size if stop is None else stop
        self._n_bytes = end - start

    def __del__(self) -> None:
        """Close the file."""
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def __len__(self) -> int:
        return self._n_bytes

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> bytes: ...

    def __getitem__(self, index: int | slice) -> int | bytes:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._n_bytes)
            assert step == 1, "a text is read in its order"
            return self._read(start, stop)
        if not -self._n_bytes <= index < self._n_bytes:
            raise IndexError(index)
        start = index % self._n_bytes
        return self._read(start, start + 1)[0]

    def find(self, mark: bytes) -> int:
        """Return the first index of ``mark``, as ``bytes.find`` does; -1 without one."""
        n_more = len(mark) - 1
        for start in range(0, self._n_bytes, _BLOCK_BYTES):
            position = self[start : start + _BLOCK_BYTES + n_more].find(mark)
            if position >= 0:
                return start + position
        return -1

    def rfind(self, mark: bytes, start: int, stop: int) -> int:
        """Return the last index of ``mark`` from ``start`` to ``stop``; -1 without one."""
        n_more = len(mark) - 1
        while start < stop:
            first = max(start, stop - _BLOCK_BYTES)
            position = self[first:stop].rfind(mark)
            if position >= 0:
                return first + position
            if first == start:
                break
            stop = first + n_more
        return -1

    def _read(self, start: int, stop: int) -> bytes:
        parts = []
        position = start
        os.lseek(self._descriptor, self._start + start, os.SEEK_SET)
        while position < stop:
            part = os.read(self._descriptor, stop - position)
            if not part:
                raise DataError(
                    f"{self._path} became shorter while it was read: leave it as it is, and run "
                    "the command again"
                )
            parts.append(part)
            position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def blocks_of(text: bytes | FileText, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Yield a text from ``start`` to ``stop`` in blocks of at most 1 MiB."""
    end = len(text) if stop is None else stop
    for low in range(start, end, _BLOCK_BYTES):
        yield text[low : min(low + _BLOCK_BYTES, end)]


def count_line_ends(text: bytes | FileText, stop: int) -> int:
    """Count the newlines of a text before position ``stop``."""
    return sum(block.count(b"\n") for block in blocks_of(text, 0, stop))
