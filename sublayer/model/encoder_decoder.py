"""An encoder reads one text, a decoder that sees all of it and its own past writes another."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from sublayer.config.architecture.stacks import stacks
from sublayer.config.resolved import ResolvedModel
from sublayer.model.body import Body
from sublayer.model.context.cache import Cache
from sublayer.model.context.context import Memory
from sublayer.model.context.layout import Layout
from sublayer.model.layers.stack import Stack
from sublayer.model.output import Output
from sublayer.model.transformer import Transformer


class EncoderDecoder(Transformer):
    """Token ids of a source and of a target in, logits of the target's next tokens out.

    Both have one embedding matrix. Source: Vaswani et al. 2017 (1706.03762), sec. 3.
    """

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__(config)
        encoder, _ = stacks(config)
        self.source = Body(config, encoder)

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
        """Compute the logits of the token after each one of ``target``.

        ``target`` is what the decoder reads: the translation, moved one to the right behind the
        token that it starts with. Masks are True at real tokens, None where all are.

        Raises ConfigError where an input is longer than the positions.
        """
        layout = Layout.causal(target, target_mask)
        # The memory has no name, so that it is free before the logits are made.
        final = self.hidden(target, layout, memory=self.encode(source, mask)).final
        return self.outputs(final, target_mask)

    def encode(
        self,
        source: Int[Tensor, "B S"],
        mask: Bool[Tensor, "B S"] | None = None,
        document_ids: Int[Tensor, "B S"] | None = None,
        reader_ids: Int[Tensor, "B T"] | None = None,
        *,
        starts: Int[Tensor, " N"] | None = None,
        reader_starts: Int[Tensor, " N"] | None = None,
    ) -> Memory:
        """Read a source, for a decoder to look at; ``mask`` is True at real tokens.

        ``document_ids`` keep apart runs of equal ids, and ``reader_ids`` tell which of them each
        token of the decoder looks at. ``starts`` of both say the same for attention without
        padding (``Ragged``).

        Raises ConfigError where the source is longer than the positions.
        """
        layout = Layout.bidirectional(source, mask, document_ids, starts)
        states = self.source.states(self.embedding, source, layout).final
        reading = Layout.reading(source, mask, document_ids, reader_ids, starts, reader_starts)
        return Memory(states, reading)

    def decode(
        self, target: Int[Tensor, "B T"], memory: Memory, cache: Cache
    ) -> Float[Tensor, "B T V"]:
        """Add tokens to a cache and compute the logits of the token after each.

        The cache keeps the memory's keys and values from its first call on: another memory needs
        a cache of its own. ``target`` may have several rows, one after another, for each row of
        the memory.

        Raises ConfigError where the tokens do not fit the cache or the positions.
        """
        cache.check(target.shape[1])
        layout = Layout.causal(target, past=cache.length)
        final = self.hidden(target, layout, memory=memory, cache=cache).final
        cache.advance(target.shape[1], None)
        return self.logits(final)
