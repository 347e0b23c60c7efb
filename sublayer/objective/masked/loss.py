"""Predict masked tokens from both sides, and tell pairs of texts that belong together from others.

Source: Devlin et al. 2019 (1810.04805), sec. 3.1; sentence order: Lan et al. 2020 (1909.11942),
sec. 3.1.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.config.architecture.heads import HEADS
from sublayer.config.objectives.masked import MaskedObjective
from sublayer.data.packed_batch import PackedBatch
from sublayer.model.context.layout import Layout
from sublayer.model.encoder import Encoder
from sublayer.model.kernels.cross_entropy import (
    Smoothing,
    linear_cross_entropy,
    smoothed_cross_entropy,
)
from sublayer.model.transformer import Transformer
from sublayer.objective.base import Objective


class Masked(Objective):
    """Cross-entropy of masked tokens, term ``mlm``, and of pairs of texts, term ``sentence``.

    Logits are computed only where a token is predicted. Each term is a mean over all it counts in
    the global batch. The model is an encoder.

    With z-loss what is trained of masked tokens is the term ``trained``; ``mlm``, without weight
    then, is what is reported.
    """

    reported = "mlm"

    def __init__(self, model: Transformer, config: MaskedObjective) -> None:
        super().__init__(model)
        assert isinstance(model, Encoder), "masked objectives train encoders"
        self._encoder = model
        self._z_loss = config.z_loss
        self._is_probed = config.sentence_trains == "head"
        self.weights = {"mlm": 1.0}
        if self._z_loss:
            self.weights = {"trained": 1.0, "mlm": 0.0}
        if config.sentence != "none":
            self.weights["sentence"] = config.sentence_weight

    @property
    def has_unused_parameters(self) -> bool:
        """Whether parameters may have no gradient: those of a sentence head that is not trained."""
        if "sentence" in self.weights:
            return False
        return any(HEADS[name].reads != "positions" for name in self.model.heads)

    def counts(self, batch: PackedBatch) -> dict[str, int]:
        """Count the predicted tokens and the pairs with a label."""
        n_targets = batch.n_predicted
        counts = {"mlm": n_targets}
        if self._z_loss:
            counts["trained"] = n_targets
        if "sentence" in self.weights:
            is_labelled = batch.labels >= 0
            counts["sentence"] = int(is_labelled.sum())
        return counts

    def forward(self, batch: PackedBatch) -> dict[str, Tensor]:
        """Sum the nats of the batch's masked tokens, and of its pairs."""
        states = states_at(self._encoder, batch)
        totals = self._token_totals(states.masked, batch.predicted_ids)
        if "sentence" in self.weights:
            # A probe reads the states and leaves them as they are.
            cls = states.cls.detach() if self._is_probed else states.cls
            logits = self._encoder.sentence_logits(cls)
            totals["sentence"] = sentence_nats(logits, batch.labels.long())
        return totals

    def _token_totals(
        self, states: Float[Tensor, "P D"], targets: Int[Tensor, " P"]
    ) -> dict[str, Tensor]:
        matrix, bias = self._encoder.output_projection()
        embedded = self._encoder.to_embedding(states)
        if not self._z_loss:
            return {"mlm": linear_cross_entropy(embedded, matrix, bias, targets)}
        smoothing = Smoothing(1.0, 0.0, self._z_loss)
        trained, nats = smoothed_cross_entropy(embedded, matrix, bias, targets, smoothing)
        return {"trained": trained, "mlm": nats}


class States(NamedTuple):
    """The hidden states that are read, in the order of the batch's rows."""

    masked: Float[Tensor, "P D"]
    """Of the predicted positions."""
    cls: Float[Tensor, "N D"]
    """Of the first position of every example."""


def states_at(encoder: Encoder, batch: PackedBatch) -> States:
    """Compute hidden states, each example as if it were alone, and pick those that are read."""
    assert batch.predicted is not None, "tokens are predicted"
    side = batch.read
    layout = Layout.bidirectional(side.tokens, side.mask, side.document_ids, side.starts)
    final = encoder.hidden(side.tokens, layout, segments=batch.segments).final
    flat = final.flatten(0, 1)  # [R * T, D]
    return States(flat.index_select(0, batch.predicted), flat.index_select(0, batch.places))


def sentence_nats(logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> Float[Tensor, ""]:
    """Sum the nats of labels under two logits, or a logistic one; a label of -1 does not count.

    In float32 at least, whatever the logits are in. A logistic one is that of label 1.
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)
    logits = logits.to(dtype)
    n_logits = logits.shape[1]
    if n_logits == 2:
        return F.cross_entropy(logits, labels, ignore_index=-1, reduction="sum")
    is_counted = labels >= 0
    # What does not count is computed as label 0, and left out of the sum.
    targets = labels.clamp_min(0).to(logits.dtype)
    nats = F.binary_cross_entropy_with_logits(logits[:, 0], targets, reduction="none")
    return torch.where(is_counted, nats, 0.0).sum()


def predicts_negative(logits: Float[Tensor, "N C"]) -> Tensor:
    """Predict which pairs of texts do not belong together, ``[N]``: label 1 is the likelier."""
    n_logits = logits.shape[1]
    if n_logits == 1:
        return logits[:, 0] > 0
    return logits[:, 1] > logits[:, 0]
