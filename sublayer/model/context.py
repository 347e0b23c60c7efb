"""What sub-layers need to know beyond their input."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from sublayer.model.cache import KeyValues, MemoryKeyValues
from sublayer.model.layout import Layout
from sublayer.model.positions import Rotation


@dataclass(frozen=True)
class Memory:
    """What an encoder made of a text, and how a decoder's tokens see it: all of its real tokens.

    A decoder may have several rows for each of its rows, one after another.
    """

    states: Float[Tensor, "B S D"]
    layout: Layout


@dataclass(frozen=True)
class Context:
    """The batch's layout, its rotary angles, what an attention keeps from earlier calls, and what a decoder reads."""

    layout: Layout
    rotation: Rotation | None
    kept: KeyValues | MemoryKeyValues | None = None
    memory: Memory | None = None
