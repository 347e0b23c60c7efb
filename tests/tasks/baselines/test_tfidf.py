"""TF-IDF, against scikit-learn's."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from sublayer.tasks.baselines.tfidf import fit_tfidf
from sublayer.tasks.baselines.tokens import split_words

TEXTS = [
    "The cat sat on the mat.",
    "the dog, the cat",
    "",
    "a dog is a dog is a dog",
    "Don't sit on it!",
    "mat",
]
OTHERS = ["the cat is a unicorn", "unicorn", "", "sat on the mat . a dog is", "dog the the the"]


def _as_scikit_learn(n_words):
    return TfidfVectorizer(
        tokenizer=split_words, token_pattern=None, lowercase=False, ngram_range=(1, n_words)
    )


@pytest.mark.parametrize("n_words", [1, 2, 3])
def test_it_is_scikit_learns_column_by_column(n_words):
    theirs = _as_scikit_learn(n_words)
    expected = theirs.fit_transform(TEXTS).toarray()
    tfidf, rows = fit_tfidf([split_words(text) for text in TEXTS], n_words=n_words)
    # Their columns are in another order: as a word stands alone, so do its columns.
    order = np.lexsort(np.round(expected, 9))
    ours = rows.toarray()
    our_order = np.lexsort(np.round(ours, 9))
    np.testing.assert_allclose(ours[:, our_order], expected[:, order], atol=1e-12)
    other = tfidf.transform([split_words(text) for text in OTHERS]).toarray()
    np.testing.assert_allclose(other @ ours.T, theirs.transform(OTHERS).toarray() @ expected.T)


def test_words_are_in_lower_case_and_marks_are_words():
    assert split_words("Don't go, Zoë!") == ["don", "'", "t", "go", ",", "zoë", "!"]


def test_no_feature_reaches_into_the_next_text():
    tfidf, rows = fit_tfidf([["a", "b"], ["c"]], n_words=2)
    assert rows.shape == (2, 4)  # a, b, c and "a b"
    assert tfidf.transform([["b", "c"]]).nnz == 2


def test_texts_without_words_have_no_features():
    tfidf, rows = fit_tfidf([[], []], n_words=3)
    assert rows.shape == (2, 0)
    assert tfidf.transform([["a"]]).shape == (1, 0)
