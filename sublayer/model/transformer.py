"""The model: token ids in, logits out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sublayer.config.model import ModelConfig
from sublayer.model.cache import Cache
from sublayer.model.context import Context
from sublayer.model.dropout import dropout
from sublayer.model.embedding import TokenEmbedding
from sublayer.model.heads import VocabularyHead
from sublayer.model.init import initialise
from sublayer.model.layout import Layout
from sublayer.model.norm import build_norm
from sublayer.model.positions import Positions
from sublayer.model.stack import Stack


@dataclass(frozen=True)
class Output:
    """What calling a model gives: unnormalised log-probabilities of the next token."""

    logits: Float[Tensor, "B T V"]


@dataclass(frozen=True)
class Hidden:
    """Hidden states: the last ones, after the final norm, and the residual stream after the blocks asked for."""

    final: Float[Tensor, "B T D"]
    captured: dict[int, Tensor]


class Transformer(nn.Module):
    """A decoder, composed as its config says. The config is resolved; weights start unset (``build`` sets them)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.norm_eps is not None, "the config is not resolved"
        assert config.dropout_embedding is not None, "the config is not resolved"
        self.config = config
        self.tokenizer: Any = None
        self.embedding = TokenEmbedding(config)
        self.positions = Positions(config)
        self.decoder = Stack(config)
        final_kind = "none" if config.final_norm == "none" else config.norm
        self.final_norm = build_norm(
            final_kind, config.d_model, eps=config.norm_eps, affine=config.final_norm == "affine"
        )
        self.head = VocabularyHead(config)
        self.p_embedding = config.dropout_embedding

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

    def hidden(
        self,
        tokens: Int[Tensor, "B T"],
        layout: Layout,
        *,
        cache: Cache | None = None,
        capture: Sequence[int] = (),
    ) -> Hidden:
        """Compute hidden states; ``capture`` asks for the residual stream after so many blocks (0: before all)."""
        x = self.positions.add(self.embedding(tokens), 0, layout)
        x = dropout(x, self.p_embedding, self.training)
        context = Context(layout, self.positions.rotation(layout, x.dtype))
        x, captured = self.decoder(x, context, self.positions, cache, capture)
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


def build(config: ModelConfig, *, seed: int) -> Transformer:
    """Build a model with initial weights that depend on the resolved config and the seed only."""
    model = Transformer(config)
    initialise(model, config, torch.Generator().manual_seed(seed))
    return model
