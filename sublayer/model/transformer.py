"""Transformers: embedding, body of blocks, heads; decoders, encoders, encoder-decoders, LSTMs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import (
    GLOBAL,
    HEADS,
    AttentionForm,
    StackShape,
    asked_heads,
    attention_forms,
    embedding_width,
    stacks,
)
from sublayer.errors import ConfigError
from sublayer.model.blocks import Stack, Sublayer, add_losses
from sublayer.model.cache import Cache
from sublayer.model.context import Context, Keys, Layout, Memory, Queries, Rotations
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
    """Outputs of a model's heads, by name; logits are unnormalized log-probabilities.

    ``output["pooler"]`` is the pooled vector of each text ``[B, D]``.
    """

    @property
    def logits(self) -> Float[Tensor, "B T V"]:
        """Vocabulary logits: of the next token in a decoder, of each position in an encoder."""
        return self["vocabulary"]

    @property
    def sentence_logits(self) -> Float[Tensor, "B C"] | None:
        """Logits of text pairs; None without a sentence head.

        "Not consecutive" is the second of two classes, or a positive single logit.
        """
        return self.get("sentence")


@dataclass(frozen=True)
class Hidden:
    """Hidden states: after the final norm (with dropout in training), and after captured blocks."""

    final: Float[Tensor, "B Q D"]
    captured: dict[int, Tensor]
    """Captured states, ``[B, T, D]`` each, by the number of preceding blocks."""
    matrix: Matrix | None = None
    """Embedding matrix of this pass after dropout, which tied heads must use as well."""
    auxiliary: Float[Tensor, ""] | None = None
    """Auxiliary losses of sub-layers, including the memory's, summed over sequences."""


class Body(nn.Module):
    """Body of a model, from token vectors to hidden states.

    It consists of positions, segments, a norm, the stack and the final norm. The stack is named
    after its shape, ``decoder`` or ``encoder``.
    """

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__()
        self.shape = shape
        self.segment_table = None if config.segments == "none" else SegmentTable(config)
        self.positions = build_positions(config, shape)
        by_block = attention_forms(config, shape)
        met = (form for of_block in by_block for form in of_block if form is not None)
        self.forms = list(dict.fromkeys(met)) or [GLOBAL]
        """Forms of the executed self-attentions, each once."""
        self.form_numbers = [
            [0 if form is None else self.forms.index(form) for form in of_block]
            for of_block in by_block
        ]
        """Index in ``forms`` of each entry of each executed block; 0 if it is no self-attention."""
        self.embedding_norm = build_norm(
            "none" if config.embedding_norm == "none" else config.norm,
            embedding_width(config),
            eps=config.norm_eps,
            affine=config.embedding_norm == "affine",
            bias=config.norm_bias,
        )
        # Names of saved weights begin with the shape's name, such as ``decoder.``.
        self.add_module(shape.name, Stack(config, shape))
        self.final_norm = build_norm(
            "none" if config.final_norm == "none" else config.norm,
            config.d_model,
            eps=config.norm_eps,
            affine=config.final_norm == "affine",
            bias=config.norm_bias,
        )
        drops_sum = config.dropout_embedding_of == "sum"
        self.p_embedding = config.dropout_embedding if drops_sum else 0.0
        self.p_final = config.dropout_final
        self.mixes_values = config.value_residual != "none"
        """Whether attentions mix in the values of their stack's first attention."""

    @property
    def stack(self) -> Stack:
        """Stack of blocks."""
        stack = getattr(self, self.shape.name)
        assert isinstance(stack, Stack), "every body must have a stack"
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

        It is the sum of token, position and segment embeddings, with norm, dropout and projection
        as configured. A single axis of ``positions`` applies to all rows. ``segments`` are 0 and 1;
        without them all tokens belong to the first text of a pair. ``matrix`` replaces the tables
        of tokens and positions.
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

        ``dtype`` is the residual stream's. ``memory`` is passed on. For fused kernels the
        attention bias includes the layout's mask, which is then removed from the layout. The result
        is the context of the first form of attention, and holds those of the others.
        """
        bias = None
        if self.positions.biases_scores:
            bias = self.positions.score_bias(layout.positions, layout.key_positions, dtype)
            assert bias is not None, "a scheme with biases_scores must return a bias"
        values: list[Tensor] | None = [] if self.mixes_values else None
        every = Context(layout, None, bias, memory=memory, values=values)
        contexts = [
            _narrow(replace(every, rotations=rotations), form, dtype)
            for form, rotations in zip(
                self.forms, self.rotations(layout.positions, dtype), strict=True
            )
        ]
        if len(contexts) == 1:
            return contexts[0]
        others = {
            (layer, index): contexts[number]
            for layer, numbers in enumerate(self.form_numbers)
            for index, number in enumerate(numbers)
            if number > 0
        }
        return replace(contexts[0], others=others)

    def rotations(
        self, positions: Int[Tensor, "*B T"], dtype: torch.dtype
    ) -> list[Rotations | None]:
        """Compute the rotations of each of ``forms``; None for a form without rotations."""
        scheme = self.positions
        plain = scheme.rotations(positions, dtype)
        local = scheme.local_rotations(positions, dtype) or plain
        return [
            None if not form.has_positions else plain if form.window is None else local
            for form in self.forms
        ]

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
        """Compute hidden states; with ``queries``, final states only at these positions.

        ``capture`` requests the residual stream after numbers of blocks (0: before all).
        Cross-attention reads ``memory``; keys and values are appended to ``cache``, whose length
        the caller advances. ``matrix`` is as in ``enter``.

        Raises ConfigError where the input exceeds the maximum of the positions.
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


def _narrow(context: Context, form: AttentionForm, dtype: torch.dtype) -> Context:
    """Narrow a context to the keys and the positions of a form of attention.

    Fused kernels get the mask of keys in the bias.
    """
    layout = context.layout.within(form)
    bias = context.bias if form.has_positions else None
    if bias is not None and layout.n_keys < bias.shape[3]:
        bias = bias[..., -layout.n_keys :]
    if bias is None or (bias.shape[2] > 1 and is_eager_cpu(bias)):
        return replace(context, layout=layout, bias=bias)
    # Fused kernels save the bias that they read: if masked and in their dtype, all blocks share
    # one tensor.
    device = bias.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    bias = hide(bias, layout.keys).to(dtype)
    return replace(context, layout=replace(layout, keys=Keys(False, None)), bias=bias)


class Transformer(Body):
    """Base class of all kinds of models, composed by a resolved config.

    Weights start unset; ``build`` builds and initializes a model of the config's kind. Heads are
    attributes, named like the prefix of their saved tensors; None if not configured.
    """

    text_position: ClassVar[Literal["first", "last"]] = "last"
    """Token whose hidden state represents the text, since it sees all of the text."""
    engine: Any = None
    """Program that computes in place of PyTorch (``sublayer.interop.engines``); None for none."""
    head: VocabularyHead | None
    pooler: Pooler | None
    sentence_head: SentenceHead | None
    label_head: LabelHead | None
    span_head: SpanHead | None
    joint_span_head: JointSpanHead | None

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__(config, stacks(config)[-1])
        self.config = config
        self.embedding = TokenEmbedding(config)
        head_names = asked_heads(config)
        for name, row in HEADS.items():
            head = load_class(row.implementation)(config) if name in head_names else None
            self.register_module(row.attribute, head)
        self.register_state_dict_post_hook(to_persistent)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(from_persistent)  # type: ignore[no-untyped-call]

    @cached_property
    def has_auxiliary(self) -> bool:
        """Whether any sub-layer has an auxiliary loss, by its class attribute."""
        parts = (module for module in self.modules() if isinstance(module, Sublayer))
        return any(getattr(part.function, "has_auxiliary", False) for part in parts)

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """All stacks of the model, with the output's stack last."""
        return (self.stack,)

    @property
    def heads(self) -> dict[str, Head]:
        """Configured heads, by name, in the order of computation."""
        by_name: dict[str, Head] = {}
        for name, row in HEADS.items():
            head = getattr(self, row.attribute)
            if head is not None:
                by_name[name] = cast(Head, head)
        return by_name

    def embedding_parameters(self) -> Iterator[nn.Parameter]:
        """Generate the parameters before the first block of every stack.

        They are the tables of tokens, segments and added positions, and the map and norm after
        them. A tied output matrix is the token table.
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

        Layers count from 0. Shared parameters belong to each of their blocks.
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
        """Draw the embedding matrix of one training pass, with dropout.

        None outside training, and where dropout acts on the sum of embeddings. Source: Radford et
        al. 2018, as released: lookups and a tied head's products share one dropout mask.
        """
        p = self.config.dropout_embedding
        if self.config.dropout_embedding_of == "sum" or not self.training or p == 0.0:
            return None
        positions = self.positions.input_table
        assert positions is not None, "positions must be learned"
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
        is the embedding matrix of the pass.
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
        """Select the hidden state of each text, at its first or its last real token.

        ``mask`` is True at real tokens, None without padding; of an empty row the first is taken.
        """
        if self.text_position == "first":
            return final[:, 0]
        if mask is None:
            return final[:, -1]
        indices = torch.arange(mask.shape[1], device=mask.device)
        last = (indices * mask).amax(1)  # [B]
        rows = torch.arange(last.shape[0], device=mask.device)
        return final[rows, last]

    def pool(self, text: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Compute the vector of each text from its hidden state.

        Without a pooler it is the state itself.
        """
        if self.pooler is None:
            return text
        pooled: Tensor = self.pooler(text)
        return pooled

    def sentence_logits(self, text: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows C"]:
        """Classify text pairs by their hidden states, which are pooled first.

        Requires a sentence head.
        """
        assert self.sentence_head is not None, "the config has no sentence head"
        logits: Tensor = self.sentence_head(self.pool(text))
        return logits

    def label_logits(self, text: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows L"]:
        """Predict the labels of a task from hidden states of texts, which are pooled first.

        Requires a label head.
        """
        assert self.label_head is not None, "the config has no label head"
        logits: Tensor = self.label_head(self.pool(text))
        return logits

    @property
    def vocabulary_head(self) -> VocabularyHead:
        """Vocabulary head; raises ConfigError if the model has none."""
        if self.head is None:
            remedy = "it was fine-tuned on a task; name the model that it was fine-tuned from"
            if not self.heads.keys() - {"pooler", "sentence"}:
                remedy = (
                    "it was imported without a head; fine-tune it on a task (sublayer finetune)"
                )
            raise ConfigError(f"this model predicts no tokens (model.head = none): {remedy}")
        return self.head

    def logits(self, hidden: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Compute the logits of tokens, excluding positions, from hidden states."""
        logits: Tensor = self.vocabulary_head(hidden, self.embedding.weight)
        return logits

    def output_table(self, matrix: Matrix | None = None) -> Float[Tensor, "C E"]:
        """Return the tied output matrix: rows of tokens, then rows of positions.

        Rows of positions exist if the softmax is over all. ``matrix`` is a pass's matrix.
        """
        tokens = self.embedding.weight if matrix is None else matrix.tokens
        if self.config.softmax == "tokens":
            return tokens
        positions = self.positions.input_table if matrix is None else matrix.positions
        assert positions is not None, "positions must be learned"
        return torch.cat([tokens, positions])

    def to_embedding(self, hidden: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows E"]:
        """Map hidden states to the input of the output matrix."""
        return self.vocabulary_head.to_embedding(hidden)

    def output_projection(
        self, matrix: Matrix | None = None
    ) -> tuple[Float[Tensor, "C E"], Float[Tensor, " C"] | None, float | None]:
        """Return the output matrix, its bias and the cap of logits, for losses in chunks.

        They act on the output of ``to_embedding``. A tied matrix is the embedding matrix of the
        pass that computed the states (``Hidden.matrix``).
        """
        head = self.vocabulary_head
        return *head.output(self.output_table(matrix)), head.cap


class Decoder(Transformer):
    """Decoder: token ids in, next-token logits out."""

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        *,
        cache: Cache | None = None,
    ) -> Output:
        """Compute the next-token logits at every position.

        ``mask`` is True at real tokens; None without padding. With a ``cache`` the tokens follow
        those of earlier calls and are appended, padding included, which takes room.

        Raises ConfigError where the input exceeds the cache or the maximum of the positions; the
        length of the cache is then unchanged.
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
        """Append tokens to a cache, and compute only the logits after the last token.

        All tokens, those in the cache included, must be real. Raises ConfigError as ``forward``.
        """
        cache.check(tokens.shape[1])
        layout = Layout.causal(tokens, past=cache.n_past)
        final = self.hidden(tokens, layout, cache=cache).final
        cache.advance(tokens.shape[1], None)
        return self.logits(final[:, -1])


class Lstm(Decoder):
    """LSTM: token ids in, next-token logits out, like a decoder.

    Its stack consists of ``LstmLayer``; its cache holds the states of layers, of constant size and
    without a maximum length.
    """


class Encoder(Transformer):
    """Encoder: token ids in, logits of the token at each position and of a text pair out.

    Source: Devlin et al. 2019 (1810.04805), sec. 3; Lan et al. 2020 (1909.11942), sec. 3.1.
    """

    text_position = "first"

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Output:
        """Compute the logits of every position and, with a sentence head, of each row as a pair.

        ``mask`` is True at real tokens, None without padding; results at padding are meaningless.
        ``segments`` is 0 in a pair's first text and 1 in its second; None means 0 everywhere. The
        sentence head reads the first token.

        Raises ConfigError where the input exceeds the maximum of the positions.
        """
        layout = Layout.bidirectional(tokens, mask)
        final = self.hidden(tokens, layout, segments=segments).final
        return self.outputs(final, mask)


class EncoderDecoder(Transformer):
    """Encoder-decoder: token ids of source and target in, next-token logits of the target out.

    Both sides share one embedding matrix. Source: Vaswani et al. 2017 (1706.03762), sec. 3.
    """

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__(config)
        encoder, _ = stacks(config)
        self.source = Body(config, encoder)

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """Stacks of the encoder and of the decoder."""
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

        Raises ConfigError where an input exceeds the maximum of the positions.
        """
        layout = Layout.causal(target, target_mask)
        # The memory gets no name, so that it is freed before the logits are computed.
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

        ``document_ids`` separates runs of equal ids, and ``reader_ids`` assigns the decoder's
        tokens to them. Both ``starts`` encode the same for attention without padding (``Ragged``).

        Raises ConfigError where the source exceeds the maximum of the positions.
        """
        layout = Layout.bidirectional(source, mask, document_ids, starts)
        hidden = self.source.states(self.embedding, source, layout)
        reading = Layout.reading(source, mask, document_ids, reader_ids, starts, reader_starts)
        return Memory(hidden.final, reading, hidden.auxiliary)

    def decode(
        self, target: Int[Tensor, "B T"], memory: Memory, cache: Cache
    ) -> Float[Tensor, "B T V"]:
        """Append tokens to a cache, and compute their next-token logits.

        The cache keeps the memory's keys and values from its first call on, so that another memory
        needs another cache. ``target`` may have several consecutive rows per row of the memory.

        Raises ConfigError where the tokens exceed the cache or the maximum of the positions.
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
"""Class of each kind of model, by the value of ``model.kind``."""


def compose(config: ResolvedModel) -> Transformer:
    """Build the model of a resolved config, with unset weights.

    Weights are on PyTorch's default device; on the device ``meta`` they take no memory.
    """
    return KINDS[config.kind](config)


def shapes_of(config: ResolvedModel) -> dict[str, torch.Size]:
    """Return the shape of each tensor of a resolved config's model, without allocating it."""
    with torch.device("meta"):
        model = compose(config)
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


def build(config: ResolvedModel, *, seed: int) -> Transformer:
    """Build a model, in training mode, with initial weights that depend only on config and seed.

    The config is resolved. PyTorch's global generator is neither read nor changed.

    Raises ConfigError where the model does not fit into memory.
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
    """Put a model into evaluation mode, and restore its mode at the end, even after errors.

    At the end all submodules get the mode of the root.
    """
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
