"""Learn to answer: labels, choices and numbers from a head, and the texts themselves beside it.

Source: Devlin et al. 2019, sec. 4; of traversals Radford et al. 2018, sec. 3.2.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.data.batches import IGNORED
from sublayer.data.packed_batch import PackedBatch
from sublayer.model.body import Hidden
from sublayer.model.kernels.cross_entropy import linear_cross_entropy
from sublayer.model.transformer import Transformer
from sublayer.objective.base import Objective
from sublayer.objective.supervised.readout import (
    answer_logits,
    packed_hidden,
    picked_states,
    text_states,
)
from sublayer.tasks.task import Task


class Supervised(Objective):
    """The loss of answers, term ``task``, a mean over examples, and of their texts.

    ``task`` is cross-entropy in nats, of numbers half the squared difference on the scale of
    ``scaled``. The term ``language`` is a mean over sequences of each one's mean over its tokens;
    without a weight it is not computed.
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
        """Count the examples, and of the texts the sequences."""
        counts = {"task": int(batch.weights.sum())}
        if "language" in self.weights:
            counts["language"] = int(batch.weights[batch.owners].sum())
        return counts

    def forward(self, batch: PackedBatch) -> dict[str, Tensor]:
        """Sum the loss of the batch's answers, and of its texts."""
        totals = {}
        if "language" in self.weights:
            every = packed_hidden(self.model, batch)
            totals["language"] = self._language(batch, every)
            states = picked_states(batch, every.final)
        else:
            states = text_states(self.model, batch)
        logits = answer_logits(self.model, batch, states, self._dropout, self._task.kind)
        each = answer_losses(self._task, logits, batch.labels)
        return {"task": (each * batch.weights.to(each.dtype)).sum(), **totals}

    def _language(self, batch: PackedBatch, hidden: Hidden) -> Tensor:
        places = batch.predicted
        assert places is not None, "the texts are predicted"
        matrix, bias = self.model.output_projection(hidden.matrix)
        embedded = self.model.to_embedding(hidden.final.flatten(0, 1).index_select(0, places))
        weights = token_weights(batch).flatten()[places]
        return linear_cross_entropy(embedded, matrix, bias, batch.predicted_ids, weights)


def token_weights(batch: PackedBatch) -> Float[Tensor, "R T"]:
    """Return for each position one by the number of tokens that its sequence predicts."""
    assert batch.targets is not None and batch.n_most is not None, "the texts are predicted"
    ids = batch.read.sequence_ids
    is_counted = (batch.targets != IGNORED).double()
    rows = ids.clamp_min(0)
    counts = torch.zeros(len(ids), batch.n_most, dtype=torch.float64, device=ids.device)
    counts.scatter_add_(1, rows, is_counted)
    # Of each sequence as often as its example counts; sequences stand in the order of rows.
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
    """Return numbers from the task's lowest to its highest as numbers from -1 to 1."""
    low, high = task.numbers
    return (2.0 * numbers - low - high) / (high - low)


def unscaled(task: Task, outputs: Tensor) -> Tensor:
    """Return the numbers of outputs, on the task's own scale; not cut to its range."""
    low, high = task.numbers
    return (outputs * (high - low) + low + high) / 2.0
