"""Division of a text into training, validation and test by disjoint document ranges."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal

import numpy as np

from sublayer.counts import count
from sublayer.data.arrays import Bools, Ints
from sublayer.data.text.documents import Document, content_keys, sizes_of
from sublayer.data.text.files import body_range
from sublayer.data.text.ranges import DocumentRange, WholeDocuments
from sublayer.data.text.sentences import TextUnit, sentence_cut
from sublayer.data.tokenizers.base import character_start
from sublayer.errors import DataError

SplitName = Literal["train", "valid", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "valid", "test")
"""In the order in which they follow in a text."""

_BLOCK_DOCUMENTS = 1 << 16

Parts = Mapping[SplitName, Sequence[DocumentRange]]
"""The ranges of each split; none where it is taken from elsewhere, or nothing is held out."""
Shares = Mapping[SplitName, Fraction]
"""Shares of each split, which sum to 1; a split without one is taken from elsewhere, or
empty."""


def shared_document(
    documents: Sequence[Document], others: Sequence[Document]
) -> tuple[int, int] | None:
    """Return the numbers of a common document, the first by content hash; otherwise None."""
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
            "some, name the files one by one in a list (each is then cut), "
            "or give data.valid_path and data.test_path"
        )
    # Of the distinct documents [D].
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
    """Take the first free documents that fit into a room, ``n_most`` at most; else the smallest."""
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
