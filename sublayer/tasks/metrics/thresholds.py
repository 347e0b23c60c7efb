"""Whether a question has no answer: the score above which it has none, and what that is worth."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sublayer.tasks.example import Example
from sublayer.tasks.metrics.metric import Numbers, Predictions
from sublayer.tasks.metrics.spans import exact_scores_v2, f1_scores_v2
from sublayer.tasks.prediction import Prediction


@dataclass(frozen=True)
class BestThreshold:
    """The threshold by which a score is highest, in hindsight."""

    score: float
    threshold: float


@dataclass(frozen=True)
class BestThresholds:
    """SQuAD 2.0's ``best_exact`` and ``best_f1``, each with a threshold of its own."""

    exact: BestThreshold
    f1: BestThreshold


def best_thresholds(examples: Sequence[Example], predictions: Predictions) -> BestThresholds:
    """Find the thresholds as SQuAD 2.0's script does.

    Predictions have the best answer that is not empty as their text, whatever ``no_answer`` says.
    From all empty, answers are given one by one, by ascending ``no_answer``; the threshold is that
    of the last one given, and 0 where none is. Equal scores are walked in the order of examples,
    so that a threshold may stand for fewer answers than lie at it.
    """
    return BestThresholds(
        exact=_best(examples, predictions, exact_scores_v2(examples, predictions)),
        f1=_best(examples, predictions, f1_scores_v2(examples, predictions)),
    )


def with_threshold(predictions: Sequence[Prediction], threshold: float) -> list[Prediction]:
    """Empty the answers whose ``no_answer`` is above a threshold; one at it stays, as in scoring.

    ALBERT's code empties that one too.
    """
    return [
        replace(each, text="", start=None) if each.no_answer > threshold else each
        for each in predictions
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
    exact = exact_scores_v2(examples, predictions)
    f1 = f1_scores_v2(examples, predictions)
    has_answer = np.array([bool(example.answers) for example in examples])
    result = {}
    for kind in (True, False):
        chosen = (has_answer == kind) & ~np.isnan(exact)
        if chosen.any():
            means = float(exact[chosen].mean()), float(f1[chosen].mean())
            result[kind] = ByAnswerable(int(chosen.sum()), *means)
    return result


def _best(examples: Sequence[Example], predictions: Predictions, scores: Numbers) -> BestThreshold:
    score = best_score = float(sum(not example.answers for example in examples))
    threshold = 0.0
    known = [
        (prediction, example, gain)
        for prediction, example, gain in zip(predictions, examples, scores.tolist(), strict=True)
        if prediction is not None
    ]
    for prediction, example, gain in sorted(known, key=lambda each: each[0].no_answer):
        if example.answers:
            score += gain
        elif prediction.text:
            score -= 1
        if score > best_score:
            best_score, threshold = score, prediction.no_answer
    return BestThreshold(best_score / len(known) if known else 0.0, threshold)
