"""What a model answers as text to every example of a split."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from sublayer.data.arrays import Ints
from sublayer.data.tasks.assembly import Assembler, RowRule
from sublayer.data.tasks.task_split import TaskPart
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.decode.beam import GoesOn
from sublayer.evaluation.split_work import Processes, compute_each, numbered_ids
from sublayer.model.eval_mode import evaluating
from sublayer.model.transformer import Transformer
from sublayer.objective.evaluation import Progress, batch_sequences
from sublayer.objective.supervised.similar import similar_batches
from sublayer.objective.supervised.text import (
    GREEDILY,
    Writing,
    greedy_beginnings,
    nats_of_sequences,
    target_vectors,
    with_targets,
    write_answers,
)
from sublayer.tasks.formats.text import text_targets
from sublayer.tasks.formats.written import may_answer, read_answer
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.spec import TaskSpec

_AT_A_TIME = 128
"""Examples whose answers are written together."""


@torch.inference_mode()
def write_part(
    model: Transformer,
    part: TaskPart,
    rule: RowRule,
    spec: TaskSpec,
    processes: Processes,
    progress: Progress = lambda n_done, n_all: None,
    writing: Writing = GREEDILY,
    begun: Mapping[int, Ints] | None = None,
) -> list[Prediction]:
    """Answer every example of a task, in its order, as the spec says: written, or ranked.

    ``begun`` is how answers begin, as far as that is known, by the numbers of examples. Numbers and
    spans, which have no labels to rank, are written in any case. The work is divided among
    ``processes``, and all return the same.
    """
    targets = [text_targets(part.task, example) for example in part.examples]
    with evaluating(model):
        if spec.answer == "rank" and all(targets):
            return _ranked(model, part, rule, targets, processes, progress)
        return _written(model, part, rule, processes, progress, writing, begun or {})


@dataclass(frozen=True)
class TargetLoss:
    """The loss of a part's known targets, and what computing it has found out of its answers."""

    nats: float = 0.0
    n_tokens: int = 0
    """Of the targets, ends included."""
    begun: Mapping[int, Ints] = field(default_factory=dict)
    """Beginning of each greedy answer, by the example's number, up to the first token that is not
    the target's, ends included; empty where none was computed."""


@torch.inference_mode()
def text_loss(
    model: Transformer,
    part: TaskPart,
    rule: RowRule,
    processes: Processes,
    *,
    looks: bool = False,
) -> TargetLoss:
    """Compute the nats of all targets of a part that are known, ends included.

    It ``looks`` for how answers begin, too, unless it computes in less precision than the weights.
    """
    places = np.flatnonzero(part.encoded.row_texts == 2)
    known = part.encoded.select(places)
    if not len(known):
        return TargetLoss()
    assembler = Assembler(known, rule)
    numbers = np.arange(len(known))
    batches = similar_batches(assembler.tokens(numbers), _most_tokens(model, rule))
    device = model.embedding.weight.device
    looks = looks and not torch.is_autocast_enabled(device.type)

    def work(index: int) -> Sequence[float]:
        batch = assembler.pack(batches[index]).to(device)
        assert batch.targets is not None, "targets are known"
        vectors = target_vectors(model, batch)
        nats = nats_of_sequences(model, batch, vectors)
        row = [float(nats.sum()), float((batch.targets >= 0).sum())]
        if looks:
            begun = greedy_beginnings(model, batch, vectors, rule)
            for owner, ids in zip(batch.owners.tolist(), begun, strict=True):
                number = places[batch.numbers[owner]]
                row += [float(number), float(len(ids)), *map(float, ids.tolist())]
        return row

    with evaluating(model):
        rows = compute_each(work, len(batches), processes)
    n_tokens = int(sum(row[1] for row in rows))
    return TargetLoss(
        math.fsum(row[0] for row in rows), n_tokens, numbered_ids([row[2:] for row in rows])
    )


def _most_tokens(model: Transformer, rule: RowRule) -> int:
    return (rule.n_rows or batch_sequences(model, rule.context)) * rule.context


def _written(
    model: Transformer,
    part: TaskPart,
    rule: RowRule,
    processes: Processes,
    progress: Progress,
    writing: Writing,
    begun: Mapping[int, Ints],
) -> list[Prediction]:
    tokenizer: Tokenizer = model.tokenizer
    texts: dict[tuple[int, ...], str] = {}

    def may_count(number: int, ids: Sequence[int]) -> bool:
        key = tuple(ids)
        if key not in texts:
            texts[key] = tokenizer.decode(list(ids)).decode("utf-8", "replace")
        return may_answer(part.task, part.examples[number], texts[key])

    settled: dict[int, Ints] = {}
    most = max(1, rule.target_length - 1)
    for number, ids in begun.items() if writing.is_scored else ():
        if ids[-1] == rule.marks.last:
            settled[number] = ids[:-1]
        elif len(ids) > most:  # an end is not waited for
            settled[number] = ids[:most]
        elif not may_count(number, ids.tolist()):
            settled[number] = ids

    assembler = Assembler(part.encoded, rule)
    # Similar lengths together, so that little is computed on padding.
    lengths = np.array([len(assembler.source(number)) for number in range(len(part.encoded))])
    order = np.argsort(lengths, kind="stable")
    order = order[[number not in settled for number in order.tolist()]]
    n_rows = rule.n_rows or _AT_A_TIME
    device = model.embedding.weight.device.type
    groups = [order[start : start + n_rows] for start in range(0, len(order), n_rows)]
    n_done = 0

    def work(index: int) -> Sequence[float]:
        nonlocal n_done
        numbers = groups[index]
        sources = [assembler.source(number) for number in numbers.tolist()]
        row: list[float] = []
        goes_on: GoesOn | None = None
        if writing.is_scored:
            goes_on = lambda place, ids: may_count(int(numbers[place]), ids)  # noqa: E731
        # In the precision of the weights, as answers are written after training.
        with torch.autocast(device, enabled=False):
            for place, ids in write_answers(model, sources, rule, writing.of_batch(index), goes_on):
                row += [float(numbers[place]), float(len(ids)), *map(float, ids.tolist())]
        n_done += 1
        progress(n_done, len(groups))
        return row

    rows = compute_each(work, len(groups), processes)
    answers = {**settled, **numbered_ids(rows)}
    predictions = []
    for number, example in enumerate(part.examples):
        text = tokenizer.decode(answers[number]).decode("utf-8", "replace")
        predictions.append(read_answer(part.task, example, text))
    return predictions


def _ranked(
    model: Transformer,
    part: TaskPart,
    rule: RowRule,
    targets: Sequence[Sequence[str]],
    processes: Processes,
    progress: Progress,
) -> list[Prediction]:
    encoded = with_targets(part.encoded, _encode_targets(model.tokenizer, targets))
    assembler = Assembler(encoded, rule)
    numbers = np.arange(len(encoded))
    batches = similar_batches(assembler.tokens(numbers), _most_tokens(model, rule))
    device = model.embedding.weight.device
    n_done = 0

    def work(index: int) -> Sequence[float]:
        nonlocal n_done
        batch = assembler.pack(batches[index]).to(device)
        nats = nats_of_sequences(model, batch).tolist()
        owners = [batch.numbers[owner] for owner in batch.owners.tolist()]
        n_done += 1
        progress(n_done, len(batches))
        return [value for pair in zip(map(float, owners), nats, strict=True) for value in pair]

    rows = compute_each(work, len(batches), processes)
    found: dict[int, list[float]] = {}
    for row in rows:
        for number, nats in row.reshape(-1, 2).tolist():
            found.setdefault(int(number), []).append(-nats)
    return [_likeliest(found[number], targets[number]) for number in range(len(encoded))]


def _likeliest(log_p: Sequence[float], texts: Sequence[str]) -> Prediction:
    values = np.array(log_p)
    shares = np.exp(values - values.max())
    shares /= shares.sum()
    best = int(values.argmax())
    return Prediction(label=best, probabilities=tuple(shares.tolist()), text=texts[best])


def _encode_targets(tokenizer: Tokenizer, targets: Sequence[Sequence[str]]) -> list[list[Ints]]:
    texts = sorted({text for each in targets for text in each})
    ids = tokenizer.encode_many([text.encode() for text in texts])
    known = dict(zip(texts, ids, strict=True))
    return [[known[text].astype(np.int64) for text in each] for each in targets]
