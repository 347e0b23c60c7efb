"""A choice by its words: the one whose words stand closest together in the passage.

Source: Richardson, Burges and Renshaw 2013, MCTest's sliding window. Nothing is trained.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sublayer.tasks.baselines.tokens import split_words
from sublayer.tasks.example import Example
from sublayer.tasks.formats.parts import PLACEHOLDER, answered, fill_query, texts_of
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.task import Task


@dataclass(frozen=True)
class Passage:
    """The words of a passage, and how much each counts."""

    words: tuple[str, ...]
    weights: NDArray[np.float64]
    """Of each word: log(1 + 1 / how often it stands in the passage)."""


def read_passage(text: str) -> Passage:
    """Weigh the words of a passage."""
    words = tuple(split_words(text))
    _, places, counts = np.unique(np.array(words), return_inverse=True, return_counts=True)
    return Passage(words, np.log1p(1 / counts[places]))


def score_window(passage: Passage, wanted: frozenset[str]) -> float:
    """Return the most that wanted words weigh within as many words as there are wanted ones."""
    size = min(len(wanted), len(passage.words))
    if not size:
        return 0.0
    is_wanted = np.array([word in wanted for word in passage.words])
    sums = np.concatenate([[0.0], np.cumsum(passage.weights * is_wanted)])
    return float((sums[size:] - sums[:-size]).max())


def predict_choices(task: Task, scored: Sequence[Example]) -> list[Prediction]:
    """Choose the first of the choices whose words, with the question's, score highest.

    The passage is the task's first text, all others are the question; the choice fills its blanks.
    """
    passages: dict[str, Passage] = {}
    predictions = []
    for example in scored:
        text, *others = texts_of(task, example)
        if text not in passages:
            passages[text] = read_passage(text)
        question = " ".join(others)
        scores = [
            score_window(passages[text], frozenset(split_words(_filled(question, choice))))
            for choice in example.choices
        ]
        predictions.append(Prediction(int(np.argmax(scores))))
    return predictions


def _filled(question: str, choice: str) -> str:
    if PLACEHOLDER in question:
        return fill_query(question, choice)
    return answered(question, choice)
