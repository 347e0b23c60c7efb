"""Transformers: embedding, body of blocks, heads; decoders, encoders, encoder-decoders, LSTMs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import HEADS, StackShape, asked_heads, embedding_width, entries, stacks
from sublayer.errors import ConfigError
from sublayer.model.blocks import FUNCTIONS, Stack, add_losses
from sublayer.model.cache import Cache
from sublayer.model.context import Context, Keys, Layout, Memory, Queries
from sublayer.model.estimates import FLOAT32_BYTES
from sublayer.model.heads import (
    Head,
    JointSpanHead,
    LabelHead,
    Pooler,
    SentenceHead,
    SpanHead,
    VocabularyHead,
)
from sublayer.model.kernels.attention import hide
from sublayer.model.kernels.elementwise import dropout, is_eager_cpu
from sublayer.model.layers import Matrix, SegmentTable, TokenEmbedding, build_norm, load_class
from sublayer.model.parameters import from_persistent, initialise, to_persistent
from sublayer.model.positions import build_positions
from sublayer.system.machine import allocating, check_memory


class Output(dict[str, Tensor]):
    """Outputs of a model's heads, by name; logits are unnormalised log-probabilities.

    Includes the pooled vector of each text ``[B, D]``, as ``output["pooler"]``.
    """

    @property
    def logits(self) -> Float[Tensor, "B T V"]:
        """Vocabulary logits: of the next token in a decoder, of each position in an encoder."""
        return self["vocabulary"]

    @property
    def sentence_logits(self) -> Float[Tensor, "B C"] | None:
        """Logits of "not consecutive" for text pairs; None without a sentence head.

        With two classes the second; with one, a positive logit.
        """
        return self.get("sentence")


@dataclass(frozen=True)
class Hidden:
    """Hidden states: after the final norm (with dropout in training), and after captured blocks."""

    final: Float[Tensor, "B Q D"]
    captured: dict[int, Tensor]
    """``[B, T, D]`` each, by the number of blocks that were executed before."""
    matrix: Matrix | None = None
    """The embedding matrix of this pass, of which heads that are tied to it read the same."""
    auxiliary: Float[Tensor, ""] | None = None
    """The auxiliary losses of sub-layers, summed over sequences, those of the memory included."""


class Body(nn.Module):
    """The body: from token vectors to hidden states.

    These are positions, segments, a norm, the stack and the final norm. The stack is named after
    its shape, ``decoder`` or ``encoder``.
    """

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__()
        self.shape = shape
        self.segment_table = None if config.segments == "none" else SegmentTable(config)
        self.positions = build_positions(config, shape)
        self.embedding_norm = build_norm(
            config.norm if config.embedding_norm else "none",
            embedding_width(config),
            eps=config.norm_eps,
            affine=True,
        )
        # Saved weights are named after the shape: a decoder's begin with ``decoder.``.
        self.add_module(shape.name, Stack(config, shape))
        self.final_norm = build_norm(
            "none" if config.final_norm == "none" else config.norm,
            config.d_model,
            eps=config.norm_eps,
            affine=config.final_norm == "affine",
        )
        drops_sum = config.dropout_embedding_of == "sum"
        self.p_embedding = config.dropout_embedding if drops_sum else 0.0
        self.p_final = config.dropout_final

    @property
    def stack(self) -> Stack:
        """The blocks."""
        stack = getattr(self, self.shape.name)
        assert isinstance(stack, Stack), "every body has its stack"
        return stack

    def enter(
        self,
        embedding: TokenEmbedding,
        tokens: Int[Tensor, "B T"],
        positions: Int[Tensor, "*B T"],
        segments: Int[Tensor, "B T"] | None = None,
        matrix: Matrix | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Compute the first block's input.

        The sum of token, position and segment embeddings, with norm, dropout and projection as
        configured. One axis of ``positions`` serves all rows. Without ``segments``, 0 and 1, all
        tokens belong to a pair's first text. ``matrix`` replaces the tables of tokens and
        positions.
        """
        if matrix is None:
            x = self.positions.add(embedding(tokens), 0, positions)
        else:
            x = embedding(tokens, matrix.tokens) + F.embedding(positions, matrix.positions)
        if self.segment_table is not None:
            if segments is None:
                segments = tokens.new_zeros(tokens.shape)
            x = x + self.segment_table(segments)
        x = self.embedding_norm(x)
        x = dropout(x, self.p_embedding, self.training)
        return embedding.project_sum(x)

    def context(self, layout: Layout, dtype: torch.dtype, memory: Memory | None = None) -> Context:
        """Compute the contribution of a batch's positions to the attentions of all blocks.

        ``dtype`` is the residual stream's. ``memory`` is passed on. For fused kernels the attention
        bias contains the layout's mask, which is then removed from the layout.
        """
        rotations = self.positions.rotations(layout.positions, dtype)
        if not self.positions.biases_scores:
            return Context(layout, rotations, memory=memory)
        bias = self.positions.score_bias(layout.positions, layout.key_positions, dtype)
        assert bias is not None, "a scheme biases scores where its row says so"
        if bias.shape[2] > 1 and is_eager_cpu(bias):
            return Context(layout, rotations, bias, memory=memory)
        # Fused kernels save the bias they read: masked and in their dtype, it is one tensor for all
        # blocks.
        device = bias.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        bias = hide(bias, layout.keys).to(dtype)
        layout = replace(layout, keys=Keys(False, None))
        return Context(layout, rotations, bias, memory=memory)

    def states(
        self,
        embedding: TokenEmbedding,
        tokens: Int[Tensor, "B T"],
        layout: Layout,
        *,
        segments: Int[Tensor, "B T"] | None = None,
        memory: Memory | None = None,
        cache: Cache | None = None,
        capture: Sequence[int] = (),
        queries: Queries | None = None,
        matrix: Matrix | None = None,
    ) -> Hidden:
        """Compute hidden states; with ``queries`` the final ones only at these positions.

        ``capture`` requests the residual stream after so many blocks (0: before all).
        Cross-attention reads ``memory``; keys and values are appended to ``cache``, whose length
        the caller advances. ``matrix`` as in ``enter``.

        Raises ConfigError where the input exceeds the positions.
        """
        self.positions.check(layout)
        x = self.enter(embedding, tokens, layout.positions, segments, matrix)
        context = self.context(layout, x.dtype, memory)
        passed, captured = self.stack(x, context, self.positions, cache, capture, queries)
        x, auxiliary = passed
        if memory is not None:
            auxiliary = add_losses(memory.auxiliary, auxiliary)
        final = dropout(self.final_norm(x), self.p_final, self.training)
        return Hidden(final, captured, matrix, auxiliary)


class Transformer(Body):
    """Common base of all kinds of models, composed by config.

    The config is resolved; weights start unset. ``build`` builds the config's kind.
    Heads are attributes, named by the prefix of their saved tensors; None for those not configured.
    """

    text_position: ClassVar[Literal["first", "last"]] = "last"
    """The token whose hidden state represents the text: one that sees all of it."""
    head: VocabularyHead | None
    pooler: Pooler | None
    sentence_head: SentenceHead | None
    label_head: LabelHead | None
    span_head: SpanHead | None
    joint_span_head: JointSpanHead | None

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__(config, stacks(config)[-1])
        self.config = config
        functions = [FUNCTIONS.get(entry.name) for entry in entries(config)]
        self.has_auxiliary = any(
            getattr(function, "has_auxiliary", False) for function in functions
        )
        """True where sub-layers say of themselves that they have losses of their own."""
        self.embedding = TokenEmbedding(config)
        head_names = asked_heads(config)
        for name, row in HEADS.items():
            head = load_class(row.implementation)(config) if name in head_names else None
            self.register_module(row.attribute, head)
        self.register_state_dict_post_hook(to_persistent)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(from_persistent)  # type: ignore[no-untyped-call]

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """All stacks of the model, the output's last."""
        return (self.stack,)

    @property
    def heads(self) -> dict[str, Head]:
        """Configured heads, by name, in order of computation."""
        by_name: dict[str, Head] = {}
        for name, row in HEADS.items():
            head = getattr(self, row.attribute)
            if head is not None:
                by_name[name] = cast(Head, head)
        return by_name

    def embedding_parameters(self) -> Iterator[nn.Parameter]:
        """Generate the parameters before the first block, of every stack.

        Tables of tokens, segments and added positions, and the map and norm after them. A tied
        output matrix is the token table.
        """
        yield from self.embedding.parameters()
        for body in self.modules():
            if isinstance(body, Body):
                for part in (
                    body.segment_table,
                    body.embedding_norm,
                    body.positions.table_before(0),
                ):
                    if part is not None:
                        yield from part.parameters()

    def block_parameters(self, layer: int) -> Iterator[nn.Parameter]:
        """Generate the parameters of an executed block of the last stack, with its positions.

        Layers count from 0. Shared parameters belong to all their blocks.
        """
        for sublayer in self.stack.block(layer):
            yield from sublayer.parameters()
        table = self.positions.table_before(layer)
        if layer > 0 and table is not None:
            yield from table.parameters()

    def embed_tokens(
        self,
        tokens: Int[Tensor, "B T"],
        positions: Int[Tensor, "*B T"],
    ) -> Float[Tensor, "B T D"]:
        """Compute the first block's input, as ``enter`` does, from the embedding matrix."""
        return self.enter(self.embedding, tokens, positions, matrix=self.drop_matrix())

    def drop_matrix(self) -> Matrix | None:
        """Draw the embedding matrix of one training pass, with dropout; otherwise None.

        None also where dropout acts on the sum of embeddings. Source: Radford et al. 2018, as
        released: lookups and a tied head's products share one dropout mask.
        """
        p = self.config.dropout_embedding
        if self.config.dropout_embedding_of == "sum" or not self.training or p == 0.0:
            return None
        positions = self.positions.input_table
        assert positions is not None, "they are learned"
        return Matrix(
            dropout(self.embedding.weight, p, self.training), dropout(positions, p, self.training)
        )

    def hidden(
        self,
        tokens: Int[Tensor, "B T"],
        layout: Layout,
        *,
        segments: Int[Tensor, "B T"] | None = None,
        memory: Memory | None = None,
        cache: Cache | None = None,
        capture: Sequence[int] = (),
        queries: Queries | None = None,
    ) -> Hidden:
        """Compute hidden states from the model's embedding matrix, as ``states`` does."""
        return self.states(
            self.embedding,
            tokens,
            layout,
            segments=segments,
            memory=memory,
            cache=cache,
            capture=capture,
            queries=queries,
            matrix=self.drop_matrix(),
        )

    def outputs(
        self,
        final: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "B T"] | None = None,
        matrix: Matrix | None = None,
    ) -> Output:
        """Compute every head's output from final hidden states; ``mask`` is True at real tokens.

        A head reads the states of all positions, the text's state, or its pooled vector. ``matrix``
        is the pass's.
        """
        output = Output()
        table = self.embedding.weight if self.head is None else self.output_table(matrix)
        for name, head in self.heads.items():
            reads = HEADS[name].reads
            states = final
            if reads != "positions":
                states = self.text_states(final, mask)
            if reads == "pooled":
                states = output.get("pooler", states)
            output[name] = head(states, table)
        return output

    def text_states(
        self, final: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B D"]:
        """Select the hidden state of each text: the first, or the last real one.

        ``mask`` is True at real tokens, None without padding; an empty row gives its first.
        """
        if self.text_position == "first":
            return final[:, 0]
        if mask is None:
            return final[:, -1]
        indices = torch.arange(mask.shape[1], device=mask.device)
        last = (indices * mask).amax(1)  # [B]
        rows = torch.arange(len(last), device=mask.device)
        return final[rows, last]

    def pool(self, text: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Compute the vector of each text from its hidden state.

        Without a pooler, the state itself.
        """
        if self.pooler is None:
            return text
        pooled: Tensor = self.pooler(text)
        return pooled

    def sentence_logits(self, text: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows C"]:
        """Classify text pairs by their hidden states, pooled here.

        Requires a sentence head.
        """
        assert self.sentence_head is not None, "the config asks for no sentence head"
        logits: Tensor = self.sentence_head(self.pool(text))
        return logits

    def label_logits(self, text: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows L"]:
        """Answer a task by the texts' hidden states, pooled here.

        Requires a label head.
        """
        assert self.label_head is not None, "the config asks for no label head"
        logits: Tensor = self.label_head(self.pool(text))
        return logits

    @property
    def vocabulary_head(self) -> VocabularyHead:
        """The vocabulary head. Raises ConfigError where the model has none."""
        if self.head is None:
            remedy = "it answers a task; name the model that it was fine-tuned from"
            if not self.heads.keys() - {"pooler", "sentence"}:
                remedy = "it came without such a head; fine-tune it on a task (sublayer finetune)"
            raise ConfigError(f"this model predicts no tokens (model.head = none): {remedy}")
        return self.head

    def logits(self, hidden: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Compute the logits of tokens, without positions, from hidden states."""
        logits: Tensor = self.vocabulary_head(hidden, self.embedding.weight)
        return logits

    def output_table(self, matrix: Matrix | None = None) -> Float[Tensor, "C E"]:
        """Return the tied output matrix: token rows, then position rows.

        Position rows exist where the softmax is over all. ``matrix`` is a pass's.
        """
        tokens = self.embedding.weight if matrix is None else matrix.tokens
        if self.config.softmax == "tokens":
            return tokens
        positions = self.positions.input_table if matrix is None else matrix.positions
        assert positions is not None, "they are learned"
        return torch.cat([tokens, positions])

    def to_embedding(self, hidden: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows E"]:
        """Map hidden states to the input of the output matrix."""
        return self.vocabulary_head.to_embedding(hidden)

    def output_projection(
        self, matrix: Matrix | None = None
    ) -> tuple[Float[Tensor, "C E"], Float[Tensor, " C"] | None]:
        """Return the output matrix and its bias, for losses in chunks.

        They act on the output of ``to_embedding``. A tied matrix is the embedding matrix of the
        pass that computed the states: ``matrix`` of ``Hidden``.
        """
        return self.vocabulary_head.output(self.output_table(matrix))


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


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode; restore its mode at the end, also after errors.

    All parts get the root's mode at the end.
    """
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
