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
        the cache's length is then unchanged.
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


class Lstm(Decoder):
    """Token ids in, logits of the token after each one out, as of a decoder.

    Its stack is of ``LstmLayer``; a cache of it holds the state of each layer, which takes the same
    room whatever it has read, and has no end.
    """


class Encoder(Transformer):
    """Token ids in, logits of the token at each position out, and those of a pair of texts.

    Source: Devlin et al. 2019 (1810.04805), sec. 3; Lan et al. 2020 (1909.11942), sec. 3.1.
    """

    text_position = "first"

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Output:
        """Compute the logits of every position, and of each row as a pair where there is a head.

        ``mask`` is True at real tokens, None where all are; results at padding mean
        nothing. ``segments`` is 0 in a pair's first text and 1 in its second; None is 0 everywhere.
        The first token stands for its row where texts are judged.

        Raises ConfigError where the input is longer than the table of positions.
        """
        layout = Layout.bidirectional(tokens, mask)
        final = self.hidden(tokens, layout, segments=segments).final
        return self.outputs(final, mask)


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

        ``target`` is the decoder's input: the translation, moved one to the right behind the
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
        hidden = self.source.states(self.embedding, source, layout)
        reading = Layout.reading(source, mask, document_ids, reader_ids, starts, reader_starts)
        return Memory(hidden.final, reading, hidden.auxiliary)

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


_REMEDY = "make model.d_model, model.n_layers or the vocabulary smaller"
KINDS: dict[str, type[Transformer]] = {
    "decoder": Decoder,
    "encoder": Encoder,
    "encoder-decoder": EncoderDecoder,
    "lstm": Lstm,
}
"""The class of each kind of model, by the name that ``model.kind`` has in a recipe."""


def compose(config: ResolvedModel) -> Transformer:
    """Build the kind of model that a resolved config asks for; its weights are unset.

    They are on PyTorch's default device: on ``meta`` they have shapes and take no memory.
    """
    return KINDS[config.kind](config)


def build(config: ResolvedModel, *, seed: int) -> Transformer:
    """Build a model with initial weights that depend on the resolved config and the seed only.

    PyTorch's global generator is neither read nor changed. The model is in training mode.

    Raises ConfigError where this machine cannot hold it.
    """
    with torch.device("meta"):
        n_parameters = sum(parameter.numel() for parameter in compose(config).parameters())
    check_memory(FLOAT32_BYTES * n_parameters, "the model", _REMEDY)
    with allocating("the model", _REMEDY):
        model = compose(config)
        initialise(model, config, seed=seed)
    return model
