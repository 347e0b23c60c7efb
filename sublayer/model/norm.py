"""Normalisation over the features of a token."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.model.kernels import is_eager_cpu
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
        if not is_eager_cpu(x):
            return F.rms_norm(x, (self.d_model,), self.weight, self.eps)
        normed: Tensor = _RmsNorm.apply(x, self.weight, self.eps)  # type: ignore[no-untyped-call]
        return normed


class _RmsNorm(torch.autograd.Function):
    """Differentiated by hand: the native one is a chain of small operations on a CPU, at twice the time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor | None, eps: float) -> Tensor:
        mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
        inverse = mean_square.add_(eps).rsqrt_()
        ctx.save_for_backward(x, inverse, gain)
        normed: Tensor = x * inverse
        return normed if gain is None else normed.mul_(gain)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, inverse, gain = ctx.saved_tensors
        # The result first, and little beside it: what is freed below leaves holes.
        grad_x, grad_gain = grad.clone() if gain is None else grad * gain, None
        normed = x * inverse
        product = grad_x * normed
        projected = product.mean(-1, keepdim=True)
        if gain is not None:
            grad_gain = torch.mul(grad, normed, out=product).flatten(0, -2).sum(0)
        return grad_x.addcmul_(normed, projected, value=-1).mul_(inverse), grad_gain, None


def build_norm(kind: Literal["layer", "rms", "none"], d_model: int, *, eps: float, affine: bool) -> nn.Module:
    """Build the norm that a recipe names."""
    match kind:
        case "layer":
            return LayerNorm(d_model, eps=eps, affine=affine)
        case "rms":
            return RMSNorm(d_model, eps=eps, affine=affine)
        case "none":
            return nn.Identity()
