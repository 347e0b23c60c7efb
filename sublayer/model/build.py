"""Decoders, encoders, encoder-decoders and LSTMs, built from a config, with initial weights."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import stacks
from sublayer.model.body import Body
from sublayer.model.cache import Cache
from sublayer.model.context import Layout, Memory
from sublayer.model.init import initialise
from sublayer.model.layers.stack import Stack
from sublayer.model.micro_batch import FLOAT32_BYTES
from sublayer.model.output import Output
from sublayer.model.transformer import Transformer
from sublayer.system.memory import allocating, check_memory


class Decoder(Transformer):
    """Token ids in, next-token logits out."""

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        *,
        cache: Cache | None = None,
    ) -> Output:
        """Compute the next-token logits at every position.

        ``mask`` is True at real tokens; None without padding. With a ``cache`` the tokens follow
        earlier calls' and are appended, padding included, which takes room.

        Raises ConfigError where the input exceeds the cache or the position table; the cache's
        length is then unchanged.
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
        """Append tokens to a cache; compute only the logits after the last one.

        All tokens, the cache's included, are real. Raises ConfigError as ``forward`` does.
        """
        cache.check(tokens.shape[1])
        layout = Layout.causal(tokens, past=cache.n_past)
        final = self.hidden(tokens, layout, cache=cache).final
        cache.advance(tokens.shape[1], None)
        return self.logits(final[:, -1])


class Lstm(Decoder):
    """Token ids in, next-token logits out, as of a decoder.

    Its stack consists of ``LstmLayer``; its cache holds the layers' states, of constant size and
    without a maximum length.
    """


class Encoder(Transformer):
    """Token ids in, logits of the token at each position and of a text pair out.

    Source: Devlin et al. 2019 (1810.04805), sec. 3; Lan et al. 2020 (1909.11942), sec. 3.1.
    """

    text_position = "first"

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Output:
        """Compute the logits of every position, and of each row as a pair with a sentence head.

        ``mask`` is True at real tokens, None without padding; results at padding are meaningless.
        ``segments`` is 0 in a pair's first text and 1 in its second; None is 0 everywhere. Sentence
        heads read the first token.

        Raises ConfigError where the input exceeds the position table.
        """
        layout = Layout.bidirectional(tokens, mask)
        final = self.hidden(tokens, layout, segments=segments).final
        return self.outputs(final, mask)


class EncoderDecoder(Transformer):
    """Token ids of source and target in, next-token logits of the target out.

    Both sides share one embedding matrix. Source: Vaswani et al. 2017 (1706.03762), sec. 3.
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
        """Compute the next-token logits at every position of ``target``.

        ``target`` is the decoder's input: the start token, then the translation, shifted right by
        one. Masks are True at real tokens, None without padding.

        Raises ConfigError where an input exceeds the positions.
        """
        layout = Layout.causal(target, target_mask)
        # The memory is unnamed, so that it is freed before the logits are computed.
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
        """Encode a source into a decoder's memory; ``mask`` is True at real tokens.

        ``document_ids`` separates runs of equal ids, and ``reader_ids`` maps the decoder's tokens
        to them. Both ``starts`` encode the same for attention without padding (``Ragged``).

        Raises ConfigError where the source exceeds the positions.
        """
        layout = Layout.bidirectional(source, mask, document_ids, starts)
        hidden = self.source.states(self.embedding, source, layout)
        reading = Layout.reading(source, mask, document_ids, reader_ids, starts, reader_starts)
        return Memory(hidden.final, reading, hidden.auxiliary)

    def decode(
        self, target: Int[Tensor, "B T"], memory: Memory, cache: Cache
    ) -> Float[Tensor, "B T V"]:
        """Append tokens to a cache; compute their next-token logits.

        The cache keeps the memory's keys and values from its first call on: another memory needs
        another cache. ``target`` may have several consecutive rows per row of the memory.

        Raises ConfigError where the tokens do not fit the cache or the positions.
        """
        cache.check(target.shape[1])
        layout = Layout.causal(target, past=cache.length)
        final = self.hidden(target, layout, memory=memory, cache=cache).final
        cache.advance(target.shape[1], None)
        return self.logits(final)


_REMEDY = "make model.d_model, model.n_layers or the vocabulary smaller"
KINDS: dict[str, type[Transformer]] = {
    "decoder": Decoder,
    "encoder": Encoder,
    "encoder-decoder": EncoderDecoder,
    "lstm": Lstm,
}
"""The class of each kind of model, by the name that ``model.kind`` has in a recipe."""


def compose(config: ResolvedModel) -> Transformer:
    """Build the model of a resolved config, with unset weights.

    Weights are on PyTorch's default device; on ``meta`` they take no memory.
    """
    return KINDS[config.kind](config)


def build(config: ResolvedModel, *, seed: int) -> Transformer:
    """Build a model with initial weights that depend only on resolved config and seed.

    PyTorch's global generator is neither read nor changed. The model is in training mode.

    Raises ConfigError where it does not fit in memory.
    """
    with torch.device("meta"):
        n_parameters = sum(parameter.numel() for parameter in compose(config).parameters())
    check_memory(FLOAT32_BYTES * n_parameters, "the model", _REMEDY)
    with allocating("the model", _REMEDY):
        model = compose(config)
        initialise(model, config, seed=seed)
    return model
