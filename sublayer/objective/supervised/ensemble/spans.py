"""Spans that several models list, averaged: equal ones over all members, and then decoded.

Source: ALBERT's ``squad_utils.py``, which averages the scores of equal spans and of no answer over
models, and then decodes.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from sublayer.data.tasks.spans import (
    N_BEST,
    Span,
    independent_prediction,
    joint_prediction,
    probabilities_of,
)
from sublayer.objective.supervised.ensemble.averages import mean
from sublayer.tasks.prediction import Prediction

N_LISTED = 100
"""Spans of a question that a member lists."""
Key = tuple[int, int, int]
"""Where a span begins, its characters, and how many of the same were listed before it."""


class Listed(NamedTuple):
    """What a model says of a question: the spans that it finds best, and the score of no answer."""

    spans: Sequence[Span]
    """Best first."""
    no_answer: float
    """The lowest over windows; of independent ends the score of [CLS], on the spans' scale."""


def decode(given: Sequence[Listed], *, is_joint: bool, has_unanswerable: bool) -> Prediction:
    """Answer a question with the best span on average; of one member it is that member's answer.

    ``is_joint``: of heads whose score of no answer is a logit of its own.
    """
    spans = average_spans([each.spans for each in given])
    null = mean([each.no_answer for each in given])
    if is_joint:
        return joint_prediction(spans, [null])
    return independent_prediction(spans, null if has_unanswerable else None)


def average_spans(listed: Sequence[Sequence[Span]]) -> list[Span]:
    """Average the scores of equal spans, the same characters of a passage; the best first.

    Of a member that does not list a span the lowest score counts that it lists. The source averages
    over those alone that list it, so that a span that one member is sure of outweighs one that all
    others agree on. A constant added to all scores of a member changes no order: sums of logits
    count as log-probabilities do. A member that lists nothing is left out.
    """
    members = [dict(_keyed(spans)) for spans in listed if spans]
    lowest = [min(span.score for span in own.values()) for own in members]
    union = dict.fromkeys(key for own in members for key in own)
    averaged = []
    for key in union:
        found = [own.get(key) for own in members]
        scores = [
            floor if span is None else span.score for span, floor in zip(found, lowest, strict=True)
        ]
        text = next(span.text for span in found if span is not None)
        averaged.append((mean(scores), text, key[0]))
    # Of equals that which the first member finds better comes first.
    averaged.sort(key=lambda each: -each[0])
    best = averaged[:N_BEST]
    probabilities = probabilities_of(np.array([score for score, _, _ in best]))
    return [
        Span(text, start, score, p)
        for (score, text, start), p in zip(best, probabilities, strict=True)
    ]


def _keyed(spans: Iterable[Span]) -> Iterable[tuple[Key, Span]]:
    # Tokens of whitespace at its ends are no part of a span, so that several may be the same text.
    seen: Counter[tuple[int, int]] = Counter()
    for span in spans:
        place = span.start, len(span.text)
        yield (*place, seen[place]), span
        seen[place] += 1
