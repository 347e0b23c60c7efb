"""Position schemes: their common interface, and a class for each scheme."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sublayer.config.model import POSITIONS, Role, n_exact_buckets
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import StackShape, embedding_width, has_rotary_kernel, n_rotated
from sublayer.errors import ConfigError
from sublayer.model.context import Layout, Rotations, rotation
from sublayer.model.kernels.compiled import Turn
from sublayer.model.kernels.elementwise import constants
from sublayer.model.layers import load_class


def distances(queries: Int[Tensor, "... T"], keys: Int[Tensor, "... S"]) -> Int[Tensor, "N T S"]:
    """Compute the difference of positions, key minus query, in tokens.

    N is 1 if both have a single axis, for all rows; else the number of rows.
    """
    offsets = keys[..., None, :] - queries[..., :, None]
    if offsets.dim() == 3:
        return offsets
    return offsets[None]


class Positions(nn.Module):
    """Position scheme of a stack. Methods do nothing by default; schemes override them.

    Parameters belong to the stack: results are computed once per pass and shared by its blocks.
    """

    is_per_block: ClassVar[bool] = False
    """Whether each block has its own table."""

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__()
        self.name = config.positions
        self.max_len = config.max_len
        is_bias = POSITIONS[config.positions].in_attention == "bias"
        self.biases_scores = is_bias and shape.attends_to_itself

    def vectors(
        self, layer: int, positions: Int[Tensor, "*B T"], dtype: torch.dtype
    ) -> Float[Tensor, "*B T D"] | None:
        """Compute the vectors added before block ``layer``, at valid positions; None for none.

        Before the first block, D is the width of the embeddings.
        """
        return None

    def table_before(self, layer: int) -> "PositionTable | None":
        """Return the learned table of the vectors added before block ``layer``; None if none."""
        return None

    @property
    def input_table(self) -> Float[Tensor, "P W"] | None:
        """Table of the vectors added before the first block; None if none."""
        table = self.table_before(0)
        return None if table is None else table.weight

    def rotations(self, positions: Int[Tensor, "*B T"], dtype: torch.dtype) -> Rotations | None:
        """Compute the rotations of queries and keys; None for none.

        All blocks and heads of the stack share them.
        """
        return None

    def local_rotations(
        self, positions: Int[Tensor, "*B T"], dtype: torch.dtype
    ) -> Rotations | None:
        """Compute the rotations of local attentions; None for those of all."""
        return None

    def score_bias(
        self, queries: Int[Tensor, "... T"], keys: Int[Tensor, "... S"], dtype: torch.dtype
    ) -> Float[Tensor, "N H T S"] | None:
        """Compute the attention bias from positions of queries and keys; None for none.

        N is 1 if positions apply to all rows, else the number of rows. Positions of a single axis
        are consecutive. The bias depends only on the distance between key and query, and at masked
        keys it need only be finite. It is called only if ``biases_scores``.
        """
        return None

    def add(
        self, x: Float[Tensor, "B T D"], layer: int, positions: Int[Tensor, "*B T"]
    ) -> Float[Tensor, "B T D"]:
        """Add the scheme's vectors before block ``layer``."""
        vectors = self.vectors(layer, positions, x.dtype)
        return x if vectors is None else x + vectors

    def check(self, layout: Layout) -> None:
        """Raise ConfigError where an input exceeds the scheme's maximum length.

        Real tokens count, and all padding at the right counts as one. Schemes without a maximum
        take any length.
        """
        if not POSITIONS[self.name].has_end or torch.compiler.is_exporting():
            return
        # Positions are read back from the device only if padding hides the length.
        if layout.n_keys <= self.max_len:
            return
        needed = layout.n_keys
        if layout.mask is not None:
            needed = int(layout.positions.max()) + 1
        if needed > self.max_len:
            raise ConfigError(
                f"an input of {needed} tokens exceeds model.max_len = {self.max_len}, the maximum "
                f"of model.positions = {self.name}: shorten the input"
            )


@final
class NoPositions(Positions):
    """Scheme without positions."""


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
        """Compute the sinusoids of positions, only before the first block."""
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
    """Compute sines (first half of the features) and cosines (second half), or interleaved.

    ``d_model`` is even and counts both.

    Source: Vaswani et al. 2017, sec. 3.5. ``interleaved`` is its formula: feature 2 i is the sine
    and feature 2 i + 1 the cosine of position / 10000^(2 i / d_model). Departures of the others, as
    released: the halves are not interleaved; the exponents of 10000 run from 0 to -1, inclusive in
    tensor2tensor and fairseq, exclusive in marian and the formula. fairseq computes in float32,
    marian rounds to float32; the others use float64 here.
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


class PositionTable(nn.Module):
    """Learned vector for each position, or for another index of a scheme."""

    roles: ClassVar[Mapping[str, Role]] = {"weight": "positions"}

    def __init__(self, n_rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_rows, width))

    def vectors(self, indices: Int[Tensor, "*B T"]) -> Float[Tensor, "*B T D"]:
        """Look up rows by their indices."""
        return nn.functional.embedding(indices, self.weight)


class LearnedPositions(Positions):
    """Add a row of a table before the first block. Source: Gehring et al. 2017 (1705.03122).

    The table has the width of the embeddings.
    """

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__(config, shape)
        n_further = shape.n_layers - 1 if self.is_per_block else 0
        widths = [embedding_width(config), *[config.d_model] * n_further]
        self.tables = nn.ModuleList(PositionTable(self.max_len, width) for width in widths)

    def table_before(self, layer: int) -> PositionTable | None:
        """Return the table of vectors added before block ``layer``; None after the last one."""
        if layer >= len(self.tables):
            return None
        table: PositionTable = self.tables[layer]  # type: ignore[assignment]
        return table

    def vectors(
        self, layer: int, positions: Int[Tensor, "*B T"], dtype: torch.dtype
    ) -> Float[Tensor, "*B T D"] | None:
        """Look up the vectors of positions in the block's table."""
        table = self.table_before(layer)
        return None if table is None else table.vectors(positions)


@final
class LayerwiseLearnedPositions(LearnedPositions):
    """Add a row of a table before each block. Source: Al-Rfou et al. 2018 (1808.04444)."""

    is_per_block = True


class _Spread(torch.autograd.Function):
    """Spread values per offset ``[H, L]`` over the pairs of T queries and S keys ``[H, T, S]``.

    Query t and key s get value ``T - 1 - t + s`` of L = T + S - 1. The gradient sums diagonals by
    adding rows, whereas indexing would scatter single elements.
    """

    @staticmethod
    def forward(ctx: Any, by_offset: Tensor, n_queries: int) -> Tensor:
        n_keys = by_offset.shape[1] - n_queries + 1
        # Window t belongs to query T - 1 - t.
        windows = by_offset.unfold(1, n_keys, 1)  # [H, T, S]
        return windows.flip(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        n_heads, n_queries, n_keys = grad.shape
        n_offsets = n_queries + n_keys - 1
        total = grad.new_empty(n_heads, n_offsets)
        # Rows of L - 1 elements in a storage of rows of L, so that each row is shifted by one.
        aligned = grad.new_zeros(n_queries * n_offsets)
        inner = aligned[n_queries - 1 :][: n_queries * (n_offsets - 1)]
        skewed = inner.view(n_queries, n_offsets - 1)[:, :n_keys]
        # Head by head, to need little memory besides the gradient.
        for head in range(n_heads):
            skewed.copy_(grad[head])
            torch.sum(aligned.view(n_queries, n_offsets), 0, out=total[head])
        return total, None


class BucketTable(PositionTable):
    """Learned value for each bucket and head: ``[buckets, heads]``."""


@final
class RelativePositions(Positions):
    """Add a learned bias to scores, by head and bucketed distance of key and query.

    Buckets widen with the distance. All blocks of a stack share one table. With bidirectional
    attention each side has half of the buckets.

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
        """Look up the bias of each head by positions.

        For positions of a single axis it is looked up once per offset, and its gradient is summed
        over diagonals before it reaches the table.
        """
        assert self.table is not None, "a stack with self-attention must have a table"
        # An exported graph has no windows of a length that is a symbol.
        if queries.dim() > 1 or keys.dim() > 1 or torch.compiler.is_exporting():
            offsets = distances(queries, keys)  # [N, T, S]
            by_pair = self.table.vectors(self.buckets(offsets))  # [N, T, S, H]
            return by_pair.to(dtype).permute(0, 3, 1, 2).contiguous()  # [N, H, T, S]
        n_queries = queries.shape[0]
        n_keys = keys.shape[0]
        n_offsets = n_queries + n_keys - 1
        # From the offset of the first key to the last query up to the last key and the first query.
        offsets = torch.arange(n_offsets, device=keys.device) + (keys[0] - queries[-1])
        by_offset = self.table.vectors(self.buckets(offsets)).to(dtype)  # [L, H]
        by_head = by_offset.T.contiguous()  # [H, L]
        if n_queries == 1:
            return by_head[None, :, None]  # [1, H, 1, S]
        spread: Tensor = _Spread.apply(by_head, n_queries)  # type: ignore[no-untyped-call]
        return spread[None]  # [1, H, T, S]

    def buckets(self, offsets: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
        """Compute the bucket of each offset, which is the key's position minus the query's.

        With bidirectional attention later keys are in the second half of the buckets; otherwise
        they are in the first bucket, and masked.
        """
        if self.is_causal:
            return self._bucket_of_side(offsets.neg().clamp_min(0))
        bucket = self._bucket_of_side(offsets.abs())
        # In place, since the tensor is as large as the scores of a row.
        return bucket.add_(offsets > 0, alpha=self.n_of_side)

    def _bucket_of_side(self, distance: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            # A table, since ONNX has no search.
            last = self.starts[-1]
            table = [bisect_right(self.starts, each) - 1 for each in range(last + 1)]
            return torch.tensor(table, device=distance.device)[distance.clamp_max(last)]
        # Not a buffer, which would be missing when weights are loaded into a meta model.
        starts = constants(self.starts[1:], torch.int64, distance)
        # int32, since the index is saved for the gradient.
        return torch.bucketize(distance, starts, right=True, out_int32=True)


@lru_cache(maxsize=16)
def bucket_starts(n_buckets: int, farthest: int) -> tuple[int, ...]:
    """Compute the least distance of each bucket of one side, in tokens.

    The first half of the n buckets have one distance each. With e such exact buckets, bucket
    ``e + k`` begins where ``(distance / e) ** (n - e)`` reaches ``(farthest / e) ** k``: logarithms
    are equidistant, and the last bucket has all distances from ``farthest`` on.

    Source: ibid., as released. Departure: computed in integers, without rounding. In float32 a
    distance exactly at a boundary may fall below it, though not with T5's settings.
    """
    n_exact = n_exact_buckets(n_buckets)
    n_far = n_buckets - n_exact
    starts = list(range(n_exact))
    all_distances = range(1, max(farthest, n_exact) + 1)
    for k in range(n_far):
        reached = farthest**k * n_exact ** (n_far - k)
        starts.append(1 + bisect_left(all_distances, reached, key=lambda distance: distance**n_far))
    return tuple(starts)


@final
class RotaryPositions(Positions):
    """Rotate each head's queries and keys. Source: Su et al. 2021 (2104.09864), sec. 3.2.2."""

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__(config, shape)
        self.d_head = config.d_head
        self.n_rotated = n_rotated(config, config.d_head)
        self.base = config.rotary_base
        local = config.rotary_local_base
        self.local_base = None if isinstance(local, str) else local
        self.layout = config.rotary_layout
        self.has_kernel = has_rotary_kernel(config)
        self.compiled: Turn | None = None

    def rotations(self, positions: Int[Tensor, "*B T"], dtype: torch.dtype) -> Rotations:
        """Compute the rotation of positions, the same for queries and keys."""
        return self._rotations(positions, dtype, self.base)

    def local_rotations(
        self, positions: Int[Tensor, "*B T"], dtype: torch.dtype
    ) -> Rotations | None:
        """Compute the rotation of local attentions; None if it has the same base."""
        if self.local_base is None:
            return None
        return self._rotations(positions, dtype, self.local_base)

    def _rotations(self, positions: Tensor, dtype: torch.dtype, base: float) -> Rotations:
        both = rotation(
            positions,
            d_head=self.d_head,
            base=base,
            dtype=dtype,
            n_rotated=self.n_rotated,
            layout=self.layout,
        )
        both = replace(both, compiled=self.compiled)
        return Rotations(both, both)


@final
class AlibiPositions(Positions):
    """Add ``-slope * distance`` to the scores of each head.

    Source: Press et al. 2022 (2108.12409), sec. 3. Departure: with bidirectional attention, which
    the paper lacks, distances are symmetric.
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

    Another number of heads has the slopes of the next lower power of two, followed by every other
    slope of twice that power, from the first on, as released.
    """
    n = 1 << (n_heads.bit_length() - 1)  # largest power of two up to the number of heads
    powers = []
    for i in range(1, n + 1):
        powers.append(2.0 ** (-8 * i / n))
    n_missing = n_heads - n
    if n_missing == 0:
        return powers
    every_other = slopes(2 * n)[::2]
    return powers + every_other[:n_missing]


def build_positions(config: ResolvedModel, shape: StackShape) -> Positions:
    """Build the position scheme ``config.positions`` of a stack."""
    scheme: type[Positions] = load_class(POSITIONS[config.positions].implementation)
    assert issubclass(scheme, Positions), f"{scheme} is not a subclass of Positions"
    return scheme(config, shape)
