"""Ranges of documents: chunks, and the division into training, validation and test."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from sublayer.config.data import SentenceRule
from sublayer.data.text.documents import Document, LazySequence, Records, content_keys, sizes_of
from sublayer.data.text.files import FileDocument, Text, body_range
from sublayer.data.tokenizers.base import character_start
from sublayer.errors import DataError
from sublayer.files.arrays import AnyInts, Bools, Ints
from sublayer.files.lines import count_line_ends
from sublayer.numbers import count

_CHUNK_BYTES = 4 << 20
_LONGEST_BYTES = 256 << 20
_BLOCK_DOCUMENTS = 1 << 16

NEEDS_UTF8 = "which this tokenizer needs; mend the file or use data.tokenizer = bytes"
"""Remedy of a text that is not UTF-8, in errors."""

Cut = Callable[[bytes, int], int]
"""``cut(text, near)`` returns the last position up to ``near`` to split a text; 0 if none."""

TextUnit = SentenceRule | Literal["pair"]
"""Unit of encoding: the whole document, sentences by a rule, or the two lines of a pair."""


@dataclass(frozen=True)
class DocumentRange:
    """Range of a document, in bytes; up to its end if ``stop`` is None."""

    document: Document
    start: int = 0
    stop: int | None = None

    @property
    def end(self) -> int:
        """Position after the range."""
        return self.document.n_bytes if self.stop is None else self.stop

    def chunks(self, cut: Cut) -> Iterator[tuple[int, bytes]]:
        """Cut the range into chunks of a few megabytes, each with its position in the document.

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
    """Yield the ends of a range's chunks; a range that stops at one of them has the same chunks.

    ``cut(text, near)`` returns the last position up to ``near`` where a cut changes nothing, 0 if
    there is none; a chunk of a few megabytes grows until there is one. The text passed to ``cut``
    begins with the chunk, and has a byte after ``near``.

    Raises DataError, with the document's ``name`` and the line, if there is no cut in 256 MiB.
    """
    while start < stop:
        size = _CHUNK_BYTES
        while start + size < stop:
            # One more byte shows what follows the cut.
            window = text[start : start + size + 1]
            position = cut(window, size)
            if position:
                size = position
                break
            if size >= _LONGEST_BYTES:
                line = count_line_ends(text, start) + 1
                raise DataError(
                    f"{name}, line {line}: {size >> 20} MiB of text without a place to cut it: "
                    "divide it into lines and paragraphs, or use data.tokenizer = bytes "
                    "without data.sentences"
                )
            size *= 2
        start = min(start + size, stop)
        yield start


class WholeDocuments(LazySequence[DocumentRange]):
    """Whole documents as ranges, created on access: all, or only ``numbers`` ``[N]``."""

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
        """Return whether the documents are in a packed file."""
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


SplitName = Literal["train", "valid", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "valid", "test")
"""Names of the splits, in the order of their parts in a text."""

Parts = Mapping[SplitName, Sequence[DocumentRange]]
"""Ranges of each split; empty if it has other files, or if nothing is held out."""
Shares = Mapping[SplitName, Fraction]
"""Share of each split, 1 in sum; a split without a share has other files, or is empty."""


def sentence_cut(text: Text, near: int, least: int) -> int:
    """Return the last position up to ``near``, and after ``least``, where a document may be cut.

    It is after a blank line, else after a line, else between characters. Positions are in bytes.
    """
    if near >= len(text):
        return len(text)
    for mark in (b"\n\n", b"\n\r\n", b"\n", b"\r"):
        position = text.rfind(mark, least, near)
        if position >= 0:
            return position + len(mark)
    return character_start(text, near)


def shared_document(
    documents: Sequence[Document], others: Sequence[Document]
) -> tuple[int, int] | None:
    """Return both numbers of a common document, the first by content hash; None if none."""
    shared = np.intersect1d(content_keys(documents), content_keys(others), return_indices=True)
    for number, other in zip(shared[1].tolist(), shared[2].tolist(), strict=True):
        if documents[number].digest() == others[other].digest():
            return number, other
    return None


def divide(
    documents: Sequence[Document],
    shares: Shares,
    *,
    name: str,
    is_utf8: bool,
    sentences: TextUnit = "none",
) -> Parts:
    """Divide one document into contiguous ranges of bytes, or several into sets of documents.

    A single document begins with the training split, followed by validation and test. Of several
    documents, test and validation are filled up to their shares in the order of content hashes,
    which is as good as random and the same on any machine; equal documents are in the same split.
    ``name`` is for messages.

    With ``is_utf8`` a cut inside a UTF-8 sequence moves back to its first byte. Where the text is
    divided into ``sentences``, a cut moves back to a blank line, or else a line, and the text that
    cleaning drops is in no split.

    Raises DataError where a split would be empty.
    """
    if len(documents) == 1:
        document = documents[0]
        text = document.read()
        first, last = (0, len(text)) if sentences == "none" else body_range(text)
        n_bytes = last - first
        parts: dict[SplitName, tuple[DocumentRange, ...]] = dict.fromkeys(SPLITS, ())
        start = first
        total = Fraction(0)
        for split in SPLITS:
            if split not in shares:
                continue
            total += shares[split]
            # Integers, since rounding of floats would move the cuts of a large text.
            stop = first + n_bytes * total.numerator // total.denominator
            if sentences == "none":
                if is_utf8:
                    stop = character_start(text, stop)
            elif stop != last:
                stop = sentence_cut(text, stop, start)
            if stop <= start:
                raise DataError(
                    f"{document.name} has {count(n_bytes, 'byte')}, too few for a {split} split: "
                    "give a longer text, or other files in data.valid_path and data.test_path"
                )
            parts[split] = (DocumentRange(document, start, stop),)
            start = stop
        return parts
    return _whole(documents, shares, name=name)


def _whole(documents: Sequence[Document], shares: Shares, *, name: str) -> Parts:
    """Fill test, then valid, up to their shares, in order of content hash; train gets the rest.

    If no document is small enough for a share, the split gets the smallest. Equal documents stay
    together.
    """
    # Numbers of the documents [N] in order of their hashes; equal ones are adjacent.
    keys = content_keys(documents)
    order = np.argsort(keys, kind="stable").astype(np.min_scalar_type(len(keys)))
    keys.sort()
    is_first = np.append(True, keys[1:] != keys[:-1])
    del keys
    n_distinct = int(is_first.sum())
    if n_distinct < len(shares):
        raise DataError(
            f"{name} has {count(n_distinct, 'different document')}, "
            f"too few for {len(shares)} splits by document: add "
            "documents, name the files one by one in a list (each is then cut), "
            "or give data.valid_path and data.test_path"
        )
    # All arrays from here on are per distinct document [D].
    sizes = np.add.reduceat(sizes_of(documents)[order], np.flatnonzero(is_first))
    splits = np.zeros(n_distinct, dtype=np.int8)
    unfilled: list[SplitName] = [split for split in ("test", "valid") if split in shares]
    while unfilled:
        split = unfilled.pop(0)
        is_free = splits == 0
        # One document is reserved for each empty split, training included.
        n_most = int(is_free.sum()) - len(unfilled) - 1
        taken = _fill(sizes, is_free, math.floor(shares[split] * int(sizes.sum())), n_most)
        splits[taken] = SPLITS.index(split)
    del sizes
    marks = np.empty(len(order), dtype=np.int8)
    marks[order] = splits[np.cumsum(is_first) - 1]
    return {
        split: WholeDocuments(documents, np.flatnonzero(marks == index).astype(order.dtype))
        for index, split in enumerate(SPLITS)
    }


def _fill(sizes: Ints, is_free: Bools, room: int, n_most: int) -> list[int]:
    """Return the first free documents that fit a room, at most ``n_most``, or else the smallest."""
    largest = np.iinfo(sizes.dtype).max
    least = sizes.min(where=is_free, initial=largest)
    taken: list[int] = []
    for start in range(0, len(sizes), _BLOCK_DOCUMENTS):
        block = slice(start, start + _BLOCK_DOCUMENTS)
        for index in (start + np.flatnonzero(is_free[block] & (sizes[block] <= room))).tolist():
            if room < least or len(taken) == n_most:
                return taken
            if sizes[index] <= room:
                taken.append(index)
                room -= int(sizes[index])
    return taken or [int(np.where(is_free, sizes, largest).argmin())]
