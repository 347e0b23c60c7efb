"""The division of a text into training, validation and test by disjoint document ranges."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal, overload

import numpy as np

from sublayer.counts import count
from sublayer.data.arrays import AnyInts, Ints
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.document_store import digests_of
from sublayer.data.text.files import Document
from sublayer.data.text.gutenberg import body_range
from sublayer.data.text.sentences import TextUnit, sentence_cut
from sublayer.data.tokenizers.characters import character_start
from sublayer.errors import DataError

SplitName = Literal["train", "valid", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "valid", "test")
"""In the order in which they follow in a text."""

Parts = Mapping[SplitName, Sequence[DocumentRange]]
"""The ranges of each split; none where it is taken from elsewhere, or nothing is held out."""
Shares = Mapping[SplitName, Fraction]
"""Shares of each split, which sum to 1; a split without one is taken from elsewhere, or
empty."""


class WholeDocuments(Sequence[DocumentRange]):
    """Whole documents as ranges, made when accessed; only those numbered ``chosen`` if given."""

    def __init__(self, documents: Sequence[Document], chosen: AnyInts | None = None) -> None:
        self._documents = documents
        self._chosen = np.arange(len(documents)) if chosen is None else chosen

    def __len__(self) -> int:
        return len(self._chosen)

    @overload
    def __getitem__(self, index: int) -> DocumentRange: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[DocumentRange]: ...

    def __getitem__(self, index: int | slice) -> DocumentRange | Sequence[DocumentRange]:
        if isinstance(index, slice):
            return WholeDocuments(self._documents, self._chosen[index])
        number = int(self._chosen[index])
        return DocumentRange(self._documents[number])


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
    # Distinct documents [D], in order of content hash, and which of them each document is [N].
    distinct, which = np.unique(digests_of(documents), return_inverse=True)
    n_distinct = len(distinct)
    if n_distinct < len(shares):
        raise DataError(
            f"{name} has {count(n_distinct, 'different document')}, "
            f"too few for {len(shares)} splits by document: add "
            "some, name the files one by one in a list (each is then cut), "
            "or give data.valid_path and data.test_path"
        )
    lengths = (len(document.read()) for document in documents)
    document_sizes = np.fromiter(lengths, dtype=np.int64, count=len(which))  # [N]
    sizes = np.zeros(n_distinct, dtype=np.int64)  # [D], equal documents together
    np.add.at(sizes, which, document_sizes)
    total = int(sizes.sum())
    chosen = np.zeros(n_distinct, dtype=np.int8)  # [D]: the index of its split, 0 for train
    unfilled: list[SplitName] = [split for split in ("test", "valid") if split in shares]
    while unfilled:
        split = unfilled.pop(0)
        free = np.flatnonzero(chosen == 0)
        # One is left for each split that is still empty, training included.
        n_most = len(free) - len(unfilled) - 1
        taken = _fill(free, sizes[free], shares[split] * total)
        chosen[taken[:n_most]] = SPLITS.index(split)
    splits = chosen[which]  # [N]
    parts: dict[SplitName, WholeDocuments] = {}
    for index, split in enumerate(SPLITS):
        parts[split] = WholeDocuments(documents, np.flatnonzero(splits == index))
    return parts


def _fill(free: Ints, sizes: Ints, room: Fraction) -> list[int]:
    """Return those of ``free`` that fit into a room, in order; the smallest where none does."""
    taken = []
    least = sizes.min()
    for index, size in zip(free.tolist(), sizes.tolist(), strict=True):
        if room < least:
            break
        if size <= room:
            taken.append(index)
            room -= size
    if not taken:
        smallest = int(free[np.argmin(sizes)])
        taken.append(smallest)
    return taken
