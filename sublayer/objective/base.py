"""Interface of objectives to the training loop, and the loss of encoder-decoders' targets."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from sublayer.config.objective import Lengths
from sublayer.data.arrays import Ints
from sublayer.data.batches import AnyBatch, PackedBatch, pairs_in_rows
from sublayer.model.context import Layout
from sublayer.model.kernels.cross_entropy import (
    Smoothing,
    linear_cross_entropy,
    nats_of_targets,
    smoothed_cross_entropy,
)
from sublayer.model.layers import Matrix
from sublayer.model.parameters import initial_values, named_parameters, zero_padding
from sublayer.model.transformer import EncoderDecoder, Hidden, Transformer

AUXILIARY = "auxiliary"
"""The term of the auxiliary losses of the model's sub-layers, a mean over sequences."""


class Objective(nn.Module, ABC):
    """A model and the terms of its loss.

    The loss of an optimizer step is the sum over terms of ``weights[term] * total / count``, where
    totals (nats) and counts are summed over all micro-batches and processes. ``counts`` needs only
    the batch, so the loop knows every denominator before the first forward pass, and accumulating
    over ragged micro-batches equals the large batch.
    """

    weights: Mapping[str, float]
    """The terms of the next forward pass, and the factor of each; 0: computed, but not trained."""
    pad_id: int | None = None
    """The id of padding, whose embedding starts at zero where the config asks for that; None where
    no tokenizer is known."""
    reported: ClassVar[str]
    """The term whose mean is shown and recorded as the loss of training, in nats."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def begin(self, step: int, steps: int) -> None:
        """Set the terms and weights of step ``step`` (0-based) of ``steps``; usually constant.

        Called before ``counts`` and ``forward`` of the step.
        """

    @property
    def has_unused_parameters(self) -> bool:
        """True where some terms end before the run, leaving parameters without gradients."""
        return False

    @abstractmethod
    def counts(self, batch: Any) -> dict[str, int]:
        """Count the tokens, or text pairs, in the mean of each term of ``weights``."""

    @abstractmethod
    def forward(self, batch: Any) -> dict[str, Tensor]:
        """Compute each term's total in nats, a scalar each, of the terms of ``all_weights``."""

    def all_weights(self) -> dict[str, float]:
        """Return ``weights``, with the weight of sub-layers' auxiliary losses."""
        return {**self.weights, **({AUXILIARY: 1.0} if self.model.has_auxiliary else {})}

    def all_counts(self, batch: AnyBatch) -> dict[str, int]:
        """Return ``counts``, with the number of sequences for auxiliary losses."""
        auxiliary = {AUXILIARY: batch.n_sequences} if self.model.has_auxiliary else {}
        return {**self.counts(batch), **auxiliary}

    @staticmethod
    def auxiliary_totals(
        auxiliary: Float[Tensor, ""] | None, weights: Float[Tensor, " N"] | None = None
    ) -> dict[str, Tensor]:
        """Return the term of auxiliary losses, from their sum in ``Hidden``.

        With the ``weights`` of examples it is 0 where no example counts.
        """
        if auxiliary is None:
            return {}
        return {AUXILIARY: auxiliary if weights is None else auxiliary * (weights.max() > 0)}

    def token_totals(
        self,
        embedded: Float[Tensor, "N E"],
        labels: Int[Tensor, " N"],
        smoothing: Smoothing | None,
        of_pass: Matrix | None = None,
    ) -> dict[str, Tensor]:
        """Sum the nats of tokens under the model's head: the term ``reported``.

        With smoothing or z-loss the trained term is ``trained``; the reported one has no weight.
        ``of_pass``: the pass's embedding matrix, with its dropout.
        """
        matrix, bias = self.model.output_projection(of_pass)
        if smoothing is None:
            return {self.reported: linear_cross_entropy(embedded, matrix, bias, labels)}
        trained, nats = smoothed_cross_entropy(embedded, matrix, bias, labels, smoothing)
        return {"trained": trained, self.reported: nats}

    def initial_values(self, seed: int) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Generate the initial values of all parameters, unsharded, on the CPU, one at a time."""
        model = self.model
        for parameter, value in initial_values(model, model.config, seed=seed):
            is_embedding = parameter is model.embedding.weight
            if is_embedding and model.config.zero_padding and self.pad_id is not None:
                zero_padding(value, self.pad_id)
            yield parameter, value

    def training_only(self) -> dict[str, nn.Parameter]:
        """Return the training-only parameters, by name."""
        parameters = named_parameters(self)
        return {name: value for name, value in parameters if not name.startswith("model.")}


@dataclass(frozen=True)
class Synthetic(ABC):
    """Batches of random tokens, with the step time of a recipe's batches."""

    lengths_vary: ClassVar[bool] = False

    vocab_size: int
    n_rows: int

    @abstractmethod
    def draw(self, generator: np.random.Generator, n_rows: int) -> PackedBatch:
        """Draw a batch of ``n_rows`` rows."""

    @abstractmethod
    def n_tokens(self, step: int) -> int:
        """Count the tokens of a batch."""

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """Draw a process's share of the batch of a step, at least one row."""
        n_own = max(1, len(range(rank, self.n_rows, world)))
        return self.draw(np.random.Generator(np.random.Philox(step)), n_own)

    def notes(self) -> list[str]:
        """Nothing is left out."""
        return []


class TargetLoss(Objective):
    """Cross-entropy of the target's tokens, its end included, averaged over the global batch.

    With label smoothing or z-loss the trained term is ``trained``; ``nll``, then without weight, is
    reported. ``smoothing`` is None where only nats are trained.
    """

    reported = "nll"

    def __init__(self, model: Transformer, smoothing: Smoothing | None = None) -> None:
        super().__init__(model)
        assert isinstance(model, EncoderDecoder), "only an encoder-decoder writes targets"
        self._model = model
        self._smoothing = smoothing
        if smoothing is None:
            self.weights = {"nll": 1.0}
        else:
            self.weights = {"trained": 1.0, "nll": 0.0}

    def counts(self, batch: PackedBatch) -> dict[str, int]:
        """Count the target's tokens, its end included."""
        return dict.fromkeys(self.weights, batch.n_predicted)

    def forward(self, batch: PackedBatch) -> dict[str, Tensor]:
        """Sum the nats of the target's tokens, under teacher forcing."""
        assert batch.targets is not None, "targets are predicted"
        hidden = target_hidden(self._model, batch)
        embedded = self._model.to_embedding(hidden.final).flatten(0, 1)
        totals = self.token_totals(embedded, batch.targets.flatten(), self._smoothing)
        return totals | self.auxiliary_totals(hidden.auxiliary, batch.weights)


def target_hidden(model: EncoderDecoder, batch: PackedBatch) -> Hidden:
    """Compute the states that predict targets, without attention across examples."""
    read, written = batch.read, batch.written
    assert written is not None, "a decoder writes"
    reader_ids = None if read.document_ids is None else written.sequence_ids
    memory = model.encode(
        read.tokens,
        read.mask,
        read.document_ids,
        reader_ids,
        starts=read.starts,
        reader_starts=written.starts,
    )
    # Positions after a target's end affect only auxiliary losses.
    mask = written.mask if model.has_auxiliary else None
    layout = Layout.causal(written.tokens, mask, written.document_ids, starts=written.starts)
    return model.hidden(written.tokens, layout, memory=memory)


class TargetNats(NamedTuple):
    """Nats and tokens of each target, its end included, ``[N]``."""

    nats: NDArray[np.float64]
    tokens: NDArray[np.int64]


def nats_of_rows(model: EncoderDecoder, batch: PackedBatch) -> TargetNats:
    """Compute the nats of each row's target, its end included, and count its tokens."""
    assert batch.targets is not None, "targets are predicted"
    matrix, bias = model.output_projection()
    embedded = model.to_embedding(target_hidden(model, batch).final).flatten(0, 1)
    by_token = nats_of_targets(embedded, matrix, bias, batch.targets.flatten()).each
    nats = by_token.view(len(batch), -1).sum(1, dtype=torch.float64)
    return TargetNats(nats.cpu().numpy(), (batch.targets >= 0).sum(1).cpu().numpy())


@dataclass(frozen=True)
class SyntheticTargets(Synthetic):
    """Batches of random texts and targets of ``lengths``, without padding."""

    lengths: Lengths

    def draw(self, generator: np.random.Generator, n_rows: int) -> PackedBatch:
        """Draw a batch of so many rows."""

        def texts(length: int) -> list[Ints]:
            return [generator.integers(self.vocab_size, size=length) for _ in range(n_rows)]

        sources, targets = texts(self.lengths.read), texts(self.lengths.written)
        return pairs_in_rows(sources, targets, pad_id=0, first_id=0)

    def n_tokens(self, step: int) -> int:
        """Count the target's tokens of a batch."""
        return self.n_rows * self.lengths.written
