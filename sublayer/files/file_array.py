"""A column of fixed-width values in a file, of which a block is in memory at a time."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.files.file_text import FileText

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
