"""An LSTM: each token sees what is before it by the state, and predicts the next."""

from sublayer.model.decoder import Decoder


class Lstm(Decoder):
    """Token ids in, logits of the token after each one out, as of a decoder.

    Its stack is of ``LstmLayer``; a cache of it holds the state of each layer, which takes the same
    room whatever it has read, and has no end.
    """
