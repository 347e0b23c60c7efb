"""The embedding stage: tokens, positions and segments to the residual stream."""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sublayer.config.recipe import ResolvedModel
from sublayer.config.roles import Role
from sublayer.config.stacks import embedding_width, is_factorised
from sublayer.model.layers.linear import Linear


class Matrix(NamedTuple):
    """Token and position rows of one training pass, after dropout."""

    tokens: Float[Tensor, "V E"]
    positions: Float[Tensor, "P W"]


class TokenEmbedding(nn.Module):
    """Look up ``scale * table[token]``, and project it where the table is factorised.

    The projection reads the token's vector, or the sum of embeddings. Source of the factorisation:
    Lan et al. 2020 (ALBERT), sec. 3.1; projecting the sum is as released.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "embedding"}

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.d_embed))
        self.scale = config.d_embed**0.5 if config.embedding_scale == "sqrt" else 1.0
        self.projects_sum = config.embedding_projection == "sum"
        self.projection = None
        if is_factorised(config):
            self.projection = Linear(config.d_embed, config.d_model, bias=config.bias)

    def forward(
        self, tokens: Int[Tensor, "B T"], table: Float[Tensor, "V E"] | None = None
    ) -> Float[Tensor, "B T W"]:
        """Embed tokens, at the width of the position vectors.

        ``d_model``, or ``d_embed`` where the sum of embeddings is projected. ``table`` replaces the
        module's.
        """
        x = F.embedding(tokens, self.weight if table is None else table)  # [B, T, E]
        if self.scale != 1.0:
            x = x * self.scale
        return x if self.projects_sum else self._project(x)

    def project_sum(self, x: Float[Tensor, "B T W"]) -> Float[Tensor, "B T D"]:
        """Project the sum of all embeddings, unless tokens are projected."""
        return self._project(x) if self.projects_sum else x

    def _project(self, x: Tensor) -> Tensor:
        if self.projection is None:
            return x
        projected: Tensor = self.projection(x)  # [B, T, D]
        # Autocast must not narrow the residual stream.
        return projected.to(self.weight.dtype)


class SegmentTable(nn.Module):
    """A vector for each segment of a pair, or only for the second.

    In the latter case the first's is zero (Macaron BERT, as released).
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "embedding"}

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__()
        n_rows = 2 if config.segments == "both" else 1
        self.weight = nn.Parameter(torch.empty(n_rows, embedding_width(config)))

    def forward(self, segments: Int[Tensor, "B T"]) -> Float[Tensor, "B T W"]:
        """Look up each token's segment, 0 or 1."""
        n_rows = self.weight.shape[0]
        if n_rows == 2:
            return F.embedding(segments, self.weight)
        is_second = segments[..., None].to(self.weight.dtype)  # [B, T, 1]
        return is_second * self.weight[0]
