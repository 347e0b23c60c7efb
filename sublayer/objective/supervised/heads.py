"""Heads that answer tasks: batches, losses and answers of labels, choices, numbers and spans.

Sources: Devlin et al. 2019, sec. 4, for spans sec. 4.2 and 4.3; for traversals Radford et al. 2018,
sec. 3.2; for unanswerable questions Lan et al. 2020, as released.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from sublayer.config.model import ModelConfig
from sublayer.config.objective import SupervisedObjective
from sublayer.config.recipe import Recipe
from sublayer.data.batches import IGNORED, PackedBatch
from sublayer.data.tasks.batches import Assembler, RowRule, TaskSplit
from sublayer.data.tasks.encoded import EncodedExamples, SpanExamples
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
from sublayer.evaluation.items import ALONE, Processes, Progress, Result, compute_each, silent
from sublayer.files.arrays import Ints
from sublayer.model.context import Layout, Queries
from sublayer.model.kernels.elementwise import dropout
from sublayer.model.kernels.products import linear_cross_entropy
from sublayer.model.transformer import Hidden, Transformer, evaluating
from sublayer.objective.base import Objective, own_objective, scored_sequences
from sublayer.tasks.registry import TaskSpec, wording_of
from sublayer.tasks.task import Prediction, Task


def recipe_rule(recipe: Recipe, split: TaskSplit) -> RowRule:
    """Return the layout rule of a split's texts for a recipe's model."""
    return row_rule(
        own_objective(recipe, SupervisedObjective), split, recipe.data.context, recipe.model
    )


def row_rule(
    objective: SupervisedObjective, split: TaskSplit, context: int, model: ModelConfig
) -> RowRule:
    """Return the layout rule of a split's texts for a kind of model."""
    first_id = None
    if model.kind == "encoder-decoder":
        first_id = split.marks.pad if model.decoder_start == "pad" else split.marks.last
    return RowRule(
        format=objective.format,
        marks=split.marks,
        context=context,
        predicts_text=objective.language_weight > 0,
        target_length=objective.target_length if objective.format == "text" else 0,
        first_id=first_id,
    )


@dataclass(frozen=True)
class AskedSplit:
    """A split with the model that answers it."""

    model: Transformer
    split: TaskSplit
    rule: RowRule
    """Layout of the split's texts for the model."""
    spec: TaskSpec
    processes: Processes = ALONE
    """Processes that divide the work; each returns all results."""
    progress: Progress = silent
    """Hears of batches."""

    def each_batch(
        self, encoded: EncodedExamples, work: Callable[[PackedBatch], Result]
    ) -> list[Result]:
        """Compute ``work`` on batches of examples of similar lengths.

        Without dropout and gradients.
        """
        model, rule = self.model, self.rule
        assembler = Assembler(encoded, rule)
        most_tokens = (rule.n_rows or scored_sequences(model, rule.context)) * rule.context
        tokens = assembler.tokens(np.arange(len(encoded)))
        order = np.argsort(tokens, kind="stable")
        batches: list[Ints] = []
        first = total = 0
        for index, number in enumerate(order.tolist()):
            if total + tokens[number] > most_tokens and index > first:
                batches.append(order[first:index])
                first, total = index, 0
            total += int(tokens[number])
        if len(order):
            batches.append(order[first:])
        device = model.embedding.weight.device

        def of_batch(index: int) -> Result:
            return work(assembler.pack(batches[index]).to(device))

        with evaluating(model), torch.inference_mode():
            return compute_each(of_batch, len(batches), self.processes, self.progress)

    def answer_examples(self) -> "Answers":
        """Answer every example by the model's head. Losses without a label are meaningless."""
        model, task = self.model, self.split.parts[0].task

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

        return _in_order(self.each_batch(self.split.encoded, answered))

    def answer_questions(self) -> "Answers":
        """Answer every question with the best span of all its windows.

        Answers are always given, with the no-answer score.
        """
        listed, losses = self.list_spans()
        is_joint = self.model.joint_span_head is not None
        unanswerable = self.split.parts[0].task.has_unanswerable
        answers = [
            best.prediction(is_joint=is_joint, has_unanswerable=unanswerable) for best in listed
        ]
        return answers, losses

    def list_spans(self, n_best: int = N_BEST) -> "tuple[list[Listed], list[float]]":
        """List the best spans and the loss of every question, in the split's order."""
        model, encoded, (part,) = self.model, self.split.encoded, self.split.parts
        assert isinstance(encoded, SpanExamples), "a passage is read in windows"
        wording, most = wording_of(part.task), self.spec.max_answer
        # As in their text pairs.
        passages = [wording.pair_rows(example)[0].second or "" for example in part.examples]

        def answered(batch: PackedBatch) -> list[tuple[int, Listed, float]]:
            states = packed_hidden(model, batch).final
            losses = span_losses(model, batch, states, 0.0).tolist()
            scores, owners = window_scores(model, batch, states), batch.owners.tolist()
            rows = []
            for index, number in enumerate(batch.numbers):
                group = [
                    window for window, owner in zip(scores, owners, strict=True) if owner == index
                ]
                listed = rank_question(encoded, number, passages[number], group, most, n_best)
                rows.append((number, listed, losses[index]))
            return rows

        return _in_order(self.each_batch(encoded, answered))


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


def _layout(model: Transformer, batch: PackedBatch) -> Layout:
    side = batch.read
    if model.text_position == "first":
        return Layout.bidirectional(side.tokens, side.mask, side.document_ids, side.starts)
    # Padding follows a text, so that causal attention never sees it.
    mask = side.mask if model.has_auxiliary else None
    return Layout.causal(side.tokens, mask, side.document_ids, starts=side.starts)


def answer_logits(
    model: Transformer, batch: PackedBatch, states: Float[Tensor, "S D"], p: float, kind: str
) -> Float[Tensor, "N L"]:
    """Compute the outputs of examples: per label, per choice, or one number.

    ``states``: representative states of sequences.

    ``p``: dropout of the head's input in training. Missing choices get minus infinity.
    """
    vectors = states
    # A choice has a separate sequence and logit; both orders of a pair are summed, and share one.
    if kind != "choice" and len(states) != batch.n_examples:
        total = states.new_zeros(batch.n_examples, states.shape[1])
        vectors = total.index_add(0, batch.owners, states)
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
                places = batch.predicted
                assert places is not None, "the texts are predicted"
                matrix, bias, cap = self.model.output_projection(every.matrix)
                vectors = every.final.flatten(0, 1).index_select(0, places)
                embedded = self.model.to_embedding(vectors)
                weights = token_weights(batch).flatten()[places]
                totals["language"] = linear_cross_entropy(
                    embedded, matrix, bias, batch.predicted_ids, weights, cap=cap
                )
            totals |= self.auxiliary_totals(every.auxiliary, batch.weights)
            states = every.final.flatten(0, 1).index_select(0, batch.places)
        else:
            states = text_states(self.model, batch)
        logits = answer_logits(self.model, batch, states, self._dropout, self._task.kind)
        losses = answer_losses(self._task, logits, batch.labels)
        return {"task": (losses * batch.weights.to(losses.dtype)).sum(), **totals}


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
    """Return weights with a head that outputs the number itself; others are unchanged.

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


class Sequences:
    """Positions of each sequence of a batch in its packed rows.

    Sequences are represented by their first tokens.
    """

    def __init__(self, batch: PackedBatch) -> None:
        ids = batch.read.sequence_ids
        rows, firsts = batch.readouts.unbind(1)
        assert batch.n_most is not None and batch.longest is not None, "answers are spans"
        counts = torch.zeros(len(ids), batch.n_most, dtype=torch.int64, device=ids.device)
        counts.scatter_add_(1, ids.clamp_min(0), (ids >= 0).long())
        self.lengths: Int[Tensor, " S"] = counts[rows, ids[rows, firsts]]
        """Number of tokens of each sequence."""
        columns = torch.arange(batch.longest, device=ids.device)
        self.is_there: Bool[Tensor, "S L"] = columns < self.lengths[:, None]
        """False after the sequence's end."""
        places = (rows * ids.shape[1] + firsts)[:, None] + columns * self.is_there
        self.places: Int[Tensor, "S L"] = places
        """Index into the flattened rows; after the end, the index of the first token."""

    def of(self, rows: Shaped[Tensor, "R T *D"]) -> Shaped[Tensor, "S L *D"]:
        """Unpack rows to one sequence per row; entries after its end are meaningless."""
        flat = rows.flatten(0, 1)
        return flat[self.places]


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

    Minus infinity after its end. All tokens of a sequence take part, also question and special
    tokens, as published. Departure: padding does not.
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
    sequences = Sequences(batch)
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


_T = TypeVar("_T")
Answers = tuple[list[Prediction], list[float]]
"""Answers to all examples of a split, in its order, and the loss of each."""


def _in_order(rows: Iterable[Iterable[tuple[int, _T, float]]]) -> tuple[list[_T], list[float]]:
    numbered = sorted(chain.from_iterable(rows), key=itemgetter(0))
    return [answer for _, answer, _ in numbered], [loss for _, _, loss in numbered]


WindowScores = tuple[Candidates, float]
"""Candidate answers in a window, and its no-answer score: for independent ends the score of [CLS],
as in BERT, else a logit."""


class Listed(NamedTuple):
    """A question's best spans by one model, and its no-answer score."""

    spans: Sequence[Span]
    """Spans, best first."""
    no_answer: float
    """Lowest no-answer score over windows; for independent ends the score of [CLS], on the spans'
    scale."""

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
    sequences = Sequences(batch)
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
