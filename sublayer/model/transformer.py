"""The Transformer: an embedding matrix, a body of blocks, heads."""

from collections.abc import Sequence
from typing import ClassVar, Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import HEADS, asked_heads, entries, stacks
from sublayer.errors import ConfigError
from sublayer.model.body import Body, Hidden
from sublayer.model.cache import Cache
from sublayer.model.context import Layout, Memory, Queries
from sublayer.model.kernels.dropout import dropout
from sublayer.model.layers.embedding import Matrix, TokenEmbedding
from sublayer.model.layers.heads import (
    Head,
    JointSpanHead,
    LabelHead,
    Pooler,
    SentenceHead,
    SpanHead,
    VocabularyHead,
    build_head,
)
from sublayer.model.layers.stack import FUNCTIONS, Stack
from sublayer.model.names import use_persistent_names
from sublayer.model.output import Output


class Transformer(Body):
    """Common base of all kinds of models, composed by config.

    The config is resolved; weights start unset. ``sublayer.model.build`` builds the config's kind.
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
        asked = asked_heads(config)
        for name, row in HEADS.items():
            head = build_head(row, config) if name in asked else None
            self.register_module(row.attribute, head)
        use_persistent_names(self)

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

    def embed_tokens(
        self,
        tokens: Int[Tensor, "B T"],
        positions: Int[Tensor, "*B T"],
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Compute the first block's input, as ``enter`` does, from the embedding matrix."""
        return self.enter(self.embedding, tokens, positions, segments, self.drop_matrix())

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

    def token_projection(self) -> tuple[Float[Tensor, "V E"], Float[Tensor, " V"] | None]:
        """Return the token rows of the output matrix and their bias, for decoding."""
        return self.vocabulary_head.output(self.embedding.weight)

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
