"""A range of a document's bytes, read in chunks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sublayer.data.text import Document, Text
from sublayer.errors import DataError

_CHUNK_BYTES = 4 << 20

Cut = Callable[[bytes, int], int]
"""Where a text may be cut in two: ``cut(text, near)`` gives the last place up to ``near``, 0 if there is none."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a document's bytes; up to its end where ``stop`` is None."""

    document: Document
    start: int = 0
    stop: int | None = None

    def chunks(self, cut: Cut) -> Iterator[tuple[int, bytes]]:
        """Cut into chunks of a few megabytes, each with its position in the document.

        ``cut(text, near)`` gives the last position up to ``near`` where a cut changes nothing, 0 if there is none;
        a chunk grows until there is one.
        """
        text = self.document.read()
        yield from chunks_of(text, self.start, len(text) if self.stop is None else self.stop, cut)

    def not_utf8(self, position: int) -> DataError:
        """Say which byte of which line keeps a tokenizer from reading the document."""
        return not_utf8(
            self.document.name,
            self.document.read(),
            position,
            "which this tokenizer needs; mend the file or use data.tokenizer = bytes",
        )


def chunks_of(text: Text, start: int, stop: int, cut: Cut) -> Iterator[tuple[int, bytes]]:
    """Cut a range of a text into chunks, as ``Piece.chunks`` does."""
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


def raw_chunks(piece: Piece) -> Iterator[bytes]:
    """Give the bytes of a piece, a few megabytes at a time."""
    return (chunk for _, chunk in piece.chunks(lambda text, near: near))


def not_utf8(name: str, text: Text, position: int, remedy: str) -> DataError:
    """Say which byte of which line of a text is not UTF-8, and what needs it to be."""
    line = text[:position].count(b"\n") + 1
    return DataError(f"{name}, line {line}: byte 0x{text[position]:02x} is not UTF-8, {remedy}")
