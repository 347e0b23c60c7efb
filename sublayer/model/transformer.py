"""What every kind of model is made of: a token table, a body of blocks, a head over the vocabulary."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import StackShape, stacks
from sublayer.model.cache import Cache
from sublayer.model.context import Context, Memory
from sublayer.model.dropout import dropout
from sublayer.model.embedding import SegmentTable, TokenEmbedding
from sublayer.model.heads import VocabularyHead
from sublayer.model.layout import Layout
from sublayer.model.norm import build_norm
from sublayer.model.positions import Positions
from sublayer.model.stack import Stack


@dataclass(frozen=True)
class Output:
    """What calling a model gives: unnormalised log-probabilities.

    ``logits``: a decoder's are of the next token, an encoder's of the token in each place. ``sentence_logits``, where
    an encoder has such a head: whether a pair's second text does not follow its first.
    """

    logits: Float[Tensor, "B T V"]
    sentence_logits: Float[Tensor, "B C"] | None = None


@dataclass(frozen=True)
class Hidden:
    """Hidden states: the last ones, after the final norm, and the residual stream after the blocks asked for."""

    final: Float[Tensor, "B T D"]
    captured: dict[int, Tensor]


class Body(nn.Module):
    """What stands between token vectors and hidden states: positions, segments, a norm, the stack, the final norm.

    The stack is named as its shape is, ``decoder`` or ``encoder``.
    """

    def __init__(self, config: ModelConfig, shape: StackShape) -> None:
        super().__init__()
        assert config.norm_eps is not None, "the config is not resolved"
        assert config.dropout_embedding is not None, "the config is not resolved"
        self.shape = shape
        self.segment_table = None if config.segments == "none" else SegmentTable(config)
        self.positions = Positions(config, shape.n_layers)
        self.embedding_norm = build_norm(
            config.norm if config.embedding_norm else "none", self.positions.width, eps=config.norm_eps, affine=True
        )
        self.add_module(shape.name, Stack(config, shape))
        final_kind = "none" if config.final_norm == "none" else config.norm
        self.final_norm = build_norm(
            final_kind, config.d_model, eps=config.norm_eps, affine=config.final_norm == "affine"
        )
        self.p_embedding = config.dropout_embedding

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
    ) -> Float[Tensor, "B T D"]:
        """Compute what enters the first block; without ``segments`` every token is of a pair's first text."""
        x = self.positions.add(embedding(tokens), 0, positions)
        if self.segment_table is not None:
            x = x + self.segment_table(tokens.new_zeros(tokens.shape) if segments is None else segments)
        x = dropout(self.embedding_norm(x), self.p_embedding, self.training)
        return embedding.project_sum(x)

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
    ) -> Hidden:
        """Compute hidden states; ``capture`` asks for the residual stream after so many blocks (0: before all).

        ``memory`` is what cross entries read. Raises ConfigError where the input is longer than the positions.
        """
        self.positions.check(layout)
        x = self.enter(embedding, tokens, layout.positions, segments)
        context = Context(layout, self.positions.rotation(layout, x.dtype), memory=memory)
        x, captured = self.stack(x, context, self.positions, cache, capture)
        return Hidden(self.final_norm(x), captured)


class Transformer(Body):
    """A model composed as its config says: what its kinds share. The config is resolved; weights start unset.

    ``sublayer.model.build`` makes the kind that a config asks for.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, stacks(config)[-1])
        self.config = config
        self.tokenizer: Any = None
        self.embedding = TokenEmbedding(config)
        self.head = VocabularyHead(config)

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """Every stack of the model, the one that gives its output last."""
        return (self.stack,)

    def embed(
        self,
        tokens: Int[Tensor, "B T"],
        positions: Int[Tensor, "*B T"],
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Compute what enters the first block; without ``segments`` every token is of a pair's first text."""
        return self.enter(self.embedding, tokens, positions, segments)

    def hidden(
        self,
        tokens: Int[Tensor, "B T"],
        layout: Layout,
        *,
        segments: Int[Tensor, "B T"] | None = None,
        memory: Memory | None = None,
        cache: Cache | None = None,
        capture: Sequence[int] = (),
    ) -> Hidden:
        """Compute hidden states, as ``states`` does."""
        return self.states(
            self.embedding, tokens, layout, segments=segments, memory=memory, cache=cache, capture=capture
        )

    def logits(self, hidden: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Compute the logits of hidden states."""
        logits: Tensor = self.head(hidden, self.embedding.weight)
        return logits

    def to_embedding(self, hidden: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows E"]:
        """Map hidden states to the width of the output matrix."""
        return self.head.to_embedding(hidden)

    def output_projection(self) -> tuple[Float[Tensor, "V E"], Float[Tensor, " V"] | None]:
        """Give the output matrix and its bias, for losses that take the vocabulary in pieces."""
        return self.head.matrix(self.embedding.weight), self.head.bias
