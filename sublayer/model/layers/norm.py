"""Normalisation over the features of a token."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.config.roles import Role
from sublayer.model.kernels.choice import is_eager_cpu

NormKind = Literal["layer", "rms", "none"]


class LayerNorm(nn.Module):
    """Subtract the mean and divide by the standard deviation.

    A gain and an offset are learned if ``affine``. Source: Ba et al. 2016, eq. 4; the variance is
    the biased one and ``eps`` is added to it.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "gain", "bias": "bias"}

    def __init__(self, d_model: int, *, eps: float, affine: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model)) if affine else None
        self.bias = nn.Parameter(torch.empty(d_model)) if affine else None
        self.d_model = d_model
        self.eps = eps

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Normalise the last axis."""
        return F.layer_norm(x, (self.d_model,), self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """Divide by the root of the mean square, and learn a gain if ``affine``.

    Source: Zhang & Sennrich 2019, eq. 4; ``eps`` is added to the mean square.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "gain"}

    def __init__(self, d_model: int, *, eps: float, affine: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model)) if affine else None
        self.d_model = d_model
        self.eps = eps

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Normalise the last axis."""
        if not is_eager_cpu(x):
            return F.rms_norm(x, (self.d_model,), self.weight, self.eps)
        if not torch.is_grad_enabled():
            # For a few rows an autograd function costs as much as its computation, for one row even
            # a scalar operation does.
            if x.dim() == 1:
                return _normalise_vector(x, self.weight, self.eps)
            return _normalise(x, self.weight, self.eps)[0]
        normed: Tensor = _RmsNorm.apply(x, self.weight, self.eps)  # type: ignore[no-untyped-call]
        return normed


def _normalise(x: Tensor, gain: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """Normalise rows; also return their inverse root mean squares, ``[*rows, 1]``."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # [*rows, 1]
    # In place: later operations are on one column.
    mean_square = norm.square_().div_(x.shape[-1])
    inverse = mean_square.add_(eps).rsqrt_()
    normed = x * inverse
    if gain is not None:
        normed.mul_(gain)
    return normed, inverse


def _normalise_vector(x: Tensor, gain: Tensor | None, eps: float) -> Tensor:
    mean_square = float(x.dot(x)) / x.shape[0]
    normed = x * math.sqrt(1.0 / (mean_square + eps))
    return normed if gain is None else normed.mul_(gain)


class _RmsNorm(torch.autograd.Function):
    """RMS norm differentiated by hand.

    On a CPU the native one is a chain of small operations, twice as slow.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor | None, eps: float) -> Tensor:
        normed, inverse = _normalise(x, gain, eps)
        ctx.save_for_backward(x, inverse, gain)
        return normed

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, inverse, gain = ctx.saved_tensors
        # The result first, with few other allocations, to limit fragmentation.
        grad_x = grad.clone() if gain is None else grad * gain
        grad_gain = None
        normed = x * inverse
        product = grad_x * normed
        projected = product.mean(-1, keepdim=True)
        if gain is not None:
            torch.mul(grad, normed, out=product)
            grad_gain = product.flatten(0, -2).sum(0)
        # d/dx = (g - n * mean(g * n)) / rms, with g the gradient of the normalised n.
        grad_x.addcmul_(normed, projected, value=-1).mul_(inverse)
        return grad_x, grad_gain, None


def build_norm(kind: NormKind, d_model: int, *, eps: float, affine: bool) -> nn.Module:
    """Build the norm of a recipe, with unset weights.

    ``none`` is the identity, for which neither ``eps`` nor ``affine`` matters.
    """
    match kind:
        case "layer":
            return LayerNorm(d_model, eps=eps, affine=affine)
        case "rms":
            return RMSNorm(d_model, eps=eps, affine=affine)
        case "none":
            return nn.Identity()
