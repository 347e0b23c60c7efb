"""Rotary positions: queries and keys are rotated, so that their product depends on the distance."""

from typing import final

import torch
from jaxtyping import Int
from torch import Tensor

from sublayer.config.architecture.stacks import StackShape
from sublayer.config.resolved import ResolvedModel
from sublayer.model.positions.base import Positions
from sublayer.model.positions.rotation import Rotation, rotation


@final
class RotaryPositions(Positions):
    """Rotate each head's queries and keys. Source: Su et al. 2021 (2104.09864), sec. 3.2.2."""

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__(config, shape)
        self.d_head = config.d_head
        self.base = config.rotary_base

    def rotation(self, positions: Int[Tensor, "*B T"], dtype: torch.dtype) -> Rotation:
        """Compute the angles of positions."""
        return rotation(positions, d_head=self.d_head, base=self.base, dtype=dtype)
