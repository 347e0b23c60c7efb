"""The rotation of queries and keys by angles, differentiated by hand."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Rotation:
    """The angles of queries and keys: cosines, and sines that are negative in the first half."""

    cos: Float[Tensor, "*B T K"]
    sin: Float[Tensor, "*B T K"]

    def __call__(self, x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        """Rotate each pair of features ``(i, i + K/2)`` of a head by the angle of its position."""
        cos = self.cos.to(x.dtype)
        sin = self.sin.to(x.dtype)
        rotated: Tensor = _Rotate.apply(x, cos, sin)  # type: ignore[no-untyped-call]
        return rotated


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotate(x, cos, sin, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _rotate(grad, cos, sin, -1), None, None


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
    """Rotate by the angles, or back by them, with one allocation: more would leave holes."""
    half = x.shape[-1] // 2
    x_first = x[..., :half]
    x_second = x[..., half:]
    sin_first = sin[..., :half]
    sin_second = sin[..., half:]
    rotated = x * cos
    rotated[..., :half].addcmul_(x_second, sin_first, value=sign)
    rotated[..., half:].addcmul_(x_first, sin_second, value=sign)
    return rotated


def rotation(
    positions: Int[Tensor, "*B T"], *, d_head: int, base: float, dtype: torch.dtype
) -> Rotation:
    """Compute rotary angles ``position * base ** (-2 i / d_head)``, broadcast over heads.

    i counts pairs of features from 0; ``d_head`` is even. Angles are in radians, computed in
    float64; cosines and sines are rounded to ``dtype``.

    Source: Su et al. 2021, eq. 15. Departure: the pairs are features i and i + d_head/2, as
    released with LLaMA.
    """
    # In float64: float32 leaves the large angles of far positions few digits behind the point.
    features = torch.arange(0, d_head, 2, dtype=torch.float64, device=positions.device)
    exponents = features / d_head
    frequencies = base**-exponents  # [K/2]
    angles = positions[..., None].double() * frequencies  # [*B, T, K/2]
    if angles.dim() == 3:
        angles = angles[:, None]  # [B, 1, T, K/2]
    cos = angles.cos().to(dtype)
    sin = angles.sin().to(dtype)
    both_cos = torch.cat([cos, cos], dim=-1)  # [*B, T, K]
    both_sin = torch.cat([-sin, sin], dim=-1)
    return Rotation(both_cos, both_sin)
