"""A linear model of words, for classes and numbers: of one text, or of several compared."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sublayer.tasks.baselines.logistic import fit_logistic
from sublayer.tasks.baselines.overlap import Overlap
from sublayer.tasks.baselines.ridge import fit_ridge
from sublayer.tasks.baselines.tfidf import fit_tfidf
from sublayer.tasks.baselines.tokens import Words
from sublayer.tasks.example import Example
from sublayer.tasks.formats.parts import texts_of
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.task import Task

MOST_TRIPLED = 3_000_000
"""Words of all training texts, times the classes where there are more than two, up to which pairs
and triples of words are features, too."""
BALANCED = ("matthews", "macro_f1")
"""Metrics that count every class alike, however rare: the model then does so, too."""
_SINGLE_C = 10.0
_SEVERAL_C = 0.3
_OVERLAP_SCALE = 0.5
"""What standardised overlap is multiplied by beside TF-IDF: less is penalised more."""
_SINGLE_RIDGE = 1.0
_SEVERAL_RIDGE = 10.0

Features = tuple[sparse.csr_matrix, sparse.csr_matrix]
"""Of the training examples, and of those that are scored."""


def predict_classes(
    task: Task, train: Sequence[Example], scored: Sequence[Example]
) -> list[Prediction]:
    """Predict labels by logistic regression."""
    features, scored_features = _features(task, train, scored)
    model = fit_logistic(
        features,
        np.array([example.label for example in train], dtype=np.int64),
        n_classes=len(task.labels),
        inverse_penalty=_SEVERAL_C if compares(task) else _SINGLE_C,
        is_balanced=not set(BALANCED).isdisjoint(task.metrics),
    )
    probabilities = model.probabilities(scored_features)
    return [Prediction(int(row.argmax()), tuple(row.tolist())) for row in probabilities]


def predict_numbers(
    task: Task, train: Sequence[Example], scored: Sequence[Example]
) -> list[Prediction]:
    """Predict numbers by ridge regression, none beyond those of the training examples."""
    features, scored_features = _features(task, train, scored)
    numbers = np.array([example.label for example in train], dtype=np.float64)
    penalty = _SEVERAL_RIDGE if compares(task) else _SINGLE_RIDGE
    predicted = fit_ridge(features, numbers, penalty=penalty).predict(scored_features)
    return [Prediction(each) for each in predicted.clip(numbers.min(), numbers.max()).tolist()]


def compares(task: Task) -> bool:
    """Return whether a task has several texts, whose words are compared."""
    return len(task.fields) > 1


def _features(task: Task, train: Sequence[Example], scored: Sequence[Example]) -> Features:
    words = Words()
    texts, scored_texts = (_by_place(task, examples, words) for examples in (train, scored))
    if not compares(task):
        n_all = sum(map(len, texts[0])) * (len(task.labels) if len(task.labels) > 2 else 1)
        tfidf, features = fit_tfidf(texts[0], n_words=3 if n_all <= MOST_TRIPLED else 1)
        return features, tfidf.transform(scored_texts[0])
    parts, scored_parts = [], []
    for of_field, scored_of_field in zip(texts, scored_texts, strict=True):
        tfidf, features = fit_tfidf(of_field)
        parts.append(features)
        scored_parts.append(tfidf.transform(scored_of_field))
    overlap = Overlap([text for of_field in texts for text in of_field])
    shared, scored_shared = (_compared(overlap, each) for each in (texts, scored_texts))
    mean, deviation = shared.mean(0), shared.std(0)
    scale = _OVERLAP_SCALE * np.divide(
        1, deviation, out=np.zeros_like(deviation), where=deviation > 0
    )
    parts.append(sparse.csr_matrix((shared - mean) * scale))
    scored_parts.append(sparse.csr_matrix((scored_shared - mean) * scale))
    return sparse.hstack(parts).tocsr(), sparse.hstack(scored_parts).tocsr()


def _by_place(task: Task, examples: Sequence[Example], words: Words) -> list[list[list[str]]]:
    """Return the words of all first texts, of all second ones, and so on."""
    if not set(task.fields) <= set(examples[0].fields):
        # A diagnostic set may call the texts otherwise than the task that it is trained as.
        task = replace(task, fields=tuple(examples[0].fields))
    rows = [[words.of(text) for text in texts_of(task, example)] for example in examples]
    return [list(texts) for texts in zip(*rows, strict=True)]


def _compared(overlap: Overlap, texts: Sequence[Sequence[Sequence[str]]]) -> NDArray[np.float64]:
    """Compare every field with every other."""
    pairs = itertools.combinations(texts, 2)
    return np.concatenate([overlap.features(*pair) for pair in pairs], axis=1)
