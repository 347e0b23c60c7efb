"""Predict a translation token by token, from its source and what was written so far.

Source: Vaswani et al. 2017 (1706.03762); label smoothing: Szegedy et al. 2016 (1512.00567), sec. 7.
"""

from torch import Tensor

from sublayer.config.objective import TranslationObjective
from sublayer.data.translation_batches import TranslationBatch
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.layout import Layout
from sublayer.model.loss import Smoothing, linear_cross_entropy, smoothed_cross_entropy
from sublayer.model.transformer import Transformer
from sublayer.objective.terms import Objective


class Translation(Objective):
    """Cross-entropy of the target's tokens, its end included: a mean over all of them in the global batch.

    With label smoothing what is trained is the term ``smoothed``; ``nll``, without weight then, is what is reported.
    """

    reported = "nll"

    def __init__(self, model: Transformer, config: TranslationObjective) -> None:
        super().__init__(model)
        assert isinstance(model, EncoderDecoder), "translation trains encoder-decoders"
        self._model = model
        vocab_size = model.config.vocab_size
        assert vocab_size is not None, "the config is resolved"
        self._smoothing = smoothing_of(config, vocab_size)
        self.weights = {"nll": 1.0} if self._smoothing is None else {"smoothed": 1.0, "nll": 0.0}

    def counts(self, batch: TranslationBatch) -> dict[str, int]:
        """Count the target's tokens."""
        return dict.fromkeys(self.weights, batch.n_targets)

    def forward(self, batch: TranslationBatch) -> dict[str, Tensor]:
        """Sum the nats of the target's tokens."""
        model = self._model
        memory = model.encode(batch.source, batch.source_mask)
        # What stands behind a target's end is seen by nothing that counts.
        states = model.hidden(batch.target, Layout.causal(batch.target), memory=memory).final
        matrix, bias = model.output_projection()
        embedded, labels = model.to_embedding(states).flatten(0, 1), batch.labels.flatten()
        if self._smoothing is None:
            return {"nll": linear_cross_entropy(embedded, matrix, bias, labels)}
        smoothed, nats = smoothed_cross_entropy(embedded, matrix, bias, labels, self._smoothing)
        return {"smoothed": smoothed, "nll": nats}


def smoothing_of(config: TranslationObjective, vocab_size: int) -> Smoothing | None:
    """Give the weights of a smoothed loss; None where it is not smoothed.

    uniform: a share ``e`` goes to every entry of the vocabulary alike, the target's own among them (fairseq of 2019,
    with which Macaron Net was trained; Szegedy et al.). others: ``e`` goes to the others (fairseq since).
    """
    share = config.label_smoothing
    if share == 0.0:
        return None
    if config.smoothing == "uniform":
        return Smoothing(1.0 - share, share / vocab_size)
    each = share / (vocab_size - 1)
    return Smoothing(1.0 - share - each, each)
