"""Rows of the parts that ``[model]`` composes, and the notation of a block.

They are feed-forward networks, kinds of sub-layer and position schemes, read by errors, schema,
counts and models. A block is a list of residual sub-layers, each ``name[:variant][*step]``. The
cost of a sub-layer is a row of ``sublayer.model.estimates``, its module a row of
``sublayer.model.blocks``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from sublayer.config.table import LARGEST_FACTOR, MOST_ENTRIES
from sublayer.errors import ConfigError

Saved = Literal["nothing", "output", "input"]
"""Tensor that an activation saves for its backward pass."""

ACTIVATIONS: dict[str, Saved] = {
    "relu": "output",
    "gelu": "input",
    "swish": "input",
    "sigmoid": "output",
    "identity": "nothing",
}


@dataclass(frozen=True)
class Ffn:
    """Function of a network between its products: an activation, times a product where gated."""

    activation: str
    """A key of ``ACTIVATIONS``."""
    is_gated: bool

    @property
    def saves(self) -> Saved:
        """Return the tensor that the activation saves for its backward pass."""
        return ACTIVATIONS[self.activation]

    @property
    def n_inputs(self) -> int:
        """Count the matrix products before the activation."""
        return 2 if self.is_gated else 1


def networks_with(activation: str) -> tuple[str, ...]:
    """Return the networks that have an activation."""
    return tuple(name for name, ffn in FFNS.items() if ffn.activation == activation)


# Shazeer 2020 (2002.05202), eqs. 1-3 and 5-6.
FFNS: dict[str, Ffn] = {
    "relu": Ffn("relu", is_gated=False),
    "gelu": Ffn("gelu", is_gated=False),
    "swish": Ffn("swish", is_gated=False),
    "glu": Ffn("sigmoid", is_gated=True),
    "bilinear": Ffn("identity", is_gated=True),
    "reglu": Ffn("relu", is_gated=True),
    "geglu": Ffn("gelu", is_gated=True),
    "swiglu": Ffn("swish", is_gated=True),
}


@dataclass(frozen=True)
class SublayerKind:
    """Kind of sub-layer that an entry names."""

    attends_to: Literal["nothing", "itself", "memory"]
    """States that its queries attend to; memory is the states of an encoder."""
    shared_as: Literal["attention", "ffn"] | None
    """Its name in ``model.share``; None: it is never shared."""
    title: str
    """Name in diagrams."""
    has_variants: bool = False
    """True where a feed-forward network may stand behind the name, as in ``ffn:swiglu``."""
    is_recurrent: bool = False
    """True for a layer of an LSTM, which a block is never written with, and has no residual
    connection."""


SUBLAYERS: dict[str, SublayerKind] = {
    "attention": SublayerKind(attends_to="itself", shared_as="attention", title="Self-attention"),
    "cross": SublayerKind(attends_to="memory", shared_as="attention", title="Cross-attention"),
    "ffn": SublayerKind(
        attends_to="nothing", shared_as="ffn", title="Feed-forward network", has_variants=True
    ),
    "lstm": SublayerKind(attends_to="nothing", shared_as=None, title="LSTM", is_recurrent=True),
}


Count = Callable[[Any, int, int], int]
"""Count parameters from a resolved model, the blocks of a stack and its embeddings' width."""


def n_exact_buckets(n_buckets: int) -> int:
    """Count the buckets of one side that hold a single distance each: the first half."""
    return n_buckets // 2


@dataclass(frozen=True)
class PositionScheme:
    """Properties of a position scheme that are known from the settings alone."""

    implementation: str
    """The class that computes it, as ``module:class``."""
    adds_before: Literal["none", "first", "every"] = "none"
    """The blocks before which vectors are added to the residual stream."""
    in_attention: Literal["nothing", "rotation", "bias"] = "nothing"
    """Rotation of queries and keys, or bias of scores."""
    has_end: bool = False
    """True where there is no position from ``max_len`` on."""
    has_rows: bool = False
    """True where each position up to ``max_len`` has learned weights of its own."""
    even_width: Literal["embedding", "head"] | None = None
    """The width that must be even."""
    n_parameters: Count = lambda model, n_layers, width: 0
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
        n_parameters=lambda model, n_layers, width: model.max_len * width,
    ),
    "learned-per-layer": PositionScheme(
        "sublayer.model.positions:LayerwiseLearnedPositions",
        adds_before="every",
        has_end=True,
        has_rows=True,
        # The first one is added to the embeddings, which may be narrower than the residual stream.
        n_parameters=lambda model, n_layers, width: (
            model.max_len * (width + (n_layers - 1) * model.d_model)
        ),
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
        n_parameters=lambda model, n_layers, width: model.relative_buckets * model.n_heads,
    ),
    "none": PositionScheme("sublayer.model.positions:NoPositions"),
}


BLOCKS: dict[str, tuple[str, ...]] = {
    "transformer": ("attention", "ffn"),
    "macaron": ("ffn*0.5", "attention", "ffn*0.5"),
}


@dataclass(frozen=True)
class Entry:
    """One residual sub-layer of a block: ``x = x + step * f(x)``."""

    name: str
    variant: str | None
    """The name of its feed-forward network; None for attention."""
    step: float
    """Finite and not 0; below 0 it subtracts."""

    @property
    def kind(self) -> SublayerKind:
        """Return the kind of sub-layer that the name stands for."""
        return SUBLAYERS[self.name]

    @property
    def ffn(self) -> Ffn | None:
        """Return the feed-forward network; None for attention."""
        return None if self.variant is None else FFNS[self.variant]

    def __str__(self) -> str:
        variant = "" if self.variant is None else f":{self.variant}"
        step = "" if self.step == 1.0 else f"*{self.step!r}"
        return f"{self.name}{variant}{step}"


def parse_block(
    block: str | tuple[str, ...], *, default_ffn: str, field: str = "model.block"
) -> tuple[Entry, ...]:
    """Read a block's name or its list of entries.

    ``ffn`` entries without a variant get ``default_ffn``. Raises ConfigError, naming ``field``, for
    an unknown name, variant or step, for an empty list, and for one of too many entries.
    """
    if isinstance(block, str):
        if block not in BLOCKS:
            raise ConfigError(
                f"{field} = {block[:80]!r} is not one of {', '.join(BLOCKS)}, nor a list such as "
                "['ffn*0.5', 'attention', 'ffn*0.5']"
            )
        block = BLOCKS[block]
    if not block:
        raise ConfigError(f"{field} is an empty list; give at least one of attention, ffn")
    if len(block) > MOST_ENTRIES:
        raise ConfigError(f"{field} has {len(block):,} entries: give at most {MOST_ENTRIES}")
    entries = []
    for text in block:
        named = f"{field} entry {text[:80]!r}"
        entries.append(_parse_entry(text, default_ffn, named))
    return tuple(entries)


def with_cross(block: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Build the block of an encoder-decoder's decoder: a ``cross`` after each ``attention``.

    It has the step of the entry that it follows.
    """
    entries: list[Entry] = []
    for entry in block:
        entries.append(entry)
        if entry.kind.attends_to == "itself":
            entries.append(Entry("cross", None, entry.step))
    return tuple(entries)


def _parse_entry(text: str, default_ffn: str, named: str) -> Entry:
    written = {name: kind for name, kind in SUBLAYERS.items() if not kind.is_recurrent}
    head, star, step_text = text.partition("*")
    name, colon, variant = head.partition(":")
    takes_variant = name in written and written[name].has_variants
    try:
        step = float(step_text) if star else 1.0
    except ValueError:
        step = 0.0
    is_step = 0.0 < abs(step) <= LARGEST_FACTOR
    if name not in written or (colon and not (takes_variant and variant in FFNS)) or not is_step:
        able = [candidate for candidate, kind in written.items() if kind.has_variants]
        raise ConfigError(
            f"{named} is not name[:variant][*step]: the name is one of {', '.join(written)}; only "
            f"{' or '.join(able)} takes a variant, one of {', '.join(FFNS)}; the step, a number, "
            f"must be finite and not 0, at most {LARGEST_FACTOR:,.0f}"
        )
    return Entry(name, (variant or default_ffn) if takes_variant else None, step)
