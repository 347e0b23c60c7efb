"""Predict the tokens that follow, at the model's end and, to train deep stacks, after every block.

Source: Al-Rfou et al. 2018 (1808.04444), sec. 3: losses at multiple positions, intermediate layers,
multiple targets.
"""

from collections.abc import Iterator

from jaxtyping import Float, Int
from torch import Tensor, nn

from sublayer.config.objectives.causal import CausalObjective
from sublayer.data.batches import Batch
from sublayer.model.body import Hidden
from sublayer.model.context.layout import Layout
from sublayer.model.init import initial_values, initialise
from sublayer.model.kernels.cross_entropy import (
    Smoothing,
    linear_cross_entropy,
    smoothed_cross_entropy,
)
from sublayer.model.layers.embedding import Matrix
from sublayer.model.layers.heads import Classifier
from sublayer.model.layers.norm import build_norm
from sublayer.model.transformer import Transformer
from sublayer.objective.base import Objective

_PREFIX = "objective.classifiers."
"""Before the names of the heads that training alone needs; a model's own names have no prefix."""
_TRAINED = "trained"
"""The term of the model's own head where it is trained otherwise than it is reported."""


class Causal(Objective):
    """Cross-entropy of the next tokens, over all positions whose target counts.

    A term for each executed block that predicts (the last is the model's end) and each token ahead.
    The next token at the model's end, term ``lm``, has the model's own head; every other term has a
    classifier that is not saved with the model.

    Assumptions where the paper is silent: a block's classifiers read its output through a norm
    without parameters, of the model's kind (none where the model ends without one).

    With z-loss, or with positions summed, what is trained of the model's own head is the term
    ``trained``; ``lm``, without weight then, is what is reported, per token. Classifiers, which end
    with the training, have no z-loss.

    With positions summed every trained term is divided by the windows of the batch, not by their
    targets: a window of T targets weighs T times what it weighs in the mean.

    ``config`` None is the objective without auxiliary losses; ``seed`` is that of the classifiers.
    """

    reported = "lm"

    def __init__(
        self, model: Transformer, config: CausalObjective | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(model)
        self.config = config or CausalObjective()
        self._n_layers = model.config.n_layers
        has_auxiliary = self.config.auxiliary == "layers"
        self._layers = range(1, self._n_layers) if has_auxiliary else range(0)
        self._ahead = range(1, self.config.targets + 1)
        classifiers = {}
        for layer in (*self._layers, self._n_layers):
            for ahead in self._ahead:
                term = self._term(layer, ahead)
                if term != self.reported:
                    classifiers[term] = Classifier(model.config)
        self.classifiers = nn.ModuleDict(classifiers)
        initialise(self.classifiers, model.config, seed=seed, prefix=_PREFIX)
        has_norm = bool(self._layers) and model.config.final_norm != "none"
        self._norm = build_norm(
            model.config.norm if has_norm else "none",
            model.config.d_model,
            eps=model.config.norm_eps,
            affine=False,
        )
        self.begin(0, 1)

    def initial_values(self, seed: int) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Generate what every parameter begins with, those of the classifiers last."""
        yield from super().initial_values(seed)
        config = self.model.config
        yield from initial_values(self.classifiers, config, seed=seed, prefix=_PREFIX)

    def begin(self, step: int, steps: int) -> None:
        """Drop the loss of block l of n after l / n of ``auxiliary_stop`` of the run.

        Source: Al-Rfou et al. 2018, sec. 3: the paper drops it after l / (2 n) of training.
        """
        config = self.config
        stop = config.auxiliary_stop * steps
        # Without a division, so that no rounding moves the step at which a block ends.
        self._active = [layer for layer in self._layers if step * self._n_layers < stop * layer]
        n_predicting = len(self._active) + 1
        share = 1.0
        if config.auxiliary_reduction == "mean":
            share = 1.0 / n_predicting
        self.weights = {}
        for layer in (*self._active, self._n_layers):
            for ahead in self._ahead:
                term = self._term(layer, ahead)
                weight = 1.0 if ahead == 1 else config.target_weight
                self.weights[term] = share * weight
        if self._trains_otherwise:
            self.weights[_TRAINED] = self.weights[self.reported]
            self.weights[self.reported] = 0.0

    @property
    def has_unused_parameters(self) -> bool:
        """Whether some terms end before the run does."""
        return len(self._layers) > 0

    @property
    def _trains_otherwise(self) -> bool:
        return self.config.z_loss > 0 or self._sums_positions

    @property
    def _sums_positions(self) -> bool:
        return self.config.position_reduction == "sum"

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the targets of each term that are not ignored; the windows, where they add up."""
        by_ahead = {}
        for ahead, targets in zip(self._ahead, self._targets(batch), strict=True):
            is_counted = targets >= 0
            by_ahead[ahead] = int(is_counted.sum())
        counts = {}
        for layer in (*self._active, self._n_layers):
            for ahead in self._ahead:
                term = self._term(layer, ahead)
                counts[term] = by_ahead[ahead]
        if self._trains_otherwise:
            counts[_TRAINED] = counts[self.reported]
        if self._sums_positions:
            n_windows = len(batch)
            return {term: counts[term] if term == self.reported else n_windows for term in counts}
        return counts

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Sum the nats of the batch's next tokens, for every term of this step."""
        layout = Layout.causal(batch.tokens, document_ids=batch.document_ids, starts=batch.starts)
        hidden = self.model.hidden(batch.tokens, layout, capture=self._active)
        targets = self._targets(batch)
        return dict(self._totals(hidden, targets))

    def _totals(
        self, hidden: Hidden, targets: list[Int[Tensor, "B P"]]
    ) -> Iterator[tuple[str, Tensor]]:
        for layer in (*self._active, self._n_layers):
            is_end = layer == self._n_layers
            states = hidden.final if is_end else self._norm(hidden.captured[layer])
            if self.config.positions == "last":
                states = states[:, -1:]
            for ahead, wanted in zip(self._ahead, targets, strict=True):
                term = self._term(layer, ahead)
                labels = wanted.flatten()
                if term == self.reported:
                    yield from self._own_totals(states, labels, hidden.matrix)
                    continue
                classifier = self.classifiers[term]
                assert isinstance(classifier, Classifier), "a dictionary of classifiers"
                matrix, bias = classifier.weight, classifier.bias
                yield term, linear_cross_entropy(states.flatten(0, 1), matrix, bias, labels)

    def _own_totals(
        self, states: Float[Tensor, "B P D"], labels: Int[Tensor, " N"], of_pass: Matrix | None
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield the terms of the model's own head."""
        matrix, bias = self.model.output_projection(of_pass)
        rows = self.model.to_embedding(states).flatten(0, 1)
        if not self._trains_otherwise:
            yield self.reported, linear_cross_entropy(rows, matrix, bias, labels)
            return
        smoothing = Smoothing(1.0, 0.0, self.config.z_loss)
        trained, nats = smoothed_cross_entropy(rows, matrix, bias, labels, smoothing)
        yield _TRAINED, trained
        yield self.reported, nats

    def _targets(self, batch: Batch) -> list[Int[Tensor, "B P"]]:
        targets = [batch.targets]
        if batch.further is not None:
            targets.extend(batch.further)
        if self.config.positions == "last":
            return [each[:, -1:] for each in targets]
        return targets

    def _term(self, layer: int, ahead: int) -> str:
        is_model_end = layer == self._n_layers
        if is_model_end and ahead == 1:
            return self.reported
        return f"layer{layer}_ahead{ahead}"
