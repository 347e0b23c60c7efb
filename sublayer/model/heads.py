"""What stands on the last hidden state."""

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.config.model import ModelConfig
from sublayer.model.linear import Linear
from sublayer.model.roles import Role


class VocabularyHead(nn.Module):
    """Map hidden states to logits over the vocabulary.

    A factorised model goes through ``d_embed`` first. A tied head has no matrix: it is given the token table.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "matrix", "bias": "vector"}

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.vocab_size is not None, "the config is not resolved"
        assert config.d_embed is not None, "the config is not resolved"
        is_factorised = config.d_embed != config.d_model
        self.projection = Linear(config.d_model, config.d_embed, bias=config.bias) if is_factorised else None
        self.weight = None if config.tie_embeddings else nn.Parameter(torch.empty(config.vocab_size, config.d_embed))
        self.bias = nn.Parameter(torch.empty(config.vocab_size)) if config.head_bias else None

    def to_embedding(self, hidden: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows E"]:
        """Map hidden states to the width of the output matrix."""
        return hidden if self.projection is None else self.projection(hidden)

    def matrix(self, table: Float[Tensor, "V E"]) -> Float[Tensor, "V E"]:
        """Give the output matrix: the head's own, or the token table where they are tied."""
        return table if self.weight is None else self.weight

    def forward(self, hidden: Float[Tensor, "*rows D"], table: Float[Tensor, "V E"]) -> Float[Tensor, "*rows V"]:
        """Compute logits."""
        return F.linear(self.to_embedding(hidden), self.matrix(table), self.bias)


class Classifier(nn.Module):
    """An untied map from hidden states to the vocabulary, with a bias: what predicts beside the model's own head."""

    roles: ClassVar[Mapping[str, Role]] = {"weight": "matrix", "bias": "vector"}

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.vocab_size is not None, "the config is not resolved"
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.bias = nn.Parameter(torch.empty(config.vocab_size))
