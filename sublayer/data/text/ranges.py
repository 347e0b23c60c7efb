"""Ranges of documents, read in chunks, and documents selected by number."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sublayer.data.arrays import AnyInts
from sublayer.data.text.documents import Document, LazySequence, Records, sizes_of
from sublayer.data.text.files import FileDocument, Text
from sublayer.errors import DataError
from sublayer.files.lines import count_line_ends

_CHUNK_BYTES = 4 << 20
_LONGEST_BYTES = 256 << 20

NEEDS_UTF8 = "which this tokenizer needs; mend the file or use data.tokenizer = bytes"
"""The remedy of a text that is not UTF-8, in errors."""

Cut = Callable[[bytes, int], int]
"""``cut(text, near)`` returns the last position up to ``near`` to split a text; 0 without one."""


@dataclass(frozen=True)
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

        Raises DataError as ``chunks_of`` does.
        """
        text = self.document.read()
        stop = len(text) if self.stop is None else self.stop
        yield from chunks_of(self.document.name, text, self.start, stop, cut)

    def not_utf8(self, position: int, remedy: str) -> DataError:
        """Build the error that names the byte and line at which a document is not UTF-8."""
        text = self.document.read()
        line = count_line_ends(text, position) + 1
        return DataError(
            f"{self.document.name}, line {line}: byte 0x{text[position]:02x} is not UTF-8, {remedy}"
        )


def chunks_of(
    name: str, text: Text, start: int, stop: int, cut: Cut
) -> Iterator[tuple[int, bytes]]:
    """Cut a range of a text into chunks, each with its position; raise as ``chunk_stops`` does."""
    for end in chunk_stops(name, text, start, stop, cut):
        yield start, text[start:end]
        start = end


def chunk_stops(name: str, text: Text, start: int, stop: int, cut: Cut) -> Iterator[int]:
    """Yield the ends of a range's chunks; a range that ends at one has the same.

    ``cut(text, near)`` gives the last position up to ``near`` where a cut changes nothing, 0 if
    there is none; a chunk of a few megabytes grows until there is one. What ``cut`` sees begins
    where the chunk does, and has a byte after ``near``.

    Raises DataError, with the document's ``name`` and the line, where there is none in 256 MiB.
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


class WholeDocuments(LazySequence[DocumentRange]):
    """Whole documents as ranges, made when accessed: all, or those of ``numbers`` ``[N]``."""

    def __init__(self, documents: Sequence[Document], numbers: AnyInts | None = None) -> None:
        self._documents = documents
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._documents) if self._numbers is None else len(self._numbers)

    def item(self, number: int) -> DocumentRange:
        """Return a document as a range."""
        index = number if self._numbers is None else int(self._numbers[number])
        return DocumentRange(self._documents[index])

    @property
    def are_records(self) -> bool:
        """True for documents of one file that this program wrote."""
        return isinstance(self._documents, Records)

    @property
    def n_bytes(self) -> int:
        """Count the bytes of the documents."""
        sizes = sizes_of(self._documents)
        return int(sizes.sum() if self._numbers is None else sizes[self._numbers].sum())


def count_bytes(ranges: Sequence[DocumentRange]) -> int:
    """Count the bytes of ranges."""
    if isinstance(ranges, WholeDocuments):
        return ranges.n_bytes
    return sum(part.end - part.start for part in ranges)


def check_unchanged(ranges: Sequence[DocumentRange]) -> None:
    """Raise DataError where a file changed since its digest was computed."""
    if isinstance(ranges, WholeDocuments) and ranges.are_records:
        return
    for part in ranges:
        if isinstance(part.document, FileDocument):
            part.document.check_unchanged()
