"""Documents in the order of their content hashes, a part of them in memory at a time."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sublayer.data.arrays import Bools, Ints
from sublayer.data.text.document_store import digests_of, sizes_of
from sublayer.data.text.files import Document

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
