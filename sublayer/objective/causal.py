"""Predict the tokens that follow, at the model's end and, to train deep stacks, after every block.

Source: Al-Rfou et al. 2018 (1808.04444), sec. 3: losses at multiple positions, intermediate layers, multiple targets.
"""

from collections.abc import Iterator, Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sublayer.config.objective import CausalObjective
from sublayer.data.batches import Batch
from sublayer.model.heads import Classifier
from sublayer.model.init import initialise
from sublayer.model.layout import Layout
from sublayer.model.loss import linear_cross_entropy
from sublayer.model.norm import build_norm
from sublayer.model.transformer import Transformer
from sublayer.objective.terms import Objective

_STREAM = 1 << 32
"""Apart from the model's seeds, so that heads do not begin as copies of the model's first weights."""


class Causal(Objective):
    """Cross-entropy of the next tokens, over all positions whose target counts.

    A term for each executed block that predicts (the last is the model's end) and each token ahead. The next token at
    the model's end, term ``lm``, has the model's own head; every other term has a classifier that is not saved with
    the model. Assumptions where the paper is silent: a block's classifiers read its output through a norm without
    parameters, of the model's kind (none where the model ends without one).
    """

    reported = "lm"

    def __init__(self, model: Transformer, config: CausalObjective | None = None, *, seed: int = 0) -> None:
        super().__init__(model)
        self.config = config or CausalObjective()
        self._n_layers = model.config.n_layers
        self._layers = range(1, self._n_layers) if self.config.auxiliary == "layers" else range(0)
        self._ahead = range(1, self.config.targets + 1)
        terms = [self._term(layer, ahead) for layer in (*self._layers, self._n_layers) for ahead in self._ahead]
        self.classifiers = nn.ModuleDict({term: Classifier(model.config) for term in terms if term != self.reported})
        initialise(self.classifiers, model.config, torch.Generator().manual_seed(seed + _STREAM))
        has_norm = bool(self._layers) and model.config.final_norm != "none"
        assert model.config.norm_eps is not None, "the config is not resolved"
        self._norm = build_norm(
            model.config.norm if has_norm else "none", model.config.d_model, eps=model.config.norm_eps, affine=False
        )
        self.begin(0, 1)

    def begin(self, step: int, steps: int) -> None:
        """Drop the losses of the blocks l of n that have had theirs for l / n of ``auxiliary_stop`` of the run."""
        stop = self.config.auxiliary_stop * steps
        self._active = [layer for layer in self._layers if step * self._n_layers < stop * layer]
        n_predicting = len(self._active) + 1
        share = 1.0 / n_predicting if self.config.auxiliary_reduction == "mean" else 1.0
        self.weights = {
            self._term(layer, ahead): share * (1.0 if ahead == 1 else self.config.target_weight)
            for layer in (*self._active, self._n_layers)
            for ahead in self._ahead
        }

    @property
    def stops(self) -> bool:
        """Whether some terms end before the run does."""
        return len(self._layers) > 0

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the targets that are not masked."""
        counts = [int((targets >= 0).sum()) for targets in self._targets(batch)]
        layers = (*self._active, self._n_layers)
        return {self._term(layer, ahead): counts[ahead - 1] for layer in layers for ahead in self._ahead}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Sum the nats of the batch's next tokens."""
        layout = Layout.causal(batch.tokens, document_ids=batch.document_ids)
        hidden = self.model.hidden(batch.tokens, layout, capture=self._active)
        targets = self._targets(batch)
        return dict(self._totals(hidden.captured, hidden.final, targets))

    def _totals(
        self, captured: Mapping[int, Tensor], final: Float[Tensor, "B T D"], targets: list[Int[Tensor, "B P"]]
    ) -> Iterator[tuple[str, Tensor]]:
        for layer in (*self._active, self._n_layers):
            states = final if layer == self._n_layers else self._norm(captured[layer])
            if self.config.positions == "last":
                states = states[:, -1:]
            for ahead, wanted in zip(self._ahead, targets, strict=True):
                term = self._term(layer, ahead)
                if term == self.reported:
                    matrix, bias = self.model.output_projection()
                    rows = self.model.to_embedding(states)
                else:
                    classifier = self.classifiers[term]
                    assert isinstance(classifier, Classifier), "a dictionary of classifiers"
                    matrix, bias, rows = classifier.weight, classifier.bias, states
                yield term, linear_cross_entropy(rows.flatten(0, 1), matrix, bias, wanted.flatten())

    def _targets(self, batch: Batch) -> list[Int[Tensor, "B P"]]:
        further = () if batch.further is None else tuple(batch.further)
        targets = [batch.targets, *further]
        return [each[:, -1:] for each in targets] if self.config.positions == "last" else targets

    def _term(self, layer: int, ahead: int) -> str:
        return self.reported if (layer, ahead) == (self._n_layers, 1) else f"layer{layer}_ahead{ahead}"
