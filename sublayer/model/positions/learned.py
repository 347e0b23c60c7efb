"""Learned positions: a vector for each, added to the embeddings."""

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
class LearnedPositions(Positions):
    """Add a row of a table before the first block. Source: Gehring et al. 2017 (1705.03122)."""

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__(config, shape)
        table = PositionTable(self.max_len, embedding_width(config))
        # A list, as of the scheme with a table for each layer: one name for the weights of both.
        self.tables = nn.ModuleList([table])

    def vectors(
        self, layer: int, positions: Int[Tensor, "*B T"], dtype: torch.dtype
    ) -> Float[Tensor, "*B T D"] | None:
        """Look up the vectors of positions, before the first block alone."""
        if layer > 0:
            return None
        return nn.functional.embedding(positions, self.input_table)

    @property
    def input_table(self) -> Float[Tensor, "P W"]:
        """The vectors of all positions."""
        table: PositionTable = self.tables[0]  # type: ignore[assignment]
        return table.weight
