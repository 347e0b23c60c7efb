"""Token embedding: a table, its scale, and the projection of a factorised one."""

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sublayer.config.model import ModelConfig
from sublayer.model.linear import Linear
from sublayer.model.roles import Role


class TokenEmbedding(nn.Module):
    """Look up ``scale * table[token]`` and project it to ``d_model`` where ``d_embed`` differs.

    Source of the factorisation: Lan et al. 2020 (ALBERT), sec. 3.1.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "embedding"}

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.vocab_size is not None, "the config is not resolved"
        assert config.d_embed is not None, "the config is not resolved"
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.d_embed))
        self.scale = config.d_embed**0.5 if config.embedding_scale == "sqrt" else 1.0
        is_factorised = config.d_embed != config.d_model
        self.projection = Linear(config.d_embed, config.d_model, bias=config.bias) if is_factorised else None

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Embed each token."""
        x = F.embedding(tokens, self.weight)  # [B, T, E]
        if self.scale != 1.0:
            x = x * self.scale
        if self.projection is not None:
            # Autocast must not narrow the residual stream.
            x = self.projection(x).to(self.weight.dtype)
        return x
