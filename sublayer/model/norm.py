"""Normalisation over the features of a token."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.model.roles import Role


class LayerNorm(nn.Module):
    """Subtract the mean and divide by the standard deviation; learn a gain and an offset if ``affine``.

    Source: Ba et al. 2016, eq. 4; the variance is the biased one and ``eps`` is added to it.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "vector", "bias": "vector"}

    def __init__(self, d_model: int, *, eps: float, affine: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model)) if affine else None
        self.bias = nn.Parameter(torch.empty(d_model)) if affine else None
        self.d_model, self.eps = d_model, eps

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Normalise the last axis."""
        return F.layer_norm(x, (self.d_model,), self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """Divide by the root of the mean square; learn a gain if ``affine``. Source: Zhang & Sennrich 2019, eq. 4."""

    roles: ClassVar[Mapping[str, Role]] = {"weight": "vector"}

    def __init__(self, d_model: int, *, eps: float, affine: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model)) if affine else None
        self.d_model, self.eps = d_model, eps

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Normalise the last axis."""
        return F.rms_norm(x, (self.d_model,), self.weight, self.eps)


def build_norm(kind: Literal["layer", "rms", "none"], d_model: int, *, eps: float, affine: bool) -> nn.Module:
    """Build the norm that a recipe names."""
    match kind:
        case "layer":
            return LayerNorm(d_model, eps=eps, affine=affine)
        case "rms":
            return RMSNorm(d_model, eps=eps, affine=affine)
        case "none":
            return nn.Identity()
