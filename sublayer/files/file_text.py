"""The bytes of a file as a text: read where they are accessed, and held nowhere."""

import os
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from sublayer.errors import DataError
from sublayer.files.storage import open_regular

_BLOCK_BYTES = 1 << 20


class FileText:
    """The bytes of a file from ``start`` to before ``stop``, or to its end.

    Slices are read when they are taken, so that a text of any size takes no memory of its own.

    Raises OSError where the file cannot be opened. A slice raises DataError where the file has
    become shorter.
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

    @property
    def place(self) -> tuple[Path, int, int]:
        """The file, and where in it the text begins and ends."""
        return self._path, self._start, self._start + self._n_bytes

    def find(self, mark: bytes) -> int:
        """Return where ``mark`` first stands, as ``bytes.find`` does; -1 without one."""
        n_more = len(mark) - 1
        for start in range(0, self._n_bytes, _BLOCK_BYTES):
            position = self[start : start + _BLOCK_BYTES + n_more].find(mark)
            if position >= 0:
                return start + position
        return -1

    def rfind(self, mark: bytes, start: int, stop: int) -> int:
        """Return where ``mark`` last stands from ``start`` to ``stop``; -1 without one."""
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


def count_line_ends(text: bytes | FileText, stop: int) -> int:
    """Count the newlines of a text before position ``stop``."""
    return sum(
        text[start : min(start + _BLOCK_BYTES, stop)].count(b"\n")
        for start in range(0, stop, _BLOCK_BYTES)
    )


_BLOCK = 4096
"""Values that are read at a time where single ones are asked for."""


class FileArray:
    """``count`` values of ``dtype`` that stand in a file from byte ``start`` on."""

    def __init__(self, path: Path, dtype: str, start: int, count: int) -> None:
        self._dtype = np.dtype(dtype)
        self._text = FileText(path, start, start + count * self._dtype.itemsize)
        self._count = count
        self._first = 0
        self._block: NDArray[Any] = np.empty(0, dtype=self._dtype)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        """Return one value; those beside it are held for the next."""
        if not 0 <= index - self._first < len(self._block):
            self._first = index - index % _BLOCK
            self._block = self.read(self._first, self._first + _BLOCK)
        return self._block[index - self._first]

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return the values from ``start`` to before ``stop``, or to the last."""
        size = self._dtype.itemsize
        data = self._text[start * size : stop * size]
        return np.frombuffer(data, dtype=self._dtype)
