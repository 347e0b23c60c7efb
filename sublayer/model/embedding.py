"""The embedding stage: tokens, positions and segments to the residual stream."""

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import embedding_width, is_factorised
from sublayer.model.linear import Linear
from sublayer.model.roles import Role


class TokenEmbedding(nn.Module):
    """Look up ``scale * table[token]``; where the table is factorised, project it, or the sum it is part of.

    Source of the factorisation: Lan et al. 2020 (ALBERT), sec. 3.1; projecting the sum is as released.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "embedding"}

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.vocab_size is not None, "the config is not resolved"
        assert config.d_embed is not None, "the config is not resolved"
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.d_embed))
        self.scale = config.d_embed**0.5 if config.embedding_scale == "sqrt" else 1.0
        self.projects_sum = config.embedding_projection == "sum"
        self.projection = Linear(config.d_embed, config.d_model, bias=config.bias) if is_factorised(config) else None

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T W"]:
        """Embed each token, at the width at which positions are added."""
        x = F.embedding(tokens, self.weight)  # [B, T, E]
        if self.scale != 1.0:
            x = x * self.scale
        return x if self.projects_sum else self._project(x)

    def project_sum(self, x: Float[Tensor, "B T W"]) -> Float[Tensor, "B T D"]:
        """Project the sum of all embeddings, where that is what is projected."""
        return self._project(x) if self.projects_sum else x

    def _project(self, x: Tensor) -> Tensor:
        # Autocast must not narrow the residual stream.
        return x if self.projection is None else self.projection(x).to(self.weight.dtype)


class SegmentTable(nn.Module):
    """A vector for each segment of a pair, or for its second alone (Macaron BERT, as released: the first's is zero)."""

    roles: ClassVar[Mapping[str, Role]] = {"weight": "embedding"}

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2 if config.segments == "both" else 1, embedding_width(config)))

    def forward(self, segments: Int[Tensor, "B T"]) -> Float[Tensor, "B T W"]:
        """Look up each token's segment, 0 or 1."""
        if self.weight.shape[0] == 2:
            return F.embedding(segments, self.weight)
        return segments[..., None].to(self.weight.dtype) * self.weight[0]
