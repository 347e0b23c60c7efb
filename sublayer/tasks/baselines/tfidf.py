"""Texts as weighted counts of words, and of words that follow each other.

Source: scikit-learn's ``TfidfVectorizer``, with its defaults but for what is a word.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sublayer.tasks.baselines.ngrams import Ids, count_features, find_codes, look_up, places_of

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Tfidf:
    """What was learned of texts: their words, word pairs and so on, and how rare each is."""

    vocabulary: dict[str, int]
    codes: tuple[Ids, ...]
    """Of two words, then three, and so on, sorted: the place of each is its id."""
    idf: Weights
    """How rare each feature is, single words first."""

    def transform(self, texts: Sequence[Sequence[str]]) -> sparse.csr_matrix:
        """Return a row of length 1 for each text, or of 0 where nothing in it is known."""
        ids, rows = look_up(texts, self.vocabulary)
        features, before = [ids], ids
        for n_before, known in enumerate(self.codes, start=1):
            found = find_codes(before, ids, rows, n_before=n_before, n_words=len(self.vocabulary))
            before = places_of(known, found)
            features.append(before)
        sizes = [len(self.vocabulary), *map(len, self.codes)]
        return _scaled(count_features(features, sizes, rows, len(texts)), self.idf)


def fit_tfidf(
    texts: Sequence[Sequence[str]], *, n_words: int = 1
) -> tuple[Tfidf, sparse.csr_matrix]:
    """Learn the features of texts, each a sequence of words; return them and the texts' rows.

    ``n_words``: of how many words that follow each other the longest features are.
    """
    vocabulary: dict[str, int] = {}
    for text in texts:
        for word in text:
            vocabulary.setdefault(word, len(vocabulary))
    ids, rows = look_up(texts, vocabulary)
    features, codes, before = [ids], [], ids
    for n_before in range(1, n_words):
        found = find_codes(before, ids, rows, n_before=n_before, n_words=len(vocabulary))
        known = np.unique(found[found >= 0])
        before = places_of(known, found)
        codes.append(known)
        features.append(before)
    sizes = [len(vocabulary), *map(len, codes)]
    counts = count_features(features, sizes, rows, len(texts))
    idf = inverse_frequencies(counts)
    return Tfidf(vocabulary, tuple(codes), idf), _scaled(counts, idf)


def inverse_frequencies(counts: sparse.csr_matrix) -> Weights:
    """Return for each feature the logarithm of how rare it is, smoothed, plus 1."""
    n_texts, n_features = counts.shape
    n_with = np.bincount(counts.indices, minlength=n_features)
    weights: Weights = np.log((1 + n_texts) / (1 + n_with)) + 1
    return weights


def _scaled(counts: sparse.csr_matrix, idf: Weights) -> sparse.csr_matrix:
    weighted = counts @ sparse.diags(idf)
    lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
    inverse = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return sparse.csr_matrix(sparse.diags(inverse) @ weighted)
