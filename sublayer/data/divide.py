"""The division of a text into training, validation and test: pieces of documents, no byte in two of them."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal, overload

import numpy as np
from numpy.typing import NDArray

from sublayer.data.characters import character_start
from sublayer.data.gutenberg import body_range
from sublayer.data.pack import digests_of
from sublayer.data.piece import Piece
from sublayer.data.sentences import TextUnit, sentence_cut
from sublayer.data.text import Document
from sublayer.errors import DataError

SplitName = Literal["train", "valid", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "valid", "test")

Parts = Mapping[SplitName, Sequence[Piece]]
Shares = Mapping[SplitName, Fraction]
"""Shares of each split, which sum to 1; a split without one is taken from elsewhere."""


class Wholes(Sequence[Piece]):
    """Whole documents as pieces, made when they are asked for; of some of them, those with the numbers ``chosen``."""

    def __init__(self, documents: Sequence[Document], chosen: NDArray[np.integer] | None = None) -> None:
        self._documents = documents
        self._chosen = np.arange(len(documents)) if chosen is None else chosen

    def __len__(self) -> int:
        return len(self._chosen)

    @overload
    def __getitem__(self, index: int) -> Piece: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Piece]: ...

    def __getitem__(self, index: int | slice) -> Piece | Sequence[Piece]:
        if isinstance(index, slice):
            return Wholes(self._documents, self._chosen[index])
        return Piece(self._documents[int(self._chosen[index])])


def divide(
    documents: Sequence[Document], shares: Shares, *, name: str, is_utf8: bool, sentences: TextUnit = "none"
) -> Parts:
    """Divide one document into contiguous bytes, several into whole documents.

    ``is_utf8`` moves a cut that falls inside a UTF-8 sequence back to its first byte; where ``sentences`` are cut, it
    moves back to a blank line, or else a line, and what cleaning drops is in no split.

    Raises DataError where a split would be empty.
    """
    if len(documents) == 1:
        return _contiguous(documents[0], shares, is_utf8=is_utf8, sentences=sentences)
    return _whole(documents, shares, name=name)


def _contiguous(document: Document, shares: Shares, *, is_utf8: bool, sentences: TextUnit) -> Parts:
    text = document.read()
    first, last = (0, len(text)) if sentences == "none" else body_range(text)
    parts: dict[SplitName, tuple[Piece, ...]] = dict.fromkeys(SPLITS, ())
    start, total = first, Fraction(0)
    for name in (name for name in SPLITS if name in shares):
        total += shares[name]
        stop = first + (last - first) * total.numerator // total.denominator
        if sentences != "none":
            stop = last if stop == last else sentence_cut(text, stop, start)
        elif is_utf8:
            stop = character_start(text, stop)
        if stop <= start:
            raise DataError(
                f"{document.name} has {last - first:,} bytes, too few for a {name} split: give a longer text, "
                "or other files in data.valid_path and data.test_path"
            )
        parts[name] = (Piece(document, start, stop),)
        start = stop
    return parts


def _whole(documents: Sequence[Document], shares: Shares, *, name: str) -> Parts:
    """Fill test, then valid, up to their shares, in order of content hash; train takes the rest.

    Where no document is small enough for a share, it gets the smallest. Equal documents stay together.
    """
    distinct, which = np.unique(digests_of(documents), return_inverse=True)
    if len(distinct) < len(shares):
        raise DataError(
            f"{name} has {len(distinct)} different document(s), too few for {len(shares)} splits by document: add "
            "some, name the files one by one in a list (each is then cut), or give data.valid_path and data.test_path"
        )
    sizes = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(sizes, which, np.fromiter((len(each.read()) for each in documents), dtype=np.int64, count=len(which)))
    total = int(sizes.sum())
    chosen = np.zeros(len(distinct), dtype=np.int8)
    unfilled: list[SplitName] = [split for split in ("test", "valid") if split in shares]
    while unfilled:
        split = unfilled.pop(0)
        free = np.flatnonzero(chosen == 0)
        n_most = len(free) - len(unfilled) - 1
        chosen[_fill(free, sizes, shares[split] * total)[:n_most]] = SPLITS.index(split)
    return {split: Wholes(documents, np.flatnonzero(chosen[which] == SPLITS.index(split))) for split in SPLITS}


def _fill(free: NDArray[np.int64], sizes: NDArray[np.int64], room: Fraction) -> list[int]:
    taken = []
    least = sizes[free].min()
    for each, size in zip(free.tolist(), sizes[free].tolist(), strict=True):
        if room < least:
            break
        if size <= room:
            taken.append(each)
            room -= size
    return taken or [int(free[np.argmin(sizes[free])])]
