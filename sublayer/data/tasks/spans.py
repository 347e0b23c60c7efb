"""Answers in a passage, from the scores of its tokens in each window.

Source: ALBERT's ``squad_utils.py``; the score of no answer of independent ends is BERT's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sublayer.data.arrays import Floats, Ints
from sublayer.data.tasks.offsets import PlacedTokens
from sublayer.data.tasks.windows import Window, best_windows
from sublayer.tasks.task import Prediction

N_BEST = 20
"""Starts and ends of which candidates are made where they are independent, and answers kept."""
N_BEST_JOINT = 5
"""Starts, and ends of each, where the end depends on the start."""
MOST_TOKENS = 30


class Candidates(NamedTuple):
    """Possible answers in one window's row, ``[C]``."""

    starts: Ints
    """Columns of the row."""
    ends: Ints
    """Of the last token."""
    scores: Floats


@dataclass(frozen=True, slots=True)
class Span:
    """An answer."""

    text: str
    start: int
    """Where it begins in the passage, in characters."""
    score: float
    probability: float
    """Among those that are listed."""


def independent_candidates(starts: Floats, ends: Floats, n_best: int = N_BEST) -> Candidates:
    """Pair the best starts and the best ends of a row's logits, ``[T]`` both; scores are sums.

    ``T`` is without padding, which the source lets take the place of candidates.
    """
    best_starts, best_ends = _highest(starts, n_best), _highest(ends, n_best)
    scores = starts[best_starts][:, None] + ends[best_ends]
    return Candidates(
        np.repeat(best_starts, len(best_ends)), np.tile(best_ends, len(best_starts)), scores.ravel()
    )


def joint_candidates(
    starts: Floats, columns: Ints, ends: Floats, n_ends: int = N_BEST_JOINT
) -> Candidates:
    """Pair starts, by their ``columns`` ``[K]``, with the best ends given each.

    Of a row's logits: ``starts`` ``[T]``, and ``ends`` ``[K, T]``. Scores are log-probabilities.
    """
    start_scores = _log_softmax(starts)[columns]
    end_scores = _log_softmax(ends)
    best = np.stack([_highest(row, n_ends) for row in end_scores])  # [K, n_ends]
    scores = start_scores[:, None] + np.take_along_axis(end_scores, best, axis=1)
    return Candidates(np.repeat(columns, best.shape[1]), best.ravel(), scores.ravel())


def best_starts(starts: Floats, n_starts: int = N_BEST_JOINT) -> Ints:
    """Return the columns of the highest logits ``[T]``, for ``joint_candidates``."""
    return _highest(starts, n_starts)


def rank_spans(
    windows: Sequence[Window],
    candidates: Sequence[Candidates],
    *,
    offset: int,
    placed: PlacedTokens,
    passage: str,
    most_tokens: int = MOST_TOKENS,
    n_best: int = N_BEST,
) -> list[Span]:
    """Return the best answers of all windows, best first; none where no candidate is one.

    ``offset`` is the column at which the passage begins, the same in each window. An answer lies in
    the passage, ends where it starts or later, has at most ``most_tokens``, starts in the window
    where that token is scored, and is not of whitespace alone. Of equals, that of an earlier window
    and the better start comes first.
    """
    scored_in = best_windows(windows)
    found: list[tuple[float, int, int]] = []
    for number, (window, each) in enumerate(zip(windows, candidates, strict=True)):
        starts, ends = (columns - offset + window.start for columns in (each.starts, each.ends))
        is_answer = (starts >= window.start) & (ends < window.stop) & (ends >= starts)
        is_answer &= ends - starts < most_tokens
        is_answer[is_answer] = scored_in[starts[is_answer]] == number
        kept = each.scores[is_answer].tolist(), starts[is_answer].tolist(), ends[is_answer].tolist()
        found += zip(*kept, strict=True)
    found.sort(key=lambda each: -each[0])
    texts = []
    for score, first, last in found:
        place = placed.slice(first, last, passage)
        if place.start < place.stop:
            texts.append((passage[place], place.start, score))
        if len(texts) == n_best:
            break
    probabilities = probabilities_of(np.array([score for _, _, score in texts]))
    return [Span(*each, p) for each, p in zip(texts, probabilities, strict=True)]


def probabilities_of(scores: Floats) -> list[float]:
    """Return how likely each of the answers that are listed is among them, by their scores."""
    shares: list[float] = np.exp(_log_softmax(scores)).tolist()
    return shares


def null_score(starts: Sequence[Floats], ends: Sequence[Floats]) -> float:
    """Return the lowest score of [CLS] as an answer over all windows' logits, ``[T]`` each."""
    return min(float(start[0] + end[0]) for start, end in zip(starts, ends, strict=True))


def independent_prediction(spans: Sequence[Span], null: float | None = None) -> Prediction:
    """Answer with the best span; ``null`` is the score of [CLS] where there may be no answer.

    The score of no answer is by how much that is higher than the best span's.
    """
    if null is None:
        return _prediction(spans, 0.0)
    return _prediction(spans, null - (spans[0].score if spans else 0.0))


def joint_prediction(spans: Sequence[Span], no_answer: Sequence[float]) -> Prediction:
    """Answer with the best span; the score of no answer is the lowest logit of all windows."""
    return _prediction(spans, min(no_answer))


def _prediction(spans: Sequence[Span], no_answer: float) -> Prediction:
    if not spans:
        return Prediction(text="", no_answer=no_answer)
    best = spans[0]
    return Prediction(
        text=best.text, start=best.start, probabilities=(best.probability,), no_answer=no_answer
    )


def _highest(scores: Floats, n_best: int) -> Ints:
    order: Ints = np.argsort(-scores, kind="stable")[:n_best]
    return order


def _log_softmax(logits: Floats) -> Floats:
    if not logits.size:
        return logits
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result
