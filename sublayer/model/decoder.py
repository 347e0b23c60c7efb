"""A decoder: each token sees what is before it, and predicts the next."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from sublayer.model.context.cache import Cache
from sublayer.model.context.layout import Layout
from sublayer.model.output import Output
from sublayer.model.transformer import Transformer


class Decoder(Transformer):
    """Token ids in, logits of the token after each one out."""

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        *,
        cache: Cache | None = None,
    ) -> Output:
        """Compute the logits of the token after each one.

        ``mask`` is True at real tokens; None where all are. With a ``cache`` the tokens stand
        behind those of earlier calls and are added to it, padding too, which takes room in it.

        Raises ConfigError where the input is longer than the cache or than the table of positions;
        the cache's length is then what it was.
        """
        if cache is None:
            hidden = self.hidden(tokens, Layout.causal(tokens, mask))
            return self.outputs(hidden.final, mask, hidden.matrix)
        cache.check(tokens.shape[1])
        layout = Layout.causal(tokens, mask, past=cache.n_past, past_mask=cache.past_mask)
        hidden = self.hidden(tokens, layout, cache=cache)
        cache.advance(tokens.shape[1], mask)
        return self.outputs(hidden.final, mask, hidden.matrix)

    def last_logits(self, tokens: Int[Tensor, "B T"], cache: Cache) -> Float[Tensor, "B V"]:
        """Add tokens to a cache and compute the logits of the token after the last alone.

        All tokens are real, those of the cache included. Raises ConfigError as ``forward`` does.
        """
        cache.check(tokens.shape[1])
        layout = Layout.causal(tokens, past=cache.n_past)
        final = self.hidden(tokens, layout, cache=cache).final
        cache.advance(tokens.shape[1], None)
        return self.logits(final[:, -1])
