"""Position schemes: their protocol, and a class for each scheme."""

import math
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, ClassVar, Literal, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sublayer.config.architecture import POSITIONS, n_exact_buckets
from sublayer.config.recipe import ResolvedModel
from sublayer.config.roles import Role
from sublayer.config.stacks import StackShape, embedding_width
from sublayer.errors import ConfigError
from sublayer.model.context import Layout, Rotations, rotation
from sublayer.model.kernels.choice import constants


def distances(queries: Int[Tensor, "... T"], keys: Int[Tensor, "... S"]) -> Int[Tensor, "N T S"]:
    """Compute how far each key stands behind each query, in tokens; negative before it.

    "Behind" is later in the text. N is 1 where positions of both have one axis, those of all rows;
    else it is the number of rows.
    """
    offsets = keys[..., None, :] - queries[..., :, None]
    if offsets.dim() == 3:
        return offsets
    return offsets[None]


class Positions(nn.Module):
    """The positions of one stack. Methods do nothing: a scheme overrides those that it needs.

    Parameters belong to the stack: results are computed once a pass and shared by its blocks.
    """

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__()
        self.name = config.positions
        self.max_len = config.max_len
        is_bias = POSITIONS[config.positions].in_attention == "bias"
        self.biases_scores = is_bias and shape.attends_to_itself

    def vectors(
        self, layer: int, positions: Int[Tensor, "*B T"], dtype: torch.dtype
    ) -> Float[Tensor, "*B T D"] | None:
        """Compute the vectors added before block ``layer`` at positions within ``check``; or None.

        Before the first block D is the width of the embeddings, to which it is added there.
        """
        return None

    @property
    def input_table(self) -> Float[Tensor, "P W"] | None:
        """The vectors that are added before the first block, a row each; None where none is so."""
        return None

    def rotations(self, positions: Int[Tensor, "*B T"], dtype: torch.dtype) -> Rotations | None:
        """Compute the rotations of queries and keys at their positions; None for none.

        They serve all blocks and heads of the stack.
        """
        return None

    def score_bias(
        self, queries: Int[Tensor, "... T"], keys: Int[Tensor, "... S"], dtype: torch.dtype
    ) -> Float[Tensor, "N H T S"] | None:
        """Compute the bias of scores from the positions of queries and keys; None for none.

        N is 1 where the positions are those of all rows, else their number. Positions of one axis
        are consecutive. A bias depends on the distance of a key from its query alone. Unseen keys
        are hidden elsewhere: the bias need only be finite there. Not called where
        ``biases_scores`` is False.
        """
        return None

    def add(
        self, x: Float[Tensor, "B T D"], layer: int, positions: Int[Tensor, "*B T"]
    ) -> Float[Tensor, "B T D"]:
        """Add the vectors that the scheme has before block ``layer``."""
        vectors = self.vectors(layer, positions, x.dtype)
        return x if vectors is None else x + vectors

    def check(self, layout: Layout) -> None:
        """Raise ConfigError where an input is longer than the positions that there are.

        Real tokens count, and all padding behind them as one. A scheme without an end takes any.
        """
        if not POSITIONS[self.name].has_end:
            return
        # Positions are read back from the device only where padding leaves it open whether they
        # fit.
        if layout.n_keys <= self.max_len:
            return
        needed = layout.n_keys
        if layout.mask is not None:
            needed = int(layout.positions.max()) + 1
        if needed > self.max_len:
            raise ConfigError(
                f"an input of {needed} tokens is longer than model.max_len = {self.max_len}, "
                f"where model.positions = {self.name} end; shorten the input"
            )


@final
class NoPositions(Positions):
    """Do nothing."""


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


class PositionTable(nn.Module):
    """A learned vector for each position, or for whatever else a scheme numbers."""

    roles: ClassVar[Mapping[str, Role]] = {"weight": "positions"}

    def __init__(self, n_rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_rows, width))

    def vectors(self, indices: Int[Tensor, "*B T"]) -> Float[Tensor, "*B T D"]:
        """Look up rows by their indices."""
        return nn.functional.embedding(indices, self.weight)


@final
class LearnedPositions(Positions):
    """Add a row of a table before the first block. Source: Gehring et al. 2017 (1705.03122)."""

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__(config, shape)
        table = PositionTable(self.max_len, embedding_width(config))
        # A list, as of the scheme with a table for each layer: one name for the weights of both.
        self.tables = nn.ModuleList([table])

    def vectors(
        self, layer: int, positions: Int[Tensor, "*B T"], dtype: torch.dtype
    ) -> Float[Tensor, "*B T D"] | None:
        """Look up the vectors of positions, before the first block alone."""
        if layer > 0:
            return None
        return nn.functional.embedding(positions, self.input_table)

    @property
    def input_table(self) -> Float[Tensor, "P W"]:
        """The vectors of all positions."""
        table: PositionTable = self.tables[0]  # type: ignore[assignment]
        return table.weight


@final
class LayerwiseLearnedPositions(Positions):
    """Add a row of a table of its own before each block. Source: Al-Rfou et al. 2018 (1808.04444).

    The first table is as wide as the embeddings, to which it is added.
    """

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__(config, shape)
        further = [config.d_model] * (shape.n_layers - 1)
        widths = [embedding_width(config), *further]
        self.tables = nn.ModuleList(PositionTable(self.max_len, width) for width in widths)

    def vectors(
        self, layer: int, positions: Int[Tensor, "*B T"], dtype: torch.dtype
    ) -> Float[Tensor, "*B T D"]:
        """Look up the vectors of positions in the block's table."""
        table: PositionTable = self.tables[layer]  # type: ignore[assignment]
        return table.vectors(positions)


def spread_diagonals(by_offset: Float[Tensor, "H L"], n_queries: int) -> Float[Tensor, "H T S"]:
    """Spread numbers of offsets over the pairs of ``n_queries`` queries with keys.

    Query t and key s have number ``T - 1 - t + s``, of L = T + S - 1. A gradient is summed over
    diagonals, which adds rows: what indexing would scatter one by one.
    """
    if n_queries == 1:
        return by_offset[:, None]
    spread: Tensor = _Spread.apply(by_offset, n_queries)  # type: ignore[no-untyped-call]
    return spread


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, by_offset: Tensor, n_queries: int) -> Tensor:
        n_keys = by_offset.shape[1] - n_queries + 1
        # Window t is that of the last query but t.
        windows = by_offset.unfold(1, n_keys, 1)  # [H, T, S]
        return windows.flip(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        n_heads, n_queries, n_keys = grad.shape
        n_offsets = n_queries + n_keys - 1
        total = grad.new_empty(n_heads, n_offsets)
        # Rows of L - 1 numbers in a storage of rows of L: each is one further left than the last.
        aligned = grad.new_zeros(n_queries * n_offsets)
        inner = aligned[n_queries - 1 :][: n_queries * (n_offsets - 1)]
        skewed = inner.view(n_queries, n_offsets - 1)[:, :n_keys]
        # A head at a time, which holds little beside the gradient.
        for head in range(n_heads):
            skewed.copy_(grad[head])
            torch.sum(aligned.view(n_queries, n_offsets), 0, out=total[head])
        return total, None


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

        Where a token sees both sides, keys behind it have the second half of the buckets; else it
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


@final
class RotaryPositions(Positions):
    """Rotate each head's queries and keys. Source: Su et al. 2021 (2104.09864), sec. 3.2.2."""

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__(config, shape)
        self.d_head = config.d_head
        self.base = config.rotary_base

    def rotations(self, positions: Int[Tensor, "*B T"], dtype: torch.dtype) -> Rotations:
        """Compute the angles of positions, the same of queries and keys."""
        both = rotation(positions, d_head=self.d_head, base=self.base, dtype=dtype)
        return Rotations(both, both)


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
    powers = []
    for i in range(1, n + 1):
        powers.append(2.0 ** (-8 * i / n))
    n_missing = n_heads - n
    if n_missing == 0:
        return powers
    every_other = slopes(2 * n)[::2]
    return powers + every_other[:n_missing]


def build_positions(config: ResolvedModel, shape: StackShape) -> Positions:
    """Build the positions of a stack, as ``config.positions`` names them."""
    return position_class(config.positions)(config, shape)


def position_class(name: str) -> type[Positions]:
    """Return the class that a row's ``implementation`` names, as ``module:class``."""
    module, _, attribute = POSITIONS[name].implementation.partition(":")
    scheme: type[Positions] = getattr(import_module(module), attribute)
    assert issubclass(scheme, Positions), f"{scheme} does not follow the protocol of positions"
    return scheme
