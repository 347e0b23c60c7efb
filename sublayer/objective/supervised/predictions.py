"""Answers of heads to all examples of a split: labels, choices, numbers, spans."""

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from sublayer.data.batches import PackedBatch
from sublayer.data.tasks.batches import TaskPart
from sublayer.data.tasks.encoded import SpanExamples
from sublayer.data.tasks.spans import (
    N_BEST,
    N_BEST_JOINT,
    Candidates,
    Span,
    best_starts,
    independent_candidates,
    joint_candidates,
    rank_spans,
)
from sublayer.model.transformer import Transformer
from sublayer.objective.supervised.batches import AskedSplit
from sublayer.objective.supervised.loss import (
    answer_logits,
    answer_losses,
    find_sequences,
    independent_logits,
    joint_states,
    packed_hidden,
    span_losses,
    text_states,
    unscaled,
)
from sublayer.tasks.registry import wording_of
from sublayer.tasks.task import Prediction

_T = TypeVar("_T")
Answers = tuple[list[Prediction], list[float]]
"""The answers to all examples of a split, in its order, and the loss of each."""


def answer_examples(asked: AskedSplit) -> Answers:
    """Answer every example by the model's head. Losses without a label are meaningless."""
    model, task = asked.model, asked.split.parts[0].task

    def answered(batch: PackedBatch) -> list[tuple[int, Prediction, float]]:
        logits = answer_logits(model, batch, text_states(model, batch), 0.0, task.kind)
        losses = answer_losses(task, logits, batch.labels).tolist()
        if task.kind == "number":
            low, high = task.numbers if task.is_bounded else (-np.inf, np.inf)
            numbers = unscaled(task, logits)[:, 0].double().cpu().numpy().clip(low, high)
            predictions = [Prediction(label=number) for number in numbers.tolist()]
        else:
            # Missing choices have probability 0.
            rows = logits.double().softmax(-1).cpu().numpy()
            predictions = [Prediction(int(row.argmax()), tuple(row.tolist())) for row in rows]
        return list(zip(batch.numbers, predictions, losses, strict=True))

    return _in_order(asked.each_batch(asked.split.encoded, answered))


def _in_order(rows: Iterable[Iterable[tuple[int, _T, float]]]) -> tuple[list[_T], list[float]]:
    numbered = sorted(chain.from_iterable(rows), key=itemgetter(0))
    return [answer for _, answer, _ in numbered], [loss for _, _, loss in numbered]


WindowScores = tuple[Candidates, float]
"""The possible answers in a window, and the score of no answer: of independent ends that of [CLS],
as BERT's, else a logit."""


class Listed(NamedTuple):
    """A question's best spans by one model, and its no-answer score."""

    spans: Sequence[Span]
    """Best first."""
    no_answer: float
    """The lowest over windows; of independent ends the score of [CLS], on the spans' scale."""

    def prediction(self, *, is_joint: bool, has_unanswerable: bool) -> Prediction:
        """Answer with the best span; ``is_joint``: the no-answer score is a separate logit.

        For independent ends it is the margin of [CLS] over the best span.
        """
        no_answer = self.no_answer
        if not is_joint:
            best_score = self.spans[0].score if self.spans else 0.0
            no_answer = no_answer - best_score if has_unanswerable else 0.0
        if not self.spans:
            return Prediction(no_answer=no_answer)
        best = self.spans[0]
        return Prediction(
            probabilities=(best.probability,),
            text=best.text,
            start=best.start,
            no_answer=no_answer,
        )


def answer_questions(asked: AskedSplit) -> Answers:
    """Answer every question with the best span of all its windows.

    Answers are always given, with the no-answer score.
    """
    listed, losses = list_spans(asked)
    is_joint = asked.model.joint_span_head is not None
    unanswerable = asked.split.parts[0].task.has_unanswerable
    answers = [best.prediction(is_joint=is_joint, has_unanswerable=unanswerable) for best in listed]
    return answers, losses


def list_spans(asked: AskedSplit, n_best: int = N_BEST) -> tuple[list[Listed], list[float]]:
    """List the best spans and the loss of every question, in the split's order."""
    model, encoded, (part,) = asked.model, asked.split.encoded, asked.split.parts
    assert isinstance(encoded, SpanExamples), "a passage is read in windows"
    passages, most = _passages(part), asked.spec.max_answer

    def answered(batch: PackedBatch) -> list[tuple[int, Listed, float]]:
        states = packed_hidden(model, batch).final
        losses = span_losses(model, batch, states, 0.0).tolist()
        scores, owners = window_scores(model, batch, states), batch.owners.tolist()
        rows = []
        for index, number in enumerate(batch.numbers):
            group = [window for window, owner in zip(scores, owners, strict=True) if owner == index]
            listed = rank_question(encoded, number, passages[number], group, most, n_best)
            rows.append((number, listed, losses[index]))
        return rows

    return _in_order(asked.each_batch(encoded, answered))


def _passages(part: TaskPart) -> list[str]:
    """Return the passage of each question, as in its text pair."""
    wording = wording_of(part.task)
    return [wording.pair_rows(example)[0].second or "" for example in part.examples]


def rank_question(
    encoded: SpanExamples,
    number: int,
    passage: str,
    scores: Sequence[WindowScores],
    most_tokens: int,
    n_best: int = N_BEST,
) -> Listed:
    """List the best spans of a question, by its number, from its windows' scores."""
    spans = rank_spans(
        encoded.windows(number),
        [candidates for candidates, _ in scores],
        offset=encoded.offset(number),
        placed=encoded.placed(number),
        passage=passage,
        most_tokens=most_tokens,
        n_best=n_best,
    )
    return Listed(spans, min(no_answer for _, no_answer in scores))


def window_scores(
    model: Transformer, batch: PackedBatch, states: torch.Tensor
) -> list[WindowScores]:
    """Score each window of a batch."""
    sequences = find_sequences(batch)
    if model.joint_span_head is None:
        start, end = independent_logits(model, states, sequences)
        starts, ends = start.double().cpu().numpy(), end.double().cpu().numpy()
        scores = []
        for row, length in enumerate(sequences.lengths.tolist()):
            own_starts, own_ends = starts[row, :length], ends[row, :length]
            candidates = independent_candidates(own_starts, own_ends)
            scores.append((candidates, float(own_starts[0] + own_ends[0])))
        return scores
    head = model.joint_span_head
    padded, may_answer = joint_states(batch, states, sequences)
    start = head.starts(padded, may_answer)
    starts = start.double().cpu().numpy()
    # Windows with fewer tokens than tried starts have starts outside the passage, which are
    # invalid.
    columns = np.stack([best_starts(row, N_BEST_JOINT) for row in starts])
    end = head.ends(padded, may_answer, torch.from_numpy(columns).to(start.device))
    ends = end.double().cpu().numpy()
    no_answer = head.no_answer(padded, start).tolist()
    return [
        (joint_candidates(starts[row], columns[row], ends[row]), no_answer[row])
        for row in range(len(starts))
    ]
