"""A table of scores: arms or models, baselines and published values, by column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sublayer.objective.metric import Metric


@dataclass(frozen=True)
class Cell:
    """A score, its spread over runs and its standard error over examples."""

    mean: float
    sd: float | None = None
    """Over pre-trainings; over fine-tunings where there is one pre-training. None of one."""
    inner_sd: float | None = None
    """Over the fine-tunings of a pre-training, pooled; None where each has one."""
    error: float | None = None
    """Standard error over the examples that are scored, the mean of the runs'; of a speed, over
    what was timed."""
    n_runs: int = 1
    n_collapsed: int = 0
    """Runs that answer nothing."""


@dataclass(frozen=True)
class Row:
    """The scores of an arm, of a model by itself, of a baseline, or published ones."""

    name: str
    kind: Literal["arm", "model", "baseline", "published"]
    cells: Mapping[str, Cell]
    """By the column's name; those that are missing have none."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """By the column's name, why a model has no score there."""
    description: str = ""


@dataclass(frozen=True)
class Scorecard:
    """Scores in each column's own unit; times the column's factor they are shown."""

    columns: Sequence[Metric]
    rows: Sequence[Row]
    notes: Sequence[str] = ()

    def shown_columns(self) -> list[Metric]:
        """Return the columns in which a row has a score, or a reason for having none."""
        shown = {name for row in self.rows for name in (*row.cells, *row.reasons)}
        return [column for column in self.columns if column.name in shown]
