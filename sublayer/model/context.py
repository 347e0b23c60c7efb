"""What sub-layers need to know beyond their input."""

from dataclasses import dataclass

from sublayer.model.cache import KeyValues
from sublayer.model.layout import Layout
from sublayer.model.positions import Rotation


@dataclass(frozen=True)
class Context:
    """The batch's layout, its rotary angles, and what an attention keeps from earlier calls."""

    layout: Layout
    rotation: Rotation | None
    kept: KeyValues | None = None
