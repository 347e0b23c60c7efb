"""Heads that answer tasks, and their losses: labels, choices, numbers and spans.

Source: Devlin et al. 2019, sec. 4, of spans sec. 4.2 and 4.3; of traversals Radford et al. 2018,
sec. 3.2; where questions may have no answer Lan et al. 2020, as released.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from sublayer.config.objective import SupervisedObjective
from sublayer.data.batches import IGNORED, PackedBatch
from sublayer.model.context import Layout, Queries
from sublayer.model.kernels.cross_entropy import linear_cross_entropy
from sublayer.model.kernels.elementwise import dropout
from sublayer.model.transformer import Hidden, Transformer
from sublayer.objective.base import Objective
from sublayer.tasks.task import Task

WEIGHT, BIAS = "label_head.weight", "label_head.bias"


def packed_hidden(model: Transformer, batch: PackedBatch) -> Hidden:
    """Compute hidden states, without attention across sequences."""
    tokens = batch.read.tokens
    return model.hidden(tokens, _layout(model, batch), segments=batch.segments)


def text_states(model: Transformer, batch: PackedBatch) -> Float[Tensor, "S D"]:
    """Compute each sequence's representative final state, the last block only there."""
    assert batch.n_most is not None, "it is found where it is not given"
    rows, columns = batch.readouts.unbind(1)
    order = batch.order  # [S]
    # In rows with fewer sequences than others, surplus entries point to the first token.
    places = rows.new_zeros(len(batch.read), batch.n_most)
    places[rows, order] = columns
    layout = _layout(model, batch)
    hidden = model.hidden(
        batch.read.tokens, layout, segments=batch.segments, queries=Queries(places)
    )
    return hidden.final[rows, order]


def picked_states(batch: PackedBatch, states: Float[Tensor, "R T D"]) -> Float[Tensor, "S D"]:
    """Select the representative state of each sequence."""
    return states.flatten(0, 1).index_select(0, batch.places)


def _layout(model: Transformer, batch: PackedBatch) -> Layout:
    side = batch.read
    if model.text_position == "first":
        return Layout.bidirectional(side.tokens, side.mask, side.document_ids, side.starts)
    # Padding follows a text, whose tokens do not see it.
    mask = side.mask if model.has_auxiliary else None
    return Layout.causal(side.tokens, mask, side.document_ids, starts=side.starts)


def text_vectors(
    batch: PackedBatch, vectors: Float[Tensor, "S D"], *, is_added: bool
) -> Float[Tensor, "N D"]:
    """Return the sequences' representative states, summed by example if ``is_added``."""
    if not is_added or len(vectors) == batch.n_examples:
        return vectors
    total = vectors.new_zeros(batch.n_examples, vectors.shape[1])
    return total.index_add(0, batch.owners, vectors)


def answer_logits(
    model: Transformer, batch: PackedBatch, states: Float[Tensor, "S D"], p: float, kind: str
) -> Float[Tensor, "N L"]:
    """Compute the outputs of examples: per label, per choice, or one number.

    ``states``: representative states of sequences.

    ``p``: dropout of the head's input in training. Missing choices get minus infinity.
    """
    # A choice has a separate sequence and logit; both orders of a pair share one.
    vectors = text_vectors(batch, states, is_added=kind != "choice")
    pooled = dropout(model.pool(vectors), p, model.training)
    assert model.label_head is not None, "the config asks for a label head"
    logits: Tensor = model.label_head(pooled)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if kind == "choice":
        assert batch.n_most_owned is not None, "it is found where it is not given"
        return by_choice(logits[:, 0], batch.owners, (batch.n_examples, batch.n_most_owned))
    if kind == "classes" and logits.shape[1] == 1:
        # Two classes: with a logit of 0 the softmax is the logistic function.
        return torch.cat([torch.zeros_like(logits), logits], 1)
    return logits


def by_choice(
    logits: Float[Tensor, " S"], owners: Int[Tensor, " S"], shape: tuple[int, int]
) -> Float[Tensor, "N C"]:
    """Arrange sequence logits in rows by example, padded with minus infinity.

    ``shape``: number of examples, and maximum sequences of one.
    """
    counts = owned(owners, shape[0])
    firsts = counts.cumsum(0) - counts
    places = torch.arange(len(owners), device=owners.device) - firsts[owners]
    rows = logits.new_full(shape, -torch.inf)
    return rows.index_put((owners, places), logits)


def owned(owners: Int[Tensor, " S"], n_examples: int) -> Int[Tensor, " N"]:
    """Count the sequences of each example, without the synchronisation of bincount."""
    return owners.new_zeros(n_examples).index_add(0, owners, torch.ones_like(owners))


class Supervised(Objective):
    """Loss of answers, term ``task``, a mean over examples, and of their texts.

    ``task`` is cross-entropy in nats, or for numbers half the squared difference on the scale of
    ``scaled``. The term ``language`` averages token means over sequences; without a weight it is
    not computed.
    """

    reported = "task"

    def __init__(self, model: Transformer, config: SupervisedObjective, task: Task) -> None:
        super().__init__(model)
        self._task = task
        self._dropout = config.dropout
        self.weights = {"task": 1.0}
        if config.zero_head and model.label_head is not None:
            for parameter in model.label_head.parameters():
                nn.init.zeros_(parameter)
        if config.language_weight > 0:
            self.weights["language"] = config.language_weight

    def counts(self, batch: PackedBatch) -> dict[str, int]:
        """Count examples, and sequences for ``language``."""
        counts = {"task": int(batch.weights.sum())}
        if "language" in self.weights:
            counts["language"] = int(batch.weights[batch.owners].sum())
        return counts

    def forward(self, batch: PackedBatch) -> dict[str, Tensor]:
        """Sum the loss of the batch's answers, and of its texts."""
        totals = {}
        if "language" in self.weights or self.model.has_auxiliary:
            every = packed_hidden(self.model, batch)
            if "language" in self.weights:
                totals["language"] = self._language(batch, every)
            totals |= self.auxiliary_totals(every.auxiliary, batch.weights)
            states = picked_states(batch, every.final)
        else:
            states = text_states(self.model, batch)
        logits = answer_logits(self.model, batch, states, self._dropout, self._task.kind)
        losses = answer_losses(self._task, logits, batch.labels)
        return {"task": (losses * batch.weights.to(losses.dtype)).sum(), **totals}

    def _language(self, batch: PackedBatch, hidden: Hidden) -> Tensor:
        places = batch.predicted
        assert places is not None, "the texts are predicted"
        matrix, bias = self.model.output_projection(hidden.matrix)
        embedded = self.model.to_embedding(hidden.final.flatten(0, 1).index_select(0, places))
        weights = token_weights(batch).flatten()[places]
        return linear_cross_entropy(embedded, matrix, bias, batch.predicted_ids, weights)


def token_weights(batch: PackedBatch) -> Float[Tensor, "R T"]:
    """Return for each position the inverse number of its sequence's predicted tokens."""
    assert batch.targets is not None and batch.n_most is not None, "the texts are predicted"
    ids = batch.read.sequence_ids
    is_counted = (batch.targets != IGNORED).double()
    rows = ids.clamp_min(0)
    counts = torch.zeros(len(ids), batch.n_most, dtype=torch.float64, device=ids.device)
    counts.scatter_add_(1, rows, is_counted)
    # Sequences, in row order, weighted by their example.
    weights = torch.zeros_like(counts)
    weights[batch.readouts[:, 0], batch.order] = batch.weights[batch.owners]
    share = (weights / counts.clamp_min(1.0)).gather(1, rows)
    return share * is_counted


def answer_losses(
    task: Task, logits: Float[Tensor, "N L"], labels: Float[Tensor, " N"]
) -> Float[Tensor, " N"]:
    """Compute the loss of each example's answer."""
    if task.kind == "number":
        return 0.5 * (logits[:, 0] - scaled(task, labels).to(logits.dtype)).square()
    return F.cross_entropy(logits, labels.long(), reduction="none")


def scaled(task: Task, numbers: Tensor) -> Tensor:
    """Map numbers from the task's range to -1 to 1."""
    low, high = task.numbers
    return (2.0 * numbers - low - high) / (high - low)


def unscaled(task: Task, outputs: Tensor) -> Tensor:
    """Map outputs to the task's scale, without clipping."""
    low, high = task.numbers
    return (outputs * (high - low) + low + high) / 2.0


def to_numbers(weights: Mapping[str, Tensor], task: Task | None) -> dict[str, Tensor]:
    """Return weights whose head outputs the number itself; others are unchanged.

    Models that write numbers as text have no such head: their weights are unchanged.
    """
    if task is None or task.kind != "number" or WEIGHT not in weights:
        return dict(weights)
    half, middle = _scale(task)
    return {**weights, WEIGHT: weights[WEIGHT] * half, BIAS: weights[BIAS] * half + middle}


def from_numbers(weights: Mapping[str, Tensor], task: Task) -> dict[str, Tensor]:
    """Return weights that rescale a head's output, a number, as ``scaled`` does.

    The inverse of ``to_numbers``. Other tasks' weights are unchanged.
    """
    if task.kind != "number" or WEIGHT not in weights:
        return dict(weights)
    half, middle = _scale(task)
    return {**weights, WEIGHT: weights[WEIGHT] / half, BIAS: (weights[BIAS] - middle) / half}


def _scale(task: Task) -> tuple[float, float]:
    low, high = task.numbers
    return (high - low) / 2.0, (low + high) / 2.0


class Sequences(NamedTuple):
    """Positions of each sequence in packed rows."""

    places: Int[Tensor, "S L"]
    """In the rows one behind another; behind its end that of its first token."""
    is_there: Bool[Tensor, "S L"]
    """False behind its end."""

    @property
    def lengths(self) -> Int[Tensor, " S"]:
        """Count the tokens of each."""
        return self.is_there.sum(1)

    def of(self, rows: Shaped[Tensor, "R T *D"]) -> Shaped[Tensor, "S L *D"]:
        """Unpack rows to one sequence per row; entries after its end are meaningless."""
        flat = rows.flatten(0, 1)
        return flat[self.places]


def find_sequences(batch: PackedBatch) -> Sequences:
    """Find the sequences of a batch, represented by their first tokens."""
    ids = batch.read.sequence_ids
    rows, firsts = batch.readouts.unbind(1)
    assert batch.n_most is not None and batch.longest is not None, "answers are spans"
    counts = torch.zeros(len(ids), batch.n_most, dtype=torch.int64, device=ids.device)
    counts.scatter_add_(1, ids.clamp_min(0), (ids >= 0).long())
    lengths = counts[rows, ids[rows, firsts]]
    columns = torch.arange(batch.longest, device=ids.device)
    is_there = columns < lengths[:, None]
    places = (rows * ids.shape[1] + firsts)[:, None] + columns * is_there
    return Sequences(places, is_there)


class SpanAnswers(Supervised):
    """Loss of starts, ends and answerability; a mean over examples.

    The term ``task`` is the mean cross-entropy of start and end in nats. The joint head, with the
    end given the true start, adds half the binary cross-entropy of no answer. In windows without an
    answer, [CLS] is start and end.
    """

    def __init__(self, model: Transformer, config: SupervisedObjective, task: Task) -> None:
        super().__init__(model, config, task)
        self.weights = {"task": 1.0}

    def forward(self, batch: PackedBatch) -> dict[str, Tensor]:
        """Sum the loss of the batch's examples."""
        hidden = packed_hidden(self.model, batch)
        losses = span_losses(self.model, batch, hidden.final, self._dropout)
        task = (losses * batch.weights.to(losses.dtype)).sum()
        return {"task": task, **self.auxiliary_totals(hidden.auxiliary, batch.weights)}


def independent_logits(
    model: Transformer, states: Float[Tensor, "R T D"], sequences: Sequences
) -> tuple[Float[Tensor, "S L"], Float[Tensor, "S L"]]:
    """Compute start and end logits at each position of each sequence.

    Minus infinity after its end. All tokens of a sequence take part, question and special tokens
    too, as published; padding, unlike in the sources, does not.
    """
    assert model.span_head is not None, "the config asks for independent ends"
    logits: Tensor = model.span_head(states)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    apart = sequences.of(logits).masked_fill(~sequences.is_there[..., None], -torch.inf)
    start, end = apart.unbind(-1)
    return start, end


def joint_states(
    batch: PackedBatch, states: Float[Tensor, "R T D"], sequences: Sequences
) -> tuple[Float[Tensor, "S L D"], Bool[Tensor, "S L"]]:
    """Return one sequence per row, as input of the joint head, and its answer mask.

    Answers may be at [CLS] and in the passage.
    """
    columns = torch.arange(sequences.places.shape[1], device=states.device)
    # The second text ends with a special token.
    is_passage = columns < sequences.lengths[:, None] - 1
    is_passage &= sequences.of(batch.segments) == 1
    return sequences.of(states), is_passage | (columns == 0)


def span_losses(
    model: Transformer, batch: PackedBatch, states: Float[Tensor, "R T D"], p: float
) -> Float[Tensor, " N"]:
    """Compute the loss of each example, the mean over its windows.

    ``p``: dropout of the no-answer input in training.
    """
    assert batch.spans is not None, "answers are spans"
    gold_start, gold_end = (batch.spans - batch.readouts[:, 1:]).unbind(1)
    sequences = find_sequences(batch)
    if model.joint_span_head is None:
        start, end = independent_logits(model, states, sequences)
        losses = _cross_entropy(start, gold_start, end, gold_end)
    else:
        head = model.joint_span_head
        padded, may_answer = joint_states(batch, states, sequences)
        start = head.starts(padded, may_answer)
        end = head.ends(padded, may_answer, gold_start[:, None])[:, 0]
        no_answer = head.no_answer(padded, start, p)
        losses = _cross_entropy(start, gold_start, end, gold_end)
        is_without = (gold_start == 0).to(no_answer.dtype)
        losses = losses + 0.5 * F.binary_cross_entropy_with_logits(
            no_answer, is_without, reduction="none"
        )
    sums = losses.new_zeros(batch.n_examples).index_add(0, batch.owners, losses)
    return sums / owned(batch.owners, batch.n_examples)


def _cross_entropy(
    start: Float[Tensor, "S L"],
    gold_start: Int[Tensor, " S"],
    end: Float[Tensor, "S L"],
    gold_end: Int[Tensor, " S"],
) -> Float[Tensor, " S"]:
    starts = F.cross_entropy(start, gold_start, reduction="none")
    return 0.5 * (starts + F.cross_entropy(end, gold_end, reduction="none"))
