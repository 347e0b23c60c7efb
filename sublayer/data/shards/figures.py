"""What a file of ids says of itself, and how such a file ends."""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, BinaryIO

from sublayer.files.json_footer import aligned, write_description

VERSION = 1
"""Changes whenever equal content would be stored as other bytes."""
_BLOCK_BYTES = 1 << 20


@dataclass
class Figures:
    """What the ids of a text are, and what they were made of."""

    dtype: str
    has_sentences: bool
    n_tokens: int = 0
    n_documents: int = 0
    n_sentences: int = 0
    n_bytes: int = 0
    n_characters: int = 0
    n_dropped_sentences: int = 0
    n_dropped_documents: int = 0
    is_lossless: bool = True
    crc32: int = 0
    source_starts: dict[str, int] = field(default_factory=dict)
    """The position of the first token of each source, by its number."""
    marks: dict[str, int] = field(default_factory=dict)
    """Counts of the names of special tokens in the text, read as such or not."""

    def count_marks(self, marks: Mapping[str, int]) -> None:
        """Add numbers of marks, by name."""
        for name, number in marks.items():
            self.marks[name] = self.marks.get(name, 0) + number

    def description(self, sha256: str, starts_crc32: int) -> dict[str, Any]:
        """Return what stands at the end of the file."""
        meta: dict[str, Any] = {
            "version": VERSION,
            "dtype": self.dtype,
            "n_tokens": self.n_tokens,
            "n_documents": self.n_documents,
            "n_sources": len(self.source_starts),
            "n_bytes": self.n_bytes,
            "sha256": sha256,
            "is_lossless": self.is_lossless,
            "crc32": self.crc32,
            "starts_crc32": starts_crc32,
        }
        if not self.is_lossless:
            meta["n_characters"] = self.n_characters
        if self.marks:
            meta["marks"] = self.marks
        if self.has_sentences:
            meta["n_sentences"] = self.n_sentences
            meta["n_dropped_sentences"] = self.n_dropped_sentences
            meta["n_dropped_documents"] = self.n_dropped_documents
        return meta


def finish(
    file: BinaryIO, figures: Figures, columns: Iterable[Iterable[bytes]], sha256: str, **more: Any
) -> None:
    """End a file of ids: starts of documents, of sources and of sentences, and the description.

    ``more`` is added to the description.
    """
    file.write(b"\0" * (aligned(file.tell()) - file.tell()))
    crc = 0
    for block in chain.from_iterable(columns):
        file.write(block)
        crc = zlib.crc32(block, crc)
    write_description(file, {**figures.description(sha256, crc), **more})


def blocks_of(file: BinaryIO, n_bytes: int) -> Iterator[bytes]:
    """Read the next ``n_bytes`` of a file, a block at a time."""
    while n_bytes and (block := file.read(min(n_bytes, _BLOCK_BYTES))):
        yield block
        n_bytes -= len(block)
