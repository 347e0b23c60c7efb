"""An encoder reads one text, a decoder writes another: each token sees what is before it, and all of the first."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import stacks
from sublayer.model.cache import Cache
from sublayer.model.context import Memory
from sublayer.model.layout import Layout
from sublayer.model.stack import Stack
from sublayer.model.transformer import Body, Output, Transformer


class EncoderDecoder(Transformer):
    """Token ids of a source and of a target in, logits of the target's next tokens out; one token table for both.

    Source: Vaswani et al. 2017 (1706.03762), sec. 3.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.source = Body(config, stacks(config)[0])

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The encoder's and the decoder's blocks."""
        return self.source.stack, self.stack

    def forward(
        self,
        source: Int[Tensor, "B S"],
        mask: Bool[Tensor, "B S"] | None = None,
        *,
        target: Int[Tensor, "B T"],
        target_mask: Bool[Tensor, "B T"] | None = None,
    ) -> Output:
        """Compute the logits of the token after each one of ``target``, which is what the decoder reads.

        Masks are True at real tokens. Raises ConfigError where an input is longer than the positions.
        """
        layout = Layout.causal(target, target_mask)
        return Output(self.logits(self.hidden(target, layout, memory=self.encode(source, mask)).final))

    def encode(self, source: Int[Tensor, "B S"], mask: Bool[Tensor, "B S"] | None = None) -> Memory:
        """Read a source, for a decoder to look at; ``mask`` is True at real tokens."""
        states = self.source.states(self.embedding, source, Layout.bidirectional(source, mask)).final
        return Memory(states, Layout.reading(source, mask))

    def decode(self, target: Int[Tensor, "B T"], memory: Memory, cache: Cache) -> Float[Tensor, "B T V"]:
        """Add tokens to a cache and compute the logits of the token after each."""
        cache.check(target.shape[1])
        layout = Layout.causal(target, past=cache.length)
        final = self.hidden(target, layout, memory=memory, cache=cache).final
        cache.advance(target.shape[1], None)
        return self.logits(final)
