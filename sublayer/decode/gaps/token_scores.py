"""The log-probability of each token that a decoder wrote for a source."""

import torch
from jaxtyping import Float
from torch import Tensor

from sublayer.model.build import EncoderDecoder
from sublayer.model.context import Layout
from sublayer.model.kernels.cross_entropy import nats_of_targets


class TokenScores:
    """Compute the log-probability of each token that was written for one source.

    One pass over what is written, so that the search itself keeps no probabilities of tokens.
    """

    def __init__(self, model: EncoderDecoder, source: list[int], first_id: int) -> None:
        self._model = model
        self._first_id = first_id
        self._memory = model.encode(self._row(source))

    def log_p(self, written: list[int]) -> list[float]:
        """Compute the log-probability of each token, in nats, given those before it."""
        target = self._row([self._first_id, *written[:-1]])
        final = self._model.hidden(target, Layout.causal(target), memory=self._memory).final
        embedded: Float[Tensor, "T E"] = self._model.to_embedding(final)[0]
        matrix, bias = self._model.output_projection()
        nats = nats_of_targets(embedded, matrix, bias, self._row(written)[0]).each
        return (-nats.double()).tolist()

    def _row(self, ids: list[int]) -> Tensor:
        return torch.tensor([ids], device=self._model.embedding.weight.device)
