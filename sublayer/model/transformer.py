"""What decoders and encoders are: an embedding stage, a stack of blocks, a final norm, a head over the vocabulary."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from sublayer.config.model import ModelConfig
from sublayer.model.cache import Cache
from sublayer.model.context import Context
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


class Transformer(nn.Module):
    """A model composed as its config says: what its kinds share. The config is resolved; weights start unset.

    ``sublayer.model.build`` makes the kind that a config asks for. The stack is named ``decoder`` or ``encoder``.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.norm_eps is not None, "the config is not resolved"
        assert config.dropout_embedding is not None, "the config is not resolved"
        self.config = config
        self.tokenizer: Any = None
        self.embedding = TokenEmbedding(config)
        self.segment_table = None if config.segments == "none" else SegmentTable(config)
        self.positions = Positions(config)
        self.embedding_norm = build_norm(
            config.norm if config.embedding_norm else "none", self.positions.width, eps=config.norm_eps, affine=True
        )
        self.add_module(config.kind, Stack(config))
        final_kind = "none" if config.final_norm == "none" else config.norm
        self.final_norm = build_norm(
            final_kind, config.d_model, eps=config.norm_eps, affine=config.final_norm == "affine"
        )
        self.head = VocabularyHead(config)
        self.p_embedding = config.dropout_embedding

    @property
    def stack(self) -> Stack:
        """The blocks."""
        stack = getattr(self, self.config.kind)
        assert isinstance(stack, Stack), "every kind has its stack"
        return stack

    def embed(
        self,
        tokens: Int[Tensor, "B T"],
        positions: Int[Tensor, "*B T"],
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Compute what enters the first block; without ``segments`` every token is of a pair's first text."""
        x = self.positions.add(self.embedding(tokens), 0, positions)
        if self.segment_table is not None:
            x = x + self.segment_table(tokens.new_zeros(tokens.shape) if segments is None else segments)
        x = dropout(self.embedding_norm(x), self.p_embedding, self.training)
        return self.embedding.project_sum(x)

    def hidden(
        self,
        tokens: Int[Tensor, "B T"],
        layout: Layout,
        *,
        segments: Int[Tensor, "B T"] | None = None,
        cache: Cache | None = None,
        capture: Sequence[int] = (),
    ) -> Hidden:
        """Compute hidden states; ``capture`` asks for the residual stream after so many blocks (0: before all).

        Raises ConfigError where the input is longer than the table of positions.
        """
        self.positions.check(layout)
        x = self.embed(tokens, layout.positions, segments)
        context = Context(layout, self.positions.rotation(layout, x.dtype))
        x, captured = self.stack(x, context, self.positions, cache, capture)
        return Hidden(self.final_norm(x), captured)

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
