"""The division of a text into training, validation and test: pieces of documents, no byte in two of them."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal

from sublayer.data.characters import character_start
from sublayer.data.piece import Piece
from sublayer.data.text import Document
from sublayer.errors import DataError

SplitName = Literal["train", "valid", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "valid", "test")


Parts = Mapping[SplitName, tuple[Piece, ...]]
Shares = Mapping[SplitName, Fraction]
"""Shares of each split, which sum to 1; a split without one is taken from elsewhere."""


def divide(documents: Sequence[Document], shares: Shares, *, name: str, is_utf8: bool) -> Parts:
    """Divide one document into contiguous bytes, several into whole documents.

    ``is_utf8`` moves a cut that falls inside a UTF-8 sequence back to its first byte.

    Raises DataError where a split would be empty.
    """
    if len(documents) == 1:
        return _contiguous(documents[0], shares, is_utf8=is_utf8)
    return _whole(documents, shares, name=name)


def _contiguous(document: Document, shares: Shares, *, is_utf8: bool) -> Parts:
    text = document.read()
    parts: dict[SplitName, tuple[Piece, ...]] = dict.fromkeys(SPLITS, ())
    start, total = 0, Fraction(0)
    for name in (name for name in SPLITS if name in shares):
        total += shares[name]
        stop = len(text) * total.numerator // total.denominator
        if is_utf8:
            stop = character_start(text, stop)
        if stop <= start:
            raise DataError(
                f"{document.name} has {len(text):,} bytes, too few for a {name} split: give a longer text, "
                "or other files in data.valid_path and data.test_path"
            )
        parts[name] = (Piece(document, start, stop),)
        start = stop
    return parts


def _whole(documents: Sequence[Document], shares: Shares, *, name: str) -> Parts:
    """Fill test, then valid, up to their shares, in order of content hash; train takes the rest.

    Where no document is small enough for a share, it gets the smallest. Equal documents stay together.
    """
    digests = [document.digest() for document in documents]
    sizes: dict[str, int] = {}
    for document, digest in zip(documents, digests, strict=True):
        sizes[digest] = sizes.get(digest, 0) + len(document.read())
    if len(sizes) < len(shares):
        raise DataError(
            f"{name} has {len(sizes)} different document(s), too few for {len(shares)} splits by document: add some, "
            "name the files one by one in a list (each is then cut), or give data.valid_path and data.test_path"
        )
    total = sum(sizes.values())
    chosen: dict[str, SplitName] = {}
    unfilled: list[SplitName] = [split for split in ("test", "valid") if split in shares]
    while unfilled:
        split = unfilled.pop(0)
        free = [digest for digest in sorted(sizes) if digest not in chosen]
        n_most = len(free) - len(unfilled) - 1
        chosen.update(dict.fromkeys(_fill(free, sizes, shares[split] * total)[:n_most], split))
    return {
        split: tuple(
            Piece(document)
            for document, digest in zip(documents, digests, strict=True)
            if chosen.get(digest, "train") == split
        )
        for split in SPLITS
    }


def _fill(free: list[str], sizes: Mapping[str, int], room: Fraction) -> list[str]:
    taken = []
    for digest in free:
        if sizes[digest] <= room:
            taken.append(digest)
            room -= sizes[digest]
    return taken or [min(free, key=lambda digest: (sizes[digest], digest))]
