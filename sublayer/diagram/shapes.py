"""The shapes of a drawn diagram, in pixels; heights are measured upwards from its foot."""

from dataclasses import dataclass, field
from typing import Literal

from sublayer.diagram.figure import Role

Point = tuple[float, float]
"""Right of the left edge, and above the foot."""
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class Rectangle:
    """A rounded box with lines of text in its middle, or a panel without any."""

    x: float
    bottom: float
    width: float
    height: float
    role: Role | Literal["panel"]
    title: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wire:
    """A line through points, with an arrow at its end where it enters something."""

    points: tuple[Point, ...]
    has_arrow: bool = False


@dataclass(frozen=True)
class Plus:
    """A sum on the stream."""

    at: Point


@dataclass(frozen=True)
class Label:
    """A line of text beside what it is of."""

    at: Point
    text: str
    style: Literal["strong", "note", "input", "step"]
    anchor: Anchor = "start"


@dataclass
class Drawing:
    """All shapes of a diagram, in the order in which they cover each other."""

    width: float = 0.0
    height: float = 0.0
    panels: list[Rectangle] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    boxes: list[Rectangle] = field(default_factory=list)
    sums: list[Plus] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
