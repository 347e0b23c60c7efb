"""Answers of heads to all examples of a split: labels, choices, numbers, and spans of passages."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sublayer.data.packing import PackedBatch
from sublayer.data.tasks.assembly import Assembler, RowRule
from sublayer.data.tasks.batches import TaskPart, TaskSplit
from sublayer.data.tasks.encoded import SpanExamples
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
from sublayer.evaluation.split_work import Processes, Row, compute_each
from sublayer.model.eval_mode import evaluating
from sublayer.model.transformer import Transformer
from sublayer.objective.evaluation import Progress, batch_sequences
from sublayer.objective.supervised.batches import similar_batches
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
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.task import Prediction, Task


@torch.inference_mode()
def answer_examples(
    model: Transformer,
    split: TaskSplit,
    rule: RowRule,
    task: Task,
    processes: Processes,
    progress: Progress = lambda n_done, n_all: None,
) -> tuple[list[Prediction], list[float]]:
    """Answer every example by the model's head; return the answers, and the loss of each.

    Both are in the split's order. The loss of an example without a label means nothing. The work is
    divided among ``processes``, and all return the same; ``progress`` hears of batches.
    """

    def answered(batch: PackedBatch) -> list[float]:
        return _answered(model, batch, task)

    rows = each_batch(model, split, rule, answered, processes, progress)
    return _predictions(task, rows, split.n_examples)


def each_batch(
    model: Transformer,
    split: TaskSplit,
    rule: RowRule,
    answered: Callable[[PackedBatch], Sequence[float]],
    processes: Processes,
    progress: Progress,
) -> list[Row]:
    """Answer the examples of a split in batches of similar lengths; return a row for each batch.

    The work is divided among ``processes``, and all return the same; ``progress`` hears of batches.
    """
    assembler = Assembler(split.encoded, rule)
    numbers = np.arange(split.n_examples)
    most_tokens = (rule.n_rows or batch_sequences(model, rule.context)) * rule.context
    batches = similar_batches(assembler.tokens(numbers), most_tokens)
    device = model.embedding.weight.device
    done = 0

    def work(index: int) -> Sequence[float]:
        nonlocal done
        batch = assembler.pack(batches[index]).to(device)
        row = answered(batch)
        done += 1
        progress(done, len(batches))
        return row

    with evaluating(model):
        return compute_each(work, len(batches), processes)


def _answered(model: Transformer, batch: PackedBatch, task: Task) -> list[float]:
    """Return for each example its number, its loss, how many outputs it has, and these."""
    logits = answer_logits(model, batch, text_states(model, batch), 0.0, task.kind)
    losses = answer_losses(task, logits, batch.labels)
    outputs = _outputs(task, logits)
    values: list[float] = []
    rows = zip(batch.numbers, losses.tolist(), outputs.tolist(), strict=True)
    for number, loss, own in rows:
        values += [float(number), loss, float(len(own)), *own]
    return values


def _outputs(task: Task, logits: Tensor) -> Tensor:
    if task.kind == "number":
        return unscaled(task, logits)
    return logits.double().softmax(-1)


def _predictions(
    task: Task, rows: Sequence[Row], n_examples: int
) -> tuple[list[Prediction], list[float]]:
    predictions = [Prediction()] * n_examples
    losses = [0.0] * n_examples
    for row in rows:
        place = 0
        while place < len(row):
            number, n_outputs = int(row[place]), int(row[place + 2])
            outputs = row[place + 3 : place + 3 + n_outputs]
            losses[number] = float(row[place + 1])
            predictions[number] = _prediction(task, outputs)
            place += 3 + n_outputs
    return predictions, losses


def _prediction(task: Task, outputs: Row) -> Prediction:
    if task.kind == "number":
        low, high = task.numbers if task.is_bounded else (-np.inf, np.inf)
        return Prediction(label=float(np.clip(outputs[0], low, high)))
    # Of choices that an example does not have the probability is 0.
    return Prediction(label=int(outputs.argmax()), probabilities=tuple(outputs.tolist()))


_N_VALUES = 6


class WindowScores(NamedTuple):
    """Scores of a window by a model."""

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
    return _span_predictions(rows, passages)


def passages_of(part: TaskPart) -> list[str]:
    """Return the passage of each question, as a pair of texts has it."""
    wording = wording_of(part.task)
    return [wording.pair_rows(example)[0].second or "" for example in part.examples]


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
    """Answer a question, by its number, from the scores of its windows."""
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
    """Score each window of a batch."""
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


def _span_predictions(
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
