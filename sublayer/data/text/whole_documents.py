"""Whole documents as ranges, all of them or those that a mark chooses; what ranges hold."""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.document_store import Records, sizes_of
from sublayer.data.text.files import Document, FileDocument

_BLOCK = 1 << 16
"""Documents whose numbers are in memory at a time."""

Marks = NDArray[np.int8]
"""A number for each document, which takes a byte, ``[N]``."""


class WholeDocuments(Sequence[DocumentRange]):
    """Whole documents as ranges, made when accessed; only those that are marked ``chosen``."""

    def __init__(
        self, documents: Sequence[Document], marks: Marks | None = None, chosen: int = 0
    ) -> None:
        self._documents = documents
        self._marks = marks
        self._chosen = chosen
        blocks = range(0, len(documents), _BLOCK)
        counts = [len(self._numbers(start)) for start in blocks]
        self._ends = np.cumsum(counts, dtype=np.int64)
        """How many are chosen up to the end of each block."""

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @overload
    def __getitem__(self, index: int) -> DocumentRange: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[DocumentRange]: ...

    def __getitem__(self, index: int | slice) -> DocumentRange | Sequence[DocumentRange]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        block = int(np.searchsorted(self._ends, index, side="right"))
        before = int(self._ends[block - 1]) if block else 0
        number = self._numbers(block * _BLOCK)[index - before]
        return DocumentRange(self._documents[int(number)])

    def __iter__(self) -> Iterator[DocumentRange]:
        for start in range(0, len(self._documents), _BLOCK):
            for number in self._numbers(start).tolist():
                yield DocumentRange(self._documents[number])

    @property
    def are_records(self) -> bool:
        """Whether they are of one file, which this program wrote."""
        return isinstance(self._documents, Records)

    @property
    def n_bytes(self) -> int:
        """Count the bytes of the chosen documents."""
        total = 0
        for start in range(0, len(self._documents), _BLOCK):
            sizes = sizes_of(self._documents, start, start + _BLOCK)
            total += int(sizes[self._numbers(start) - start].sum())
        return total

    def _numbers(self, start: int) -> NDArray[np.int64]:
        """Return the numbers of the documents that are chosen in the block from ``start`` on."""
        stop = min(start + _BLOCK, len(self._documents))
        if self._marks is None:
            return np.arange(start, stop)
        return start + np.flatnonzero(self._marks[start:stop] == self._chosen)


def count_bytes(ranges: Sequence[DocumentRange]) -> int:
    """Count the bytes of ranges."""
    if isinstance(ranges, WholeDocuments):
        return ranges.n_bytes
    return sum(part.end - part.start for part in ranges)


def check_unchanged(ranges: Sequence[DocumentRange]) -> None:
    """Raise DataError where a file is another one than its digest was computed of."""
    if isinstance(ranges, WholeDocuments) and ranges.are_records:
        return
    for part in ranges:
        if isinstance(part.document, FileDocument):
            part.document.check_unchanged()
