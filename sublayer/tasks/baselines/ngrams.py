"""Words, and words that follow each other, as numbers that can be counted at once."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Ids = NDArray[np.int64]
_NONE = -1
"""Of a word that is not known, and where nothing begins."""


def look_up(texts: Sequence[Sequence[str]], vocabulary: Mapping[str, int]) -> tuple[Ids, Ids]:
    """Return the id of every word, text after text, or -1, and the text that it stands in."""
    ids = [vocabulary.get(word, _NONE) for text in texts for word in text]
    lengths = [len(text) for text in texts]
    return np.array(ids, dtype=np.int64), np.repeat(np.arange(len(texts)), lengths)


def find_codes(before: Ids, ids: Ids, rows: Ids, *, n_before: int, n_words: int) -> Ids:
    """Return the code of what begins at each place and is a word longer than ``before``; or -1.

    A code is the id of the first ``n_before`` words times the number of all words, plus the id of
    the word that follows them in the same text.
    """
    codes = np.full(len(ids), _NONE)
    n_places = max(0, len(ids) - n_before)
    first, last = before[:n_places], ids[n_before:]
    is_there = (first != _NONE) & (last != _NONE) & (rows[:n_places] == rows[n_before:])
    codes[:n_places][is_there] = first[is_there] * n_words + last[is_there]
    return codes


def places_of(known: Ids, codes: Ids) -> Ids:
    """Return the place of each code among known ones, which are sorted; or -1."""
    if not len(known):
        return np.full(len(codes), _NONE)
    places = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    return np.where(known[places] == codes, places, _NONE)


def count_features(
    features: Sequence[Ids], sizes: Sequence[int], rows: Ids, n_texts: int
) -> sparse.csr_matrix:
    """Count in each text the features of several kinds, whose columns stand side by side.

    ``features`` has for each kind an id for each place, or -1; ``sizes`` how many there are.
    """
    firsts = np.cumsum([0, *sizes[:-1]])
    parts = [
        np.where(ids == _NONE, _NONE, ids + first)
        for ids, first in zip(features, firsts, strict=True)
    ]
    columns = np.concatenate(parts)
    is_there = columns != _NONE
    all_rows = np.tile(rows, len(features))[is_there]
    ones = np.ones(len(all_rows))
    shape = (n_texts, sum(sizes))
    return sparse.coo_matrix((ones, (all_rows, columns[is_there])), shape).tocsr()
