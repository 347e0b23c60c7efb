"""The table of learned vectors in which schemes look up rows."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sublayer.model.roles import Role


class PositionTable(nn.Module):
    """A learned vector for each position, or for whatever else a scheme numbers."""

    roles: ClassVar[Mapping[str, Role]] = {"weight": "embedding"}

    def __init__(self, n_rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_rows, width))

    def vectors(self, indices: Int[Tensor, "*B T"]) -> Float[Tensor, "*B T D"]:
        """Look up rows by their indices."""
        return nn.functional.embedding(indices, self.weight)
