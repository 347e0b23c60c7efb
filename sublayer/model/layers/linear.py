"""Linear maps: single, or several of equal shape, stored and multiplied together."""

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.config.roles import Role


class Linear(nn.Module):
    """Multiply by a matrix ``[d_out, d_in]`` and add a bias, if any.

    Weights start unset: see init.py. ``ends_branch`` marks the map that writes a sub-layer's output
    into the residual stream.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "matrix", "bias": "bias"}

    def __init__(self, d_in: int, d_out: int, *, bias: bool, ends_branch: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = nn.Parameter(torch.empty(d_out)) if bias else None
        self.ends_branch = ends_branch

    def forward(self, x: Float[Tensor, "*rows d_in"]) -> Float[Tensor, "*rows d_out"]:
        """Map the last axis."""
        return F.linear(x, self.weight, self.bias)


class StackedLinear(nn.Module):
    """Apply several maps of equal shape to one input in one matrix product.

    The weight is ``[n, d_out, d_in]``, so that per-matrix operations see separate maps.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "stacked", "bias": "bias"}

    def __init__(self, n: int, d_in: int, d_out: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n, d_out, d_in))
        self.bias = nn.Parameter(torch.empty(n, d_out)) if bias else None

    def forward(self, x: Float[Tensor, "*rows d_in"]) -> Float[Tensor, "*rows n_d_out"]:
        """Map the last axis; outputs of the maps are concatenated."""
        matrix = self.weight.flatten(0, 1)  # [n d_out, d_in]
        bias = None if self.bias is None else self.bias.flatten()
        return F.linear(x, matrix, bias)

    def part(
        self, start: int, stop: int
    ) -> tuple[Float[Tensor, "d_outs d_in"], Float[Tensor, " d_outs"] | None]:
        """Return concatenated matrix and bias of some maps, for other inputs.

        Maps ``start`` to ``stop``; differentiable views.
        """
        matrix = self.weight[start:stop].flatten(0, 1)
        if self.bias is None:
            return matrix, None
        return matrix, self.bias[start:stop].flatten()
