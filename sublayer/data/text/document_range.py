"""A range of a document's bytes, read in chunks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sublayer.data.text.files import Document, Text
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
