"""Predict hidden tokens from both sides, and tell pairs of texts that belong together from others.

Source: Devlin et al. 2019 (1810.04805), sec. 3.1; sentence order: Lan et al. 2020 (1909.11942), sec. 3.1.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.config.objective import MaskedObjective
from sublayer.data.packed import PairBatch
from sublayer.model.encoder import Encoder
from sublayer.model.layout import Layout
from sublayer.model.loss import linear_cross_entropy
from sublayer.model.transformer import Transformer
from sublayer.objective.terms import Objective


class Masked(Objective):
    """Cross-entropy of hidden tokens, term ``mlm``, and of the judgement of pairs, term ``sentence``.

    Logits are computed only where a token is predicted. Each term is a mean over all it counts in the global batch.
    """

    reported = "mlm"

    def __init__(self, model: Transformer, config: MaskedObjective) -> None:
        super().__init__(model)
        assert isinstance(model, Encoder), "masked objectives train encoders"
        self._encoder = model
        self.weights = {"mlm": 1.0}
        if config.sentence != "none":
            self.weights["sentence"] = config.sentence_weight

    @property
    def stops(self) -> bool:
        """Whether parameters may be without gradients: those of the sentence head, where it is not trained."""
        return "sentence" not in self.weights

    def counts(self, batch: PairBatch) -> dict[str, int]:
        """Count the predicted tokens and the pairs with a label."""
        counts = {"mlm": batch.targets.shape[0], "sentence": int((batch.labels >= 0).sum())}
        return {term: counts[term] for term in self.weights}

    def forward(self, batch: PairBatch) -> dict[str, Tensor]:
        """Sum the nats of the batch's hidden tokens, and of its pairs."""
        states = states_at(self._encoder, batch)
        matrix, bias = self._encoder.output_projection()
        embedded = self._encoder.to_embedding(states.masked)
        totals = {"mlm": linear_cross_entropy(embedded, matrix, bias, batch.targets)}
        if "sentence" in self.weights:
            totals["sentence"] = sentence_nats(self._encoder.sentence_logits(states.firsts), batch.labels)
        return totals


class States(NamedTuple):
    """The hidden states that a masked objective reads: those of predicted places, and the first of every example."""

    masked: Float[Tensor, "P D"]
    firsts: Float[Tensor, "N D"]


def states_at(encoder: Encoder, batch: PairBatch) -> States:
    """Compute hidden states, each example as if it were alone, and pick those that are read."""
    layout = Layout.bidirectional(batch.tokens, batch.mask, batch.document_ids)
    final = encoder.hidden(batch.tokens, layout, segments=batch.segments).final
    flat, width = final.flatten(0, 1), final.shape[1]
    masked, firsts = (flat.index_select(0, each[:, 0] * width + each[:, 1]) for each in (batch.masked, batch.firsts))
    return States(masked, firsts)


def sentence_nats(logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> Float[Tensor, ""]:
    """Sum the nats of the labels under two logits, or one logistic one; a label of -1 does not count."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if logits.shape[1] == 2:
        return F.cross_entropy(logits, labels, ignore_index=-1, reduction="sum")
    is_counted = labels >= 0
    targets = labels.clamp_min(0).to(logits.dtype)
    nats = F.binary_cross_entropy_with_logits(logits[:, 0], targets, reduction="none")
    return torch.where(is_counted, nats, 0.0).sum()


def says_apart(logits: Float[Tensor, "N C"]) -> Tensor:
    """Tell which pairs are judged not to belong together."""
    return logits[:, 0] > 0 if logits.shape[1] == 1 else logits[:, 1] > logits[:, 0]
