"""Learned positions of every layer: a table for each block."""

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sublayer.config.architecture.derived import embedding_width
from sublayer.config.architecture.stacks import StackShape
from sublayer.config.resolved import ResolvedModel
from sublayer.model.positions.base import Positions
from sublayer.model.positions.learned_table import PositionTable


@final
class LayerwiseLearnedPositions(Positions):
    """Add a row of a table of its own before each block. Source: Al-Rfou et al. 2018 (1808.04444).

    The first table is as wide as the embeddings, to which it is added.
    """

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__(config, shape)
        further = [config.d_model] * (shape.n_layers - 1)
        widths = [embedding_width(config), *further]
        self.tables = nn.ModuleList(PositionTable(self.max_len, width) for width in widths)

    def vectors(
        self, layer: int, positions: Int[Tensor, "*B T"], dtype: torch.dtype
    ) -> Float[Tensor, "*B T D"]:
        """Look up the vectors of positions in the block's table."""
        table: PositionTable = self.tables[layer]  # type: ignore[assignment]
        return table.vectors(positions)
