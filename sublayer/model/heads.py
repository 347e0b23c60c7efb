"""What stands on the last hidden state: logits over the vocabulary, and the judgement of a pair of texts."""

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import head_activation, is_factorised
from sublayer.model.activation import build_activation
from sublayer.model.linear import Linear
from sublayer.model.norm import build_norm
from sublayer.model.roles import Role


class VocabularyHead(nn.Module):
    """Map hidden states to logits over the vocabulary.

    A factorised model goes through ``d_embed`` first, a transform head through a linear map to that width, an
    activation and a norm with parameters (Devlin et al. 2019, as released). A tied head has no matrix: it is given the
    token table.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "matrix", "bias": "vector"}

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.vocab_size is not None, "the config is not resolved"
        assert config.d_embed is not None, "the config is not resolved"
        assert config.norm_eps is not None, "the config is not resolved"
        is_transform = config.head == "transform"
        has_projection = is_transform or is_factorised(config)
        self.projection = Linear(config.d_model, config.d_embed, bias=config.bias) if has_projection else None
        self.activation = build_activation(head_activation(config), config.gelu) if is_transform else None
        self.norm = build_norm(
            config.norm if is_transform else "none", config.d_embed, eps=config.norm_eps, affine=True
        )
        self.weight = None if config.tie_embeddings else nn.Parameter(torch.empty(config.vocab_size, config.d_embed))
        self.bias = nn.Parameter(torch.empty(config.vocab_size)) if config.head_bias else None

    def to_embedding(self, hidden: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows E"]:
        """Map hidden states to the width of the output matrix."""
        return hidden if self.projection is None else self.finish(self.projection(hidden))

    def finish(self, projected: Float[Tensor, "*rows E"]) -> Float[Tensor, "*rows E"]:
        """Do what a transform head does after its linear map; nothing in a linear head."""
        if self.activation is None:
            return projected
        finished: Tensor = self.norm(self.activation(projected))
        return finished

    def matrix(self, table: Float[Tensor, "V E"]) -> Float[Tensor, "V E"]:
        """Give the output matrix: the head's own, or the token table where they are tied."""
        return table if self.weight is None else self.weight

    def forward(self, hidden: Float[Tensor, "*rows D"], table: Float[Tensor, "V E"]) -> Float[Tensor, "*rows V"]:
        """Compute logits."""
        return F.linear(self.to_embedding(hidden), self.matrix(table), self.bias)


class Pooler(nn.Module):
    """Make one vector of a text from its first state: ``tanh(W h + b)``. Source: Devlin et al. 2019, as released."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.linear = Linear(config.d_model, config.d_model, bias=True)

    def forward(self, first: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Pool texts by their first states."""
        return torch.tanh(self.linear(first))


class Classifier(nn.Module):
    """An untied map from hidden states to the vocabulary, with a bias: what predicts beside the model's own head."""

    roles: ClassVar[Mapping[str, Role]] = {"weight": "matrix", "bias": "vector"}

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.vocab_size is not None, "the config is not resolved"
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.bias = nn.Parameter(torch.empty(config.vocab_size))
