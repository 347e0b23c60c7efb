"""No positions: causality alone tells the order."""

from typing import final

from sublayer.model.positions.base import Positions


@final
class NoPositions(Positions):
    """Do nothing."""
