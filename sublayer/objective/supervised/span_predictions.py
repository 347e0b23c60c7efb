"""What a model answers to questions about passages: spans, decoded from all their windows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from sublayer.data.packed_batch import PackedBatch
from sublayer.data.tasks.assembly import RowRule
from sublayer.data.tasks.span_examples import SpanExamples
from sublayer.data.tasks.spans import (
    N_BEST_JOINT,
    Candidates,
    best_starts,
    independent_candidates,
    independent_prediction,
    joint_candidates,
    joint_prediction,
    null_score,
    rank_spans,
)
from sublayer.data.tasks.task_split import TaskPart, TaskSplit
from sublayer.evaluation.split_work import Processes, Row
from sublayer.model.transformer import Transformer
from sublayer.objective.evaluation import Progress
from sublayer.objective.supervised.predictions import each_batch
from sublayer.objective.supervised.readout import packed_hidden
from sublayer.objective.supervised.sequences import find_sequences
from sublayer.objective.supervised.span_loss import independent_logits, joint_states, span_losses
from sublayer.tasks.formats.pair import pair_rows
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.spec import TaskSpec

_N_VALUES = 6


class WindowScores(NamedTuple):
    """What a model says of a window."""

    candidates: Candidates
    no_answer: float
    """The score of no answer: of independent ends that of [CLS], else a logit."""


@torch.inference_mode()
def answer_questions(
    model: Transformer,
    split: TaskSplit,
    rule: RowRule,
    spec: TaskSpec,
    processes: Processes,
    progress: Progress = lambda n_done, n_all: None,
) -> tuple[list[Prediction], list[float]]:
    """Answer every question with the best span of all its windows; return the answers and losses.

    Both are in the split's order. Answers are given whatever the score of no answer is, which is
    beside them. The work is divided among ``processes``, and all return the same; ``progress``
    hears of batches.
    """
    (part,) = split.parts
    encoded = split.encoded
    assert isinstance(encoded, SpanExamples), "a passage is read in windows"
    passages = passages_of(part)

    def answered(batch: PackedBatch) -> list[float]:
        states = packed_hidden(model, batch).final
        losses = span_losses(model, batch, states, 0.0).tolist()
        scores = window_scores(model, batch, states)
        owners = batch.owners.tolist()
        values: list[float] = []
        for place, number in enumerate(batch.numbers):
            own = [each for each, owner in zip(scores, owners, strict=True) if owner == place]
            found = answer_question(
                encoded,
                number,
                passages[number],
                own,
                is_joint=model.joint_span_head is not None,
                has_unanswerable=part.task.has_unanswerable,
                most_tokens=spec.max_answer,
            )
            start = -1 if found.start is None else found.start
            probability = found.probabilities[0] if found.probabilities else 0.0
            values += [number, losses[place], start, len(found.text), probability, found.no_answer]
        return values

    rows = each_batch(model, split, rule, answered, processes, progress)
    return _predictions(rows, passages)


def passages_of(part: TaskPart) -> list[str]:
    """Return the passage of each question, as a pair of texts has it."""
    return [pair_rows(part.task, example)[0].second or "" for example in part.examples]


def answer_question(
    encoded: SpanExamples,
    number: int,
    passage: str,
    scores: Sequence[WindowScores],
    *,
    is_joint: bool,
    has_unanswerable: bool,
    most_tokens: int,
) -> Prediction:
    """Answer a question, by its number, from what a model says of each of its windows."""
    spans = rank_spans(
        encoded.windows(number),
        [each.candidates for each in scores],
        offset=encoded.offset(number),
        placed=encoded.placed(number),
        passage=passage,
        most_tokens=most_tokens,
    )
    nulls = [each.no_answer for each in scores]
    if is_joint:
        return joint_prediction(spans, nulls)
    return independent_prediction(spans, min(nulls) if has_unanswerable else None)


def window_scores(
    model: Transformer, batch: PackedBatch, states: torch.Tensor
) -> list[WindowScores]:
    """Return what a model says of each window of a batch."""
    sequences = find_sequences(batch)
    if model.joint_span_head is None:
        start, end = independent_logits(model, states, sequences)
        starts, ends = start.double().cpu().numpy(), end.double().cpu().numpy()
        found = []
        for row, length in enumerate(sequences.lengths.tolist()):
            own_starts, own_ends = starts[row, :length], ends[row, :length]
            null = null_score([own_starts], [own_ends])
            found.append(WindowScores(independent_candidates(own_starts, own_ends), null))
        return found
    head = model.joint_span_head
    own, may_answer = joint_states(batch, states, sequences)
    start = head.starts(own, may_answer)
    starts = start.double().cpu().numpy()
    # Where a window has fewer tokens than starts are tried, some are of no passage, as none is.
    columns = np.stack([best_starts(row, N_BEST_JOINT) for row in starts])
    end = head.ends(own, may_answer, torch.from_numpy(columns).to(start.device))
    ends = end.double().cpu().numpy()
    no_answer = head.no_answer(own, start).tolist()
    return [
        WindowScores(joint_candidates(starts[row], columns[row], ends[row]), no_answer[row])
        for row in range(len(starts))
    ]


def _predictions(
    rows: Sequence[Row], passages: Sequence[str]
) -> tuple[list[Prediction], list[float]]:
    predictions = [Prediction()] * len(passages)
    losses = [0.0] * len(passages)
    for values in np.concatenate([row.reshape(-1, _N_VALUES) for row in rows]).tolist():
        number, loss, start, length, probability, no_answer = values
        place = int(number)
        losses[place] = loss
        if start < 0:
            predictions[place] = Prediction(text="", no_answer=no_answer)
            continue
        first = int(start)
        predictions[place] = Prediction(
            text=passages[place][first : first + int(length)],
            start=first,
            probabilities=(probability,),
            no_answer=no_answer,
        )
    return predictions, losses
