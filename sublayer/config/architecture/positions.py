"""The position schemes, a row for each, which choices, errors, counts and models read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol


class Sizes(Protocol):
    """What of a resolved model the parameters of a position scheme are counted from."""

    @property
    def d_model(self) -> int:
        """Return the width of the residual stream."""

    @property
    def n_heads(self) -> int:
        """Return the number of attention heads."""

    @property
    def d_head(self) -> int:
        """Return the width of one head."""

    @property
    def max_len(self) -> int:
        """Return the tokens of the longest input."""

    @property
    def relative_buckets(self) -> int:
        """Return the numbers that a head has for distances."""


Count = Callable[[Sizes, int, int], int]
"""Count parameters from a resolved model, the blocks of a stack and its embeddings' width."""


def _no_parameters(model: Sizes, n_layers: int, width: int) -> int:
    return 0


def _one_table(model: Sizes, n_layers: int, width: int) -> int:
    return model.max_len * width


def _table_per_layer(model: Sizes, n_layers: int, width: int) -> int:
    # The first one is added to the embeddings, which may be narrower than the residual stream.
    return model.max_len * (width + (n_layers - 1) * model.d_model)


def _buckets_of_heads(model: Sizes, n_layers: int, width: int) -> int:
    return model.relative_buckets * model.n_heads


def n_exact_buckets(n_buckets: int) -> int:
    """Count the buckets of one side that hold a single distance each: the first half."""
    return n_buckets // 2


@dataclass(frozen=True)
class PositionScheme:
    """What of a position scheme is known from the settings alone."""

    implementation: str
    """The class that computes it, as ``module:class``."""
    adds_before: Literal["none", "first", "every"] = "none"
    """The blocks before which vectors are added to the residual stream."""
    in_attention: Literal["nothing", "rotation", "bias"] = "nothing"
    """Whether queries and keys are rotated, or scores biased."""
    has_end: bool = False
    """Whether there is no position from ``max_len`` on."""
    has_rows: bool = False
    """Whether each position up to ``max_len`` has learned weights of its own."""
    even_width: Literal["embedding", "head"] | None = None
    """The width that must be even."""
    n_parameters: Count = _no_parameters
    """Counts those of one stack."""


POSITIONS: dict[str, PositionScheme] = {
    "sinusoidal": PositionScheme(
        "sublayer.model.positions:SinusoidalPositions",
        adds_before="first",
        has_end=True,
        even_width="embedding",
    ),
    "learned": PositionScheme(
        "sublayer.model.positions:LearnedPositions",
        adds_before="first",
        has_end=True,
        has_rows=True,
        n_parameters=_one_table,
    ),
    "learned-per-layer": PositionScheme(
        "sublayer.model.positions:LayerwiseLearnedPositions",
        adds_before="every",
        has_end=True,
        has_rows=True,
        n_parameters=_table_per_layer,
    ),
    "rotary": PositionScheme(
        "sublayer.model.positions:RotaryPositions",
        in_attention="rotation",
        even_width="head",
    ),
    "alibi": PositionScheme(
        "sublayer.model.positions:AlibiPositions",
        in_attention="bias",
    ),
    "relative": PositionScheme(
        "sublayer.model.positions:RelativePositions",
        in_attention="bias",
        n_parameters=_buckets_of_heads,
    ),
    "none": PositionScheme("sublayer.model.positions:NoPositions"),
}
