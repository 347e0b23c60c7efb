"""How a token's place enters the model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import embedding_width
from sublayer.errors import ConfigError
from sublayer.model.layout import Layout
from sublayer.model.roles import Role

SinusoidForm = Literal["tensor2tensor", "fairseq", "marian"]


@dataclass(frozen=True)
class Rotation:
    """The angles by which queries and keys are turned: cosines, and sines that are negative in the first half."""

    cos: Float[Tensor, "*B T K"]
    sin: Float[Tensor, "*B T K"]

    def __call__(self, x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        """Turn each pair of features ``(i, i + K/2)`` of every head by the angle of its position."""
        turned: Tensor = _Turn.apply(x, self.cos.to(x.dtype), self.sin.to(x.dtype))  # type: ignore[no-untyped-call]
        return turned


class _Turn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turn(grad, cos, sin, -1), None, None


def _turn(x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
    """Turn by the angles, or back by them, and make nothing but the result: what is freed beside it leaves holes."""
    half, turned = x.shape[-1] // 2, x * cos
    turned[..., :half].addcmul_(x[..., half:], sin[..., :half], value=sign)
    turned[..., half:].addcmul_(x[..., :half], sin[..., half:], value=sign)
    return turned


def rotation(positions: Int[Tensor, "*B T"], *, d_head: int, base: float, dtype: torch.dtype) -> Rotation:
    """Compute rotary angles ``position * base ** (-2 i / d_head)``, broadcast over heads.

    Source: Su et al. 2021, eq. 15. Departure: the pairs are features i and i + d_head/2, as released with LLaMA.
    """
    exponents = torch.arange(0, d_head, 2, dtype=torch.float64, device=positions.device) / d_head
    angles = positions[..., None].double() * base**-exponents  # [*B, T, K/2]
    if angles.dim() == 3:
        angles = angles[:, None]  # [B, 1, T, K/2]
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    return Rotation(torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1))


def sinusoids(
    positions: Int[Tensor, "*B T"], *, d_model: int, dtype: torch.dtype, form: SinusoidForm = "tensor2tensor"
) -> Float[Tensor, "*B T D"]:
    """Compute sines (first half of the features) and cosines (second half) of geometric frequencies.

    Source: Vaswani et al. 2017, sec. 3.5. Departures, as released: the halves are not interleaved; the exponents of
    10000 run from 0 to -1 inclusive (tensor2tensor, fairseq), which marian's stop short of. fairseq computes in
    float32, marian rounds to it; tensor2tensor is computed in float64 here.
    """
    half, device = d_model // 2, positions.device
    wide = torch.float32 if form == "fairseq" else torch.float64
    places = torch.arange(half, dtype=wide, device=device)
    if form == "marian":
        angles = positions[..., None] / 10000.0 ** (2 * places / d_model)
    else:
        angles = positions[..., None].to(wide) * torch.exp(places * -(math.log(10000.0) / max(half - 1, 1)))
    found = torch.cat([angles.sin(), angles.cos()], dim=-1)
    return (found.float() if form == "marian" else found).to(dtype)


class PositionTable(nn.Module):
    """A learned vector for each position below ``max_len``."""

    roles: ClassVar[Mapping[str, Role]] = {"weight": "embedding"}

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_len, d_model))

    def vectors(self, positions: Int[Tensor, "*B T"]) -> Float[Tensor, "*B T D"]:
        """Look up each position."""
        return nn.functional.embedding(positions, self.weight)


class Positions(nn.Module):
    """The position scheme of a stack: what is added to the residual stream, and by what queries and keys turn."""

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__()
        assert config.d_head is not None, "the config is not resolved"
        assert config.max_len is not None, "the config is not resolved"
        self.scheme, self.max_len = config.positions, config.max_len
        self.sinusoids, self.first = config.sinusoids, config.first_position
        self.d_head, self.rotary_base = config.d_head, config.rotary_base
        self.width = embedding_width(config)
        n_tables = {"learned": 1, "learned-per-layer": n_layers}.get(config.positions, 0)
        widths = [self.width, *[config.d_model] * (n_tables - 1)][:n_tables]
        self.tables = nn.ModuleList(PositionTable(config.max_len, width) for width in widths)

    def add(self, x: Float[Tensor, "B T D"], layer: int, positions: Int[Tensor, "*B T"]) -> Float[Tensor, "B T D"]:
        """Add what the scheme adds before block ``layer``, at positions that it has (see ``check``)."""
        vectors = self.vectors(layer, positions, x.dtype)
        return x if vectors is None else x + vectors

    def vectors(self, layer: int, positions: Int[Tensor, "*B T"], dtype: torch.dtype) -> Float[Tensor, "*B T D"] | None:
        """Compute what the scheme adds before block ``layer`` at positions that it has; None for nothing."""
        if layer < len(self.tables):
            table: PositionTable = self.tables[layer]  # type: ignore[assignment]
            return table.vectors(positions)
        if self.scheme == "sinusoidal" and layer == 0:
            return sinusoids(positions + self.first, d_model=self.width, dtype=dtype, form=self.sinusoids)
        return None

    def rotation(self, layout: Layout, dtype: torch.dtype) -> Rotation | None:
        """Compute the rotary angles, where the scheme has them."""
        return self.rotation_at(layout.positions, dtype)

    def rotation_at(self, positions: Int[Tensor, "*B T"], dtype: torch.dtype) -> Rotation | None:
        """Compute the rotary angles of positions, where the scheme has them."""
        if self.scheme != "rotary":
            return None
        return rotation(positions, d_head=self.d_head, base=self.rotary_base, dtype=dtype)

    def check(self, layout: Layout) -> None:
        """Raise ConfigError where an input is longer than what the scheme has vectors for."""
        if not self.tables and self.scheme != "sinusoidal":
            return
        # Positions are read back from the device only where padding leaves it open whether they fit.
        if layout.n_keys <= self.max_len:
            return
        needed = layout.n_keys if layout.mask is None else int(layout.positions.max()) + 1
        if needed > self.max_len:
            raise ConfigError(
                f"an input of {needed} tokens is longer than model.max_len = {self.max_len}, where model.positions = "
                f"{self.scheme} end; shorten the input"
            )
