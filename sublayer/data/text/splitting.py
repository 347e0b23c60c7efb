"""The division of a text into training, validation and test by disjoint document ranges."""

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sublayer.counts import count
from sublayer.data.arrays import Bools, Ints
from sublayer.data.text.documents import digests_of, sizes_of
from sublayer.data.text.files import Document, body_range
from sublayer.data.text.ranges import DocumentRange, WholeDocuments
from sublayer.data.text.sentences import TextUnit, sentence_cut
from sublayer.data.tokenizers.characters import character_start
from sublayer.errors import DataError

_MOST = 1 << 21
"""Documents of which digests and sizes are in memory at once, as hashes are spread."""
_BLOCK = 1 << 16
"""Documents whose digests are read at a time."""


class Part(NamedTuple):
    """The documents whose hashes lie in one range, the ranges ascending."""

    numbers: Ints
    """The numbers of these documents, ascending, ``[N]``."""
    digests: NDArray[np.bytes_]
    """Their hashes, ``[N]``."""
    sizes: Ints
    """Their bytes, ``[N]``; none where they were not asked for."""


def count_parts(n_documents: int, most: int = _MOST) -> int:
    """Count the parts that so many documents are taken in, of about ``most`` each."""
    return max(1, -(-n_documents // most))


def in_content_order(
    documents: Sequence[Document], n_parts: int, *, has_sizes: bool
) -> Iterator[Part]:
    """Divide documents by their hashes into ``n_parts`` ascending ranges.

    For each part the digests of all are read anew.
    """
    for part in range(n_parts):
        numbers: list[Ints] = []
        digests: list[NDArray[np.bytes_]] = []
        sizes: list[Ints] = []
        for start, stop in _blocks(len(documents)):
            block = digests_of(documents, start, stop)
            is_in = _parts_of(block, n_parts) == part
            if not is_in.any():
                continue
            numbers.append(start + np.flatnonzero(is_in))
            digests.append(block[is_in])
            if has_sizes:
                sizes.append(sizes_of(documents, start, stop)[is_in])
        if numbers:
            no_sizes = np.zeros(0, dtype=np.int64)
            yield Part(
                np.concatenate(numbers),
                np.concatenate(digests),
                np.concatenate(sizes) if has_sizes else no_sizes,
            )


def shared_document(
    documents: Sequence[Document], others: Sequence[Document], most: int = _MOST
) -> tuple[int, int] | None:
    """Return the numbers of a document that is in both, the first by content hash; else None."""
    n_parts = count_parts(max(len(documents), len(others)), most)
    by_part = in_content_order(documents, n_parts, has_sizes=False)
    for part in by_part:
        which = int(_parts_of(part.digests[:1], n_parts)[0])
        for start, stop in _blocks(len(others)):
            block = digests_of(others, start, stop)
            is_in: Bools = _parts_of(block, n_parts) == which
            _, indices, other_indices = np.intersect1d(
                part.digests, block[is_in], return_indices=True
            )
            if len(indices):
                number = int(part.numbers[indices[0]])
                return number, start + int(np.flatnonzero(is_in)[other_indices[0]])
    return None


def _blocks(n_documents: int) -> Iterator[tuple[int, int]]:
    return pairwise([*range(0, n_documents, _BLOCK), n_documents])


def _parts_of(digests: NDArray[np.bytes_], n_parts: int) -> Ints:
    """Return which of equal ranges of hashes each lies in, from 0, by its first four bytes."""
    words = np.frombuffer(digests.tobytes(), dtype=">u4").reshape(len(digests), -1)
    first: Ints = words[:, 0].astype(np.int64)
    return first * n_parts >> 32


SplitName = Literal["train", "valid", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "valid", "test")
"""In the order in which they follow in a text."""

Parts = Mapping[SplitName, Sequence[DocumentRange]]
"""The ranges of each split; none where it is taken from elsewhere, or nothing is held out."""
Shares = Mapping[SplitName, Fraction]
"""Shares of each split, which sum to 1; a split without one is taken from elsewhere, or
empty."""


def divide(
    documents: Sequence[Document],
    shares: Shares,
    *,
    name: str,
    is_utf8: bool,
    sentences: TextUnit = "none",
) -> Parts:
    """Divide one document into contiguous bytes, several into whole documents.

    Of one, training is the beginning, then validation, then test. Of several, test and validation
    are filled up to their shares in the order of content hashes, which is as good as random and
    the same on any machine; equal documents are in one split. ``name`` is for messages.

    ``is_utf8`` moves a cut that falls inside a UTF-8 sequence back to its first byte; where
    ``sentences`` are cut, it moves back to a blank line, or else a line, and what cleaning drops is
    in no split.

    Raises DataError where a split would be empty.
    """
    if len(documents) == 1:
        return _contiguous(documents[0], shares, is_utf8=is_utf8, sentences=sentences)
    return _whole(documents, shares, name=name)


def _contiguous(document: Document, shares: Shares, *, is_utf8: bool, sentences: TextUnit) -> Parts:
    text = document.read()
    first = 0
    last = len(text)
    if sentences != "none":
        first, last = body_range(text)
    n_bytes = last - first
    parts: dict[SplitName, tuple[DocumentRange, ...]] = dict.fromkeys(SPLITS, ())
    start = first
    total = Fraction(0)
    for name in SPLITS:
        if name not in shares:
            continue
        total += shares[name]
        # In integers: a float would cut a large text elsewhere.
        stop = first + n_bytes * total.numerator // total.denominator
        if sentences == "none":
            if is_utf8:
                stop = character_start(text, stop)
        elif stop != last:
            stop = sentence_cut(text, stop, start)
        if stop <= start:
            raise DataError(
                f"{document.name} has {count(n_bytes, 'byte')}, too few for a {name} split: "
                "give a longer text, or other files in data.valid_path and data.test_path"
            )
        parts[name] = (DocumentRange(document, start, stop),)
        start = stop
    return parts


def _whole(documents: Sequence[Document], shares: Shares, *, name: str) -> Parts:
    """Fill test, then valid, up to their shares, in order of content hash; train takes the rest.

    Where no document is small enough for a share, it gets the smallest. Equal documents stay
    together.
    """
    division = _Division(documents)
    if division.n_distinct < len(shares):
        raise DataError(
            f"{name} has {count(division.n_distinct, 'different document')}, "
            f"too few for {len(shares)} splits by document: add "
            "some, name the files one by one in a list (each is then cut), "
            "or give data.valid_path and data.test_path"
        )
    unfilled: list[SplitName] = [split for split in ("test", "valid") if split in shares]
    n_free = division.n_distinct
    while unfilled:
        split = unfilled.pop(0)
        # One is left for each split that is still empty, training included.
        n_most = n_free - len(unfilled) - 1
        room = math.floor(shares[split] * division.n_bytes)
        n_free -= division.fill(SPLITS.index(split), room, n_most)
    parts: dict[SplitName, WholeDocuments] = {}
    for index, split in enumerate(SPLITS):
        parts[split] = WholeDocuments(documents, division.marks, index)
    return parts


class _Division:
    """The split of each document: 0, training, until another takes it."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.marks = np.zeros(len(documents), dtype=np.int8)
        self.n_distinct = 0
        self.n_bytes = 0
        self._documents = documents
        n_parts = count_parts(len(documents))
        self._kept = list(self._read(1)) if n_parts == 1 else None
        self._n_parts = n_parts
        for _, _, sizes in self._parts():
            self.n_distinct += len(sizes)
            self.n_bytes += int(sizes.sum())

    def fill(self, mark: int, room: int, n_most: int) -> int:
        """Mark free documents that fit into ``room`` bytes, in order, else the smallest one.

        Returned is how many different ones were marked, ``n_most`` of them at most.
        """
        least = min(int(sizes.min()) for _, _, sizes in self._free())
        n_taken = 0
        for numbers, which, sizes in self._free():
            taken = []
            for index, size in enumerate(sizes.tolist()):
                if room < least:
                    break
                if size <= room:
                    taken.append(index)
                    room -= size
            taken = taken[: n_most - n_taken]
            self.marks[numbers[np.isin(which, taken)]] = mark
            n_taken += len(taken)
            if room < least or n_taken == n_most:
                break
        return n_taken or self._mark_smallest(mark, least)

    def _mark_smallest(self, mark: int, least: int) -> int:
        for numbers, which, sizes in self._free():
            if least in sizes:
                self.marks[numbers[which == np.argmin(sizes)]] = mark
                return 1
        raise AssertionError("the smallest document is among the free ones")

    def _free(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Yield the free documents as ``_parts`` yields all."""
        for numbers, which, sizes in self._parts():
            is_free = self.marks[numbers] == 0
            kept, which_kept = np.unique(which[is_free], return_inverse=True)
            if len(kept):
                yield numbers[is_free], which_kept, sizes[kept]

    def _parts(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Yield documents in order of content hash, a part of them at a time.

        Of a part: their numbers [N], which of the distinct ones each is [N], and the sizes of
        these, equal documents together [D].
        """
        return self._read(self._n_parts) if self._kept is None else iter(self._kept)

    def _read(self, n_parts: int) -> Iterator[tuple[Ints, Ints, Ints]]:
        for part in in_content_order(self._documents, n_parts, has_sizes=True):
            distinct, which = np.unique(part.digests, return_inverse=True)
            sizes = np.zeros(len(distinct), dtype=np.int64)
            np.add.at(sizes, which, part.sizes)
            yield part.numbers, which, sizes
