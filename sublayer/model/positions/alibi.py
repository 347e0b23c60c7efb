"""ALiBi, attention with linear biases: scores fall with the distance, at a slope of each head."""

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.config.architecture.stacks import StackShape
from sublayer.config.resolved import ResolvedModel
from sublayer.model.kernels.constants import constants
from sublayer.model.positions.base import Positions, distances


@final
class AlibiPositions(Positions):
    """Add ``-slope * distance`` to the scores of each head.

    Source: Press et al. 2022 (2108.12409), sec. 3. Departure: where a token sees both sides of it,
    the distance is the same to either, of which the paper has nothing.
    """

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__(config, shape)
        self.slopes = slopes(config.n_heads)

    def score_bias(
        self, queries: Int[Tensor, "... T"], keys: Int[Tensor, "... S"], dtype: torch.dtype
    ) -> Float[Tensor, "N H T S"]:
        """Compute the bias of each head from positions."""
        distance = distances(queries, keys).abs_()  # [N, T, S]
        distance = distance.to(dtype)[:, None]  # [N, 1, T, S]
        falls = constants(self.slopes, dtype, distance).neg_()
        return falls[:, None, None] * distance  # [N, H, T, S]


def slopes(n_heads: int) -> list[float]:
    """Compute the slope of each head: ``2 ** (-8 i / n)`` for i from 1 to n, a power of two.

    Other numbers of heads take the slopes of the next lower power of two, then every other slope of
    twice as many, from the first on, as released.
    """
    n = 1 << (n_heads.bit_length() - 1)  # the power of two that is not above
    own = []
    for i in range(1, n + 1):
        own.append(2.0 ** (-8 * i / n))
    n_missing = n_heads - n
    if n_missing == 0:
        return own
    every_other = slopes(2 * n)[::2]
    return own + every_other[:n_missing]
