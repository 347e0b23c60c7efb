"""Predict the next token at every position."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from sublayer.data.batches import Batch
from sublayer.model.layout import Layout
from sublayer.model.loss import linear_cross_entropy
from sublayer.objective.terms import Objective


class Causal(Objective):
    """Cross-entropy of the next token, over all positions whose target counts."""

    weights: ClassVar[Mapping[str, float]] = {"lm": 1.0}
    reported: ClassVar[str] = "lm"

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the targets that are not masked."""
        return {"lm": int((batch.targets >= 0).sum())}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Sum the nats of the batch's next tokens."""
        layout = Layout.causal(batch.tokens, document_ids=batch.document_ids)
        hidden = self.model.hidden(batch.tokens, layout).final  # [B, T, D]
        matrix, bias = self.model.output_projection()
        embedded = self.model.to_embedding(hidden).flatten(0, 1)  # [B*T, E]
        return {"lm": linear_cross_entropy(embedded, matrix, bias, batch.targets.flatten())}
