"""What a diagram shows, from the input at its foot to the losses on top."""

from dataclasses import dataclass
from typing import Literal

Role = Literal["embedding", "norm", "attention", "recurrent", "ffn", "linear", "head", "loss"]
"""What a box is, by which it is coloured."""


@dataclass(frozen=True)
class Box:
    """Something that is computed."""

    role: Role
    title: str
    notes: tuple[str, ...] = ()
    """Short lines below the title."""


@dataclass(frozen=True)
class Sum:
    """A vector that is added to the stream, such as that of a position."""

    added: str


@dataclass(frozen=True)
class Residual:
    """A residual sub-layer: ``x + step * f(norm(x))``, or ``norm(x + step * f(x))``."""

    function: Box
    norm: Box | None
    is_pre_norm: bool
    step: float
    reads_memory: bool
    """Whether its keys and values are an encoder's states."""


@dataclass(frozen=True)
class Block:
    """The block that is repeated, its parts from the first to the last."""

    parts: tuple[Sum | Residual | Box, ...]
    """A box replaces the stream, as a layer of an LSTM does."""
    n_layers: int
    notes: tuple[str, ...] = ()
    """What its layers share."""
    loss: Box | None = None
    """What every layer below the last learns beside."""


@dataclass(frozen=True)
class Column:
    """A stack with what it reads and what reads it."""

    name: str
    """Empty where it is the only one."""
    reads: str
    below: tuple[Box | Sum, ...]
    block: Block
    above: tuple[Box, ...] = ()
    """Between the last block and the heads."""
    heads: tuple[tuple[Box, ...], ...] = ()
    """Chains of boxes side by side, each from the stack to its loss."""
    feeds_memory: bool = False
    """Whether the next column's blocks attend to what comes out of it."""


@dataclass(frozen=True)
class Figure:
    """The architecture of a recipe."""

    name: str
    title: str
    sizes: str
    """Its widths, heads and layers, in a line."""
    columns: tuple[Column, ...]
