"""Targets of encoder-decoders: loss per token, and random targets."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sublayer.config.objective import Lengths
from sublayer.data.arrays import Ints
from sublayer.data.batches import PackedBatch, pairs_in_rows
from sublayer.model.context import Layout
from sublayer.model.kernels.cross_entropy import Smoothing, nats_of_targets
from sublayer.model.transformer import EncoderDecoder, Hidden, Transformer
from sublayer.objective.base import Objective, Synthetic


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
