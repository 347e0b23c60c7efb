"""A measure of a model, and its requirements."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from sublayer.evaluation.items import FromItems

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.data.store import Split


def _always(_: object) -> bool:
    return True


Basis = Literal["bytes", "items", "scores"]
"""``bytes``: the text, where tokenizers keep every byte of it; ``items``: the very items that were
scored; ``scores``: nothing that is known here."""


@dataclass(frozen=True)
class Metric:
    """A measure by which models are compared, and its good direction.

    A metric is made in the ``family.py`` of its objective. Files keep values as they are;
    ``label``, ``unit``, ``factor`` and ``decimals`` are for people.
    """

    name: str
    """Its key in scores and results."""
    label: str
    is_lower_better: bool
    from_items: FromItems | None = field(kw_only=True)
    """Computes it from the items that a test keeps; None, which has to be said: follows from
    none."""
    basis: Basis = "scores"
    """Common basis that values of two models need to be compared."""
    unit: str = ""
    """Of differences; empty: the label."""
    factor: float = 1.0
    """Values are shown times it: 100 makes a share a percentage."""
    decimals: int = 3
    """Of a shown value, at least; a study shows those that its differences ask for."""
    has_head: Callable[["Recipe"], bool] = _always
    """True where a recipe's model can be measured at all."""
    has_items: Callable[["Split"], bool] = _always
    """True where a split can."""
    asks: str = "a head"
    """Subject of ``has_head``."""
    head: str = ""
    """Missing part where ``has_head`` is False."""
    items: str = ""
    """Missing part where ``has_items`` is False."""

    @property
    def difference(self) -> str:
        """The unit of differences."""
        return self.unit or self.label
