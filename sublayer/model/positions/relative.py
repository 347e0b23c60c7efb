"""Relative positions in buckets: a learned number of each head for how far a key stands."""

from functools import lru_cache
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.config.architecture.positions import n_exact_buckets
from sublayer.config.architecture.stacks import StackShape
from sublayer.config.resolved import ResolvedModel
from sublayer.model.kernels.constants import constants
from sublayer.model.positions.base import Positions, distances
from sublayer.model.positions.diagonals import spread_diagonals
from sublayer.model.positions.learned_table import PositionTable


class BucketTable(PositionTable):
    """A number of each head for each bucket: ``[buckets, heads]``."""


@final
class RelativePositions(Positions):
    """Add to the scores of each head what its table has for the distance of key and query.

    Distances share buckets, the more of them the farther they are. One table serves all blocks of a
    stack. Where a token sees both sides of it, each side has half of the buckets.

    Source: Raffel et al. 2020 (1910.10683), sec. 2.1; as released with Mesh-TensorFlow.
    """

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__(config, shape)
        self.is_causal = shape.is_causal
        n_buckets = config.relative_buckets
        self.n_of_side = n_buckets if shape.is_causal else n_buckets // 2
        self.starts = bucket_starts(self.n_of_side, config.relative_distance)
        self.table = None
        if self.biases_scores:
            self.table = BucketTable(n_buckets, config.n_heads)

    def score_bias(
        self, queries: Int[Tensor, "... T"], keys: Int[Tensor, "... S"], dtype: torch.dtype
    ) -> Float[Tensor, "N H T S"]:
        """Look up the bias of each head from positions.

        Where those have one axis it follows from the offset of key and query alone: it is looked up
        once for each offset, and its gradient is summed over diagonals before it goes to the table.
        """
        assert self.table is not None, "a stack that attends to itself has a table"
        if queries.dim() > 1 or keys.dim() > 1:
            offsets = distances(queries, keys)  # [N, T, S]
            by_pair = self.table.vectors(self.buckets(offsets))  # [N, T, S, H]
            return by_pair.to(dtype).permute(0, 3, 1, 2).contiguous()  # [N, H, T, S]
        n_queries = queries.shape[0]
        n_keys = keys.shape[0]
        n_offsets = n_queries + n_keys - 1
        # From the last query to the first key, up to the first query and the last key.
        offsets = torch.arange(n_offsets, device=keys.device) + (keys[0] - queries[-1])
        by_offset = self.table.vectors(self.buckets(offsets)).to(dtype)  # [L, H]
        return spread_diagonals(by_offset.T.contiguous(), n_queries)[None]  # [1, H, T, S]

    def buckets(self, offsets: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
        """Compute the bucket of each offset, the position of a key less that of its query.

        Where a token sees both sides, what is behind it has the second half of the buckets; else it
        has the first of all, and is not seen.
        """
        if self.is_causal:
            return self._bucket_of_side(offsets.neg().clamp_min(0))
        bucket = self._bucket_of_side(offsets.abs())
        # In place: these are as many as there are scores of a row.
        return bucket.add_(offsets > 0, alpha=self.n_of_side)

    def _bucket_of_side(self, distance: Tensor) -> Tensor:
        # Made here: a buffer would not be made where weights are put into a model without any.
        starts = constants(self.starts[1:], torch.int64, distance)
        # Of 32 bits, as an index is kept for the gradient.
        return torch.bucketize(distance, starts, right=True, out_int32=True)


@lru_cache(maxsize=16)
def bucket_starts(n_buckets: int, farthest: int) -> tuple[int, ...]:
    """Compute the least distance of each bucket of one side, in tokens.

    The first half of the n buckets have one distance each; bucket ``e + k`` of the rest begins
    where ``(distance / e) ** (n - e)`` reaches ``(farthest / e) ** k``, with e exact buckets: their
    logarithms are equally far apart, and the last takes all from ``farthest`` on.

    Source: the same, as released. Departure: in whole numbers, which no machine rounds. In float32
    one that lies exactly at a boundary may fall below it; those of T5's settings do not.
    """
    n_exact = n_exact_buckets(n_buckets)
    n_far = n_buckets - n_exact
    starts = list(range(n_exact))
    for k in range(n_far):
        reached = farthest**k * n_exact ** (n_far - k)
        starts.append(_least_root(reached, n_far))
    return tuple(starts)


def _least_root(power: int, exponent: int) -> int:
    """Return the least whole number whose power is ``power`` or more."""
    low = 0
    high = 1
    while high**exponent < power:
        low = high
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if middle**exponent < power:
            low = middle
        else:
            high = middle
    return high
