"""What a measure found of a model: scores, what they are held against, or why there are none."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sublayer.objective.metric import Metric
from sublayer.study.scorecard import Cell

CHANCE, MAJORITY, WORDS = "chance", "majority", "words"
"""Names of rows that others are held against."""


@dataclass(frozen=True)
class Column:
    """A column of the scorecard; values are shown times ``factor``."""

    name: str
    label: str
    is_lower_better: bool = False
    factor: float = 1.0
    decimals: int = 1

    def metric(self) -> Metric:
        """Return it as what scorecards have."""
        return Metric(
            self.name,
            self.label,
            self.is_lower_better,
            from_items=None,
            factor=self.factor,
            decimals=self.decimals,
        )


def points(name: str, label: str) -> Column:
    """Return the column of a score that is shown in points, 0 to 100."""
    return Column(name, label, factor=100.0)


@dataclass(frozen=True)
class Found:
    """What a measure found of one model."""

    columns: Sequence[Column]
    cells: Mapping[str, Cell]
    """By column."""
    others: Mapping[str, Mapping[str, Cell]] = field(default_factory=dict)
    """By row and column: what the scores are held against."""
    notes: Sequence[str] = ()
    reason: str = ""
    """Why there are no cells; empty where there are."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def from_json(content: Mapping[str, Any]) -> Found:
    """Return what ``to_json`` was made of."""
    others = {row: _cells(cells) for row, cells in content["others"].items()}
    return Found(
        columns=[Column(**each) for each in content["columns"]],
        cells=_cells(content["cells"]),
        others=others,
        notes=content["notes"],
        reason=content["reason"],
    )


def _cells(content: Mapping[str, Mapping[str, Any]]) -> dict[str, Cell]:
    return {name: Cell(**cell) for name, cell in content.items()}
