"""A decoding step of an LSTM: one token of every row, from the state and to the next."""

from jaxtyping import Float, Int
from torch import Tensor

from sublayer.decode.packed_linear import pack_linear, takes_vectors
from sublayer.decode.unroll import linear
from sublayer.model.build import Decoder
from sublayer.model.cache import Cache
from sublayer.model.context import Layout


class LstmStepper:
    """Read one token of every row, and return the logits of the next.

    The layers are computed as in a forward pass, of one token. The output matrix may be packed,
    which copies it: it serves as long as the model's weights do not change.
    """

    def __init__(self, model: Decoder, n_rows: int) -> None:
        self._model = model
        matrix, bias = model.output_projection()
        self._output = pack_linear(matrix, bias, n_rows)
        projection = model.vocabulary_head.projection
        self._head = None if projection is None else linear(projection, n_rows)
        self._is_vector = takes_vectors(model.embedding.weight, n_rows)

    def __call__(self, tokens: Int[Tensor, " B"], cache: Cache) -> Float[Tensor, "B V"]:
        """Take the step; the states of the cache change."""
        model = self._model
        rows = tokens[:, None]
        states = model.hidden(rows, Layout.causal(rows), cache=cache).final[:, 0]  # [B, D]
        cache.advance(1, None)
        if self._is_vector:
            states = states[0]
        projected = states if self._head is None else self._head(states)
        logits = self._output(model.vocabulary_head.finish(projected))
        return logits[None] if self._is_vector else logits
