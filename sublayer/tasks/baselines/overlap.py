"""What two texts share, as numbers: the features of pairs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sublayer.tasks.baselines.ngrams import count_features, find_codes, look_up, places_of
from sublayer.tasks.baselines.tfidf import inverse_frequencies

Numbers = NDArray[np.float64]
Texts = Sequence[Sequence[str]]
_NEGATIONS = frozenset(
    {"not", "no", "never", "nothing", "nobody", "none", "neither", "nor", "without", "cannot", "t"}
)
"""``t`` is what is left of don't."""
_MOST_ROWS = 20_000
"""Pairs that are compared at once."""

FEATURES = (
    "shared words, of the second's",
    "shared words, of the first's",
    "shared words, of both's",
    "shared words by rarity, of the second's",
    "cosine of TF-IDF",
    "shared word pairs, of the second's",
    "log of the first's length",
    "log of the second's length",
    "log of the rarity that the second has alone",
    "log of the rarity that the first has alone",
    "negation in the first",
    "negation in the second",
    "negation in one alone",
)
"""The columns, in order."""


class Overlap:
    """Compares texts by their words, which it knows the rarity of from texts that it was given."""

    def __init__(self, texts: Texts) -> None:
        vocabulary: dict[str, int] = {}
        for text in texts:
            for word in text:
                vocabulary.setdefault(word, len(vocabulary))
        ids, rows = look_up(texts, vocabulary)
        idf = inverse_frequencies(count_features([ids], [len(vocabulary)], rows, len(texts)))
        self._rarity = dict(zip(vocabulary, idf.tolist(), strict=True))
        self._unknown = float(np.log(1 + len(texts)) + 1)

    def features(self, firsts: Texts, seconds: Texts) -> Numbers:
        """Return the features of each pair, [N, features]."""
        parts = [np.empty((0, len(FEATURES)))]
        for start in range(0, len(firsts), _MOST_ROWS):
            rows = slice(start, start + _MOST_ROWS)
            parts.append(self._of(firsts[rows], seconds[rows]))
        return np.concatenate(parts)

    def _of(self, firsts: Texts, seconds: Texts) -> Numbers:
        n_pairs = len(firsts)
        words, pairs, vocabulary = _count([*firsts, *seconds])
        idf = np.array([self._rarity.get(word, self._unknown) for word in vocabulary])
        first, second = words[:n_pairs], words[n_pairs:]
        has_first, has_second = first.sign(), second.sign()
        both = has_first.multiply(has_second).tocsr()
        n_first, n_second, n_both = _sums(has_first), _sums(has_second), _sums(both)
        by_rarity = [each @ idf for each in (has_first, has_second, both)]
        lengths = [np.sqrt(each.multiply(each) @ idf**2) for each in (first, second)]
        has_pairs = pairs.sign()
        shared_pairs = _sums(has_pairs[:n_pairs].multiply(has_pairs[n_pairs:]))
        is_negation = np.array([word in _NEGATIONS for word in vocabulary], dtype=np.float64)
        negations = [(each @ is_negation > 0) for each in (has_first, has_second)]
        columns = [
            _share(n_both, n_second),
            _share(n_both, n_first),
            _share(n_both, n_first + n_second - n_both),
            _share(by_rarity[2], by_rarity[1]),
            _share(first.multiply(second) @ idf**2, lengths[0] * lengths[1]),
            _share(shared_pairs, _sums(has_pairs[n_pairs:])),
            np.log1p(_sums(first)),
            np.log1p(_sums(second)),
            np.log1p(by_rarity[1] - by_rarity[2]),
            np.log1p(by_rarity[0] - by_rarity[2]),
            *negations,
            negations[0] != negations[1],
        ]
        return np.stack(columns, axis=1).astype(np.float64)


def _count(texts: Texts) -> tuple[sparse.csr_matrix, sparse.csr_matrix, list[str]]:
    """Count words and word pairs of texts, whichever they are."""
    vocabulary: dict[str, int] = {}
    for text in texts:
        for word in text:
            vocabulary.setdefault(word, len(vocabulary))
    ids, rows = look_up(texts, vocabulary)
    codes = find_codes(ids, ids, rows, n_before=1, n_words=len(vocabulary))
    known = np.unique(codes[codes >= 0])
    pairs = count_features([places_of(known, codes)], [len(known)], rows, len(texts))
    words = count_features([ids], [len(vocabulary)], rows, len(texts))
    return words, pairs, list(vocabulary)


def _sums(counts: sparse.csr_matrix) -> Numbers:
    return np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()


def _share(part: Numbers, whole: Numbers) -> Numbers:
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)
