"""Ranges of documents: bytes read in chunks, and whole documents that a mark chooses."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sublayer.data.text.documents import LazySequence, Records, sizes_of
from sublayer.data.text.files import Document, FileDocument, Text
from sublayer.errors import DataError
from sublayer.files.file_text import count_line_ends

_CHUNK_BYTES = 4 << 20
_LONGEST_BYTES = 256 << 20

Cut = Callable[[bytes, int], int]
"""``cut(text, near)`` returns the last position up to ``near`` to split a text; 0 without one."""


@dataclass(frozen=True, slots=True)
class DocumentRange:
    """A range of a document, in bytes; up to its end where ``stop`` is None."""

    document: Document
    start: int = 0
    stop: int | None = None

    @property
    def end(self) -> int:
        """Position behind the range."""
        return self.document.n_bytes if self.stop is None else self.stop

    def chunks(self, cut: Cut) -> Iterator[tuple[int, bytes]]:
        """Cut into chunks of a few megabytes, each with its position in the document.

        ``cut(text, near)`` gives the last position up to ``near`` where a cut changes nothing, 0 if
        there is none; a chunk grows until there is one.

        Raises DataError, with name and line, where there is none within 256 MiB.
        """
        text = self.document.read()
        stop = len(text) if self.stop is None else self.stop
        yield from chunks_of(self.document.name, text, self.start, stop, cut)

    def not_utf8(self, position: int) -> DataError:
        """Build the error that names the byte and line at which a document is not UTF-8."""
        return not_utf8(
            self.document.name,
            self.document.read(),
            position,
            "which this tokenizer needs; mend the file or use data.tokenizer = bytes",
        )


def chunks_of(
    name: str, text: Text, start: int, stop: int, cut: Cut
) -> Iterator[tuple[int, bytes]]:
    """Cut a range of a text into chunks, as ``DocumentRange.chunks`` does."""
    for end in chunk_stops(name, text, start, stop, cut):
        yield start, text[start:end]
        start = end


def chunk_stops(name: str, text: Text, start: int, stop: int, cut: Cut) -> Iterator[int]:
    """Yield where the chunks of a range end; a range that ends at one of them has the same.

    What ``cut`` sees begins where the chunk does, and has a byte after ``near``. Raises DataError,
    with the document's ``name``, as ``DocumentRange.chunks`` does.
    """
    while start < stop:
        size = _CHUNK_BYTES
        while start + size < stop:
            # One byte more shows what follows the cut.
            window = text[start : start + size + 1]
            position = cut(window, size)
            if position:
                size = position
                break
            if size >= _LONGEST_BYTES:
                line = count_line_ends(text, start) + 1
                raise DataError(
                    f"{name}, line {line}: {size >> 20} MiB without a place where the text may be "
                    "cut: divide it into lines and paragraphs, or use data.tokenizer = bytes "
                    "without data.sentences"
                )
            size *= 2
        start = min(start + size, stop)
        yield start


def not_utf8(name: str, text: Text, position: int, remedy: str) -> DataError:
    """Build the error that names the byte and line of a text that is not UTF-8.

    ``position`` is the byte's in the text; ``remedy`` ends the message.
    """
    line = count_line_ends(text, position) + 1
    byte = text[position]
    return DataError(f"{name}, line {line}: byte 0x{byte:02x} is not UTF-8, {remedy}")


_BLOCK = 1 << 16
"""Documents whose numbers are in memory at a time."""

Marks = NDArray[np.int8]
"""A number for each document, which takes a byte, ``[N]``."""


class WholeDocuments(LazySequence[DocumentRange]):
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
        """Number chosen up to the end of each block."""

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def item(self, number: int) -> DocumentRange:
        """Return a document as a range."""
        block = int(np.searchsorted(self._ends, number, side="right"))
        before = int(self._ends[block - 1]) if block else 0
        return DocumentRange(self._documents[int(self._numbers(block * _BLOCK)[number - before])])

    def __iter__(self) -> Iterator[DocumentRange]:
        for start in range(0, len(self._documents), _BLOCK):
            for number in self._numbers(start).tolist():
                yield DocumentRange(self._documents[number])

    @property
    def are_records(self) -> bool:
        """True for documents of one file that this program wrote."""
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
