"""Learn where the answer to a question stands in its passage.

Source: Devlin et al. 2019, sec. 4.2 and 4.3; where questions may have no answer Lan et al. 2020, as
released.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.data.packed_batch import PackedBatch
from sublayer.model.transformer import Transformer
from sublayer.objective.base import Objective
from sublayer.objective.supervised.readout import owned, packed_hidden
from sublayer.objective.supervised.sequences import Sequences, find_sequences


class SpanAnswers(Objective):
    """The loss of starts and ends, and of whether there is an answer; a mean over examples.

    Its one term, ``task``, is the mean cross-entropy of start and end in nats. To that the joint
    head, whose end is given the true start, adds half the binary cross-entropy of no answer. Where
    a window has no answer, [CLS] is start and end.
    """

    reported = "task"

    def __init__(self, model: Transformer, config: SupervisedObjective) -> None:
        super().__init__(model)
        self._dropout = config.dropout
        self.weights = {"task": 1.0}

    def counts(self, batch: PackedBatch) -> dict[str, int]:
        """Count the examples."""
        return {"task": int(batch.weights.sum())}

    def forward(self, batch: PackedBatch) -> dict[str, Tensor]:
        """Sum the loss of the batch's examples."""
        states = packed_hidden(self.model, batch).final
        each = span_losses(self.model, batch, states, self._dropout)
        return {"task": (each * batch.weights.to(each.dtype)).sum()}


class JointStates(NamedTuple):
    """What the joint head reads: each sequence in a row of its own."""

    states: Float[Tensor, "S L D"]
    may_answer: Bool[Tensor, "S L"]
    """True at [CLS] and at the tokens of the passage."""


def independent_logits(
    model: Transformer, states: Float[Tensor, "R T D"], sequences: Sequences
) -> tuple[Float[Tensor, "S L"], Float[Tensor, "S L"]]:
    """Compute logits of start and end at each position of each sequence.

    Behind its end they are minus infinity. Every token of a sequence takes part, those of the
    question and marks too, as published; padding, of which the sources have some, does not.
    """
    assert model.span_head is not None, "the config asks for independent ends"
    logits: Tensor = model.span_head(states)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    apart = sequences.of(logits).masked_fill(~sequences.is_there[..., None], -torch.inf)
    start, end = apart.unbind(-1)
    return start, end


def joint_states(
    batch: PackedBatch, states: Float[Tensor, "R T D"], sequences: Sequences
) -> JointStates:
    """Give each sequence a row, with where its answer may be."""
    columns = torch.arange(sequences.places.shape[1], device=states.device)
    # The second text ends with a mark.
    is_passage = columns < sequences.lengths[:, None] - 1
    is_passage &= sequences.of(batch.segments) == 1
    return JointStates(sequences.of(states), is_passage | (columns == 0))


def span_losses(
    model: Transformer, batch: PackedBatch, states: Float[Tensor, "R T D"], p: float
) -> Float[Tensor, " N"]:
    """Compute the loss of each example, the mean of its windows'.

    ``p`` is the dropout, in training, of what no answer is read from.
    """
    assert batch.spans is not None, "answers are spans"
    gold_start, gold_end = (batch.spans - batch.readouts[:, 1:]).unbind(1)
    sequences = find_sequences(batch)
    if model.joint_span_head is None:
        start, end = independent_logits(model, states, sequences)
        each = _cross_entropy(start, gold_start, end, gold_end)
    else:
        head = model.joint_span_head
        own, may_answer = joint_states(batch, states, sequences)
        start = head.starts(own, may_answer)
        end = head.ends(own, may_answer, gold_start[:, None])[:, 0]
        no_answer = head.no_answer(own, start, p)
        each = _cross_entropy(start, gold_start, end, gold_end)
        is_without = (gold_start == 0).to(no_answer.dtype)
        each = each + 0.5 * F.binary_cross_entropy_with_logits(
            no_answer, is_without, reduction="none"
        )
    sums = each.new_zeros(batch.n_examples).index_add(0, batch.owners, each)
    return sums / owned(batch.owners, batch.n_examples)


def _cross_entropy(
    start: Float[Tensor, "S L"],
    gold_start: Int[Tensor, " S"],
    end: Float[Tensor, "S L"],
    gold_end: Int[Tensor, " S"],
) -> Float[Tensor, " S"]:
    starts = F.cross_entropy(start, gold_start, reduction="none")
    return 0.5 * (starts + F.cross_entropy(end, gold_end, reduction="none"))
