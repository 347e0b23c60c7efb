"""A range of a document's bytes, read in chunks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sublayer.data.text import Document
from sublayer.errors import DataError

_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True)
class Piece:
    """A range of a document's bytes; up to its end where ``stop`` is None."""

    document: Document
    start: int = 0
    stop: int | None = None

    def chunks(self, cut: Callable[[bytes, int], int]) -> Iterator[tuple[int, bytes]]:
        """Cut into chunks of a few megabytes, each with its position in the document.

        ``cut(text, near)`` gives the last position up to ``near`` where a cut changes nothing, 0 if there is none;
        a chunk grows until there is one.
        """
        text = self.document.read()
        stop = len(text) if self.stop is None else self.stop
        start = self.start
        while start < stop:
            size = _CHUNK_BYTES
            while start + size < stop:
                # One byte more shows what follows the cut.
                place = cut(text[start : start + size + 1], size)
                if place:
                    size = place
                    break
                size *= 2
            chunk = text[start : min(start + size, stop)]
            yield start, chunk
            start += len(chunk)

    def not_utf8(self, position: int) -> DataError:
        """Say which byte of which line keeps a tokenizer from reading the document."""
        text = self.document.read()
        line = text[:position].count(b"\n") + 1
        return DataError(
            f"{self.document.name}, line {line}: byte 0x{text[position]:02x} is not UTF-8, which this tokenizer needs; "
            "mend the file or use data.tokenizer = bytes"
        )
