"""A decoder: each token sees what is before it, and predicts the next."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from sublayer.model.cache import Cache
from sublayer.model.layout import Layout
from sublayer.model.transformer import Output, Transformer


class Decoder(Transformer):
    """Token ids in, logits of the token after each one out."""

    def forward(
        self, tokens: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None = None, *, cache: Cache | None = None
    ) -> Output:
        """Compute the logits of the token after each one.

        ``mask`` is True at real tokens. With a ``cache`` the tokens stand behind those of earlier calls and are added
        to it. Raises ConfigError where the input is longer than the cache or than the table of positions.
        """
        if cache is None:
            return Output(self.logits(self.hidden(tokens, Layout.causal(tokens, mask)).final))
        cache.check(tokens.shape[1])
        layout = Layout.causal(tokens, mask, past=cache.length, past_mask=cache.past_mask)
        final = self.hidden(tokens, layout, cache=cache).final
        cache.advance(tokens.shape[1], mask)
        return Output(self.logits(final))

    def last_logits(self, tokens: Int[Tensor, "B T"], cache: Cache) -> Float[Tensor, "B V"]:
        """Add tokens to a cache and compute the logits of the token after the last alone."""
        cache.check(tokens.shape[1])
        final = self.hidden(tokens, Layout.causal(tokens, past=cache.length), cache=cache).final
        cache.advance(tokens.shape[1], None)
        return self.logits(final[:, -1])
