"""Answers to questions that may have none: the threshold of no answer, and scores by kind."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from sublayer.tasks.metrics import Compare, Predictions, f1_v2, is_equal, scores_v2
from sublayer.tasks.task import Example, Prediction


class BestThreshold(NamedTuple):
    """The threshold of the highest score, in hindsight."""

    score: float
    threshold: float


def best_threshold(
    examples: Sequence[Example], predictions: Predictions, compare: Compare = f1_v2
) -> BestThreshold:
    """Find the threshold of the best F1, or of the best exact match, as SQuAD 2.0's script does.

    Predictions have the best answer that is not empty as their text, whatever ``no_answer`` says.
    From all empty, answers are given one by one, by ascending ``no_answer``; the threshold is that
    of the last one given, and 0 where none is. Equal scores are walked in the order of examples,
    so that a threshold may stand for fewer answers than lie at it.
    """
    score = best_score = float(sum(not example.answers for example in examples))
    threshold = 0.0
    gains = scores_v2(compare, examples, predictions).tolist()
    known = [
        (prediction, example, gain)
        for prediction, example, gain in zip(predictions, examples, gains, strict=True)
        if prediction is not None
    ]
    for prediction, example, gain in sorted(known, key=lambda triple: triple[0].no_answer):
        if example.answers:
            score += gain
        elif prediction.text:
            score -= 1
        if score > best_score:
            best_score, threshold = score, prediction.no_answer
    return BestThreshold(best_score / len(known) if known else 0.0, threshold)


def with_threshold(predictions: Sequence[Prediction], threshold: float) -> list[Prediction]:
    """Empty the answers whose ``no_answer`` is above a threshold; one at it stays, as in scoring.

    ALBERT's code empties that one too.
    """
    return [
        replace(prediction, text="", start=None) if prediction.no_answer > threshold else prediction
        for prediction in predictions
    ]


@dataclass(frozen=True)
class ByAnswerable:
    """SQuAD 2.0's exact match and F1 of the questions with an answer, and of those without."""

    n: int
    exact: float
    f1: float


def by_answerable(
    examples: Sequence[Example], predictions: Predictions
) -> dict[bool, ByAnswerable]:
    """Score questions that have gold answers (True) and those that have none (False) apart.

    A kind of which there is none, or no prediction, has no row: the script stops there.
    """
    exact = scores_v2(is_equal, examples, predictions)
    f1 = scores_v2(f1_v2, examples, predictions)
    has_answer = np.array([bool(example.answers) for example in examples])
    result = {}
    for kind in (True, False):
        chosen = (has_answer == kind) & ~np.isnan(exact)
        if chosen.any():
            means = float(exact[chosen].mean()), float(f1[chosen].mean())
            result[kind] = ByAnswerable(int(chosen.sum()), *means)
    return result
