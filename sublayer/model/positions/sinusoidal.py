"""Sinusoidal positions: sines and cosines of geometric frequencies, added to the embeddings."""

import math
from typing import Literal, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.config.architecture.derived import embedding_width
from sublayer.config.architecture.stacks import StackShape
from sublayer.config.resolved import ResolvedModel
from sublayer.model.positions.base import Positions

SinusoidForm = Literal["tensor2tensor", "fairseq", "marian", "interleaved"]


@final
class SinusoidalPositions(Positions):
    """Add sinusoids before the first block. Source: Vaswani et al. 2017 (1706.03762), sec. 3.5.

    The first token has the sinusoid of position ``config.first_position``.
    """

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__(config, shape)
        self.form = config.sinusoids
        self.first = config.first_position
        self.width = embedding_width(config)

    def vectors(
        self, layer: int, positions: Int[Tensor, "*B T"], dtype: torch.dtype
    ) -> Float[Tensor, "*B T D"] | None:
        """Compute the sinusoids of positions, before the first block alone."""
        if layer > 0:
            return None
        shifted = positions + self.first
        return sinusoids(shifted, d_model=self.width, dtype=dtype, form=self.form)


def sinusoids(
    positions: Int[Tensor, "*B T"],
    *,
    d_model: int,
    dtype: torch.dtype,
    form: SinusoidForm = "tensor2tensor",
) -> Float[Tensor, "*B T D"]:
    """Compute sines (first half of the features) and cosines (second half), or pairs of them.

    ``d_model`` is even, and counts both.

    Source: Vaswani et al. 2017, sec. 3.5, whose formula ``interleaved`` is: feature 2 i is the sine
    and feature 2 i + 1 the cosine of position / 10000^(2 i / d_model). Departures of the others, as
    released: the halves are not interleaved; the exponents of 10000 run from 0 to -1 inclusive
    (tensor2tensor, fairseq), which marian's stop short of, as the formula's do. fairseq computes in
    float32, marian rounds to it; the others are computed in float64 here.
    """
    half = d_model // 2
    device = positions.device
    wide = torch.float32 if form == "fairseq" else torch.float64
    indices = torch.arange(half, dtype=wide, device=device)
    if form in ("marian", "interleaved"):
        wavelengths = 10000.0 ** (2 * indices / d_model)
        angles = positions[..., None] / wavelengths  # [*B, T, D/2]
    else:
        step = math.log(10000.0) / max(half - 1, 1)
        frequencies = torch.exp(indices * -step)
        angles = positions[..., None].to(wide) * frequencies  # [*B, T, D/2]
    if form == "interleaved":
        pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)  # [*B, T, D/2, 2]
        return pairs.flatten(-2).to(dtype)
    vectors = torch.cat([angles.sin(), angles.cos()], dim=-1)  # [*B, T, D]
    if form == "marian":
        vectors = vectors.float()
    return vectors.to(dtype)
