"""The scorecard of a chain in words and numbers, the same in the report and on the terminal."""

from collections.abc import Mapping
from dataclasses import dataclass

from sublayer.objective.metric import Metric
from sublayer.study.report.number_format import DASH
from sublayer.study.scorecard import Cell, Row, Scorecard

LEGEND = (
    "mean ± standard deviation over seeds (of nested fine-tunings: over the means of the "
    "pre-trainings, and in brackets over the fine-tunings of one pre-training); of baselines ± the "
    "standard error over examples, about the same in all rows of a column"
)


@dataclass(frozen=True)
class ShownRow:
    """A row as people read it, a text for each column."""

    name: str
    kind: str
    cells: tuple[str, ...]


def headings(card: Scorecard) -> list[str]:
    """Return the names of the columns that have a score."""
    return [column.label for column in card.shown_columns()]


def shown_rows(card: Scorecard) -> list[ShownRow]:
    """Format the rows, arms first, what was published last."""
    columns = card.shown_columns()
    rows = []
    for row in card.rows:
        cells = tuple(_shown(row, column) for column in columns)
        rows.append(ShownRow(_named(row), row.kind, cells))
    return rows


def card_json(card: Scorecard) -> dict[str, object]:
    """Return a scorecard as JSON, scores in each column's own unit."""
    return {
        "columns": [
            {
                "name": column.name,
                "label": column.label,
                "is_lower_better": column.is_lower_better,
                "factor": column.factor,
            }
            for column in card.shown_columns()
        ],
        "rows": [_row(row) for row in card.rows],
    }


def reason_lines(card: Scorecard) -> list[str]:
    """Say of every dash of a model why it is there, what has one reason in one line."""
    labels = {column.name: column.label for column in card.columns}
    lines = []
    for row in card.rows:
        by_reason: dict[str, list[str]] = {}
        for name, reason in row.reasons.items():
            by_reason.setdefault(reason, []).append(labels[name])
        for reason, own in by_reason.items():
            lines.append(f"{DASH} {row.name}, {', '.join(own)}: {reason}")
    return lines


def _row(row: Row) -> dict[str, object]:
    described: dict[str, object] = {
        "name": row.name,
        "kind": row.kind,
        "cells": _cells(row.cells),
    }
    if row.kind == "model":
        described["reasons"] = dict(row.reasons)
    return described


def _cells(cells: Mapping[str, Cell]) -> dict[str, dict[str, float | int | None]]:
    return {name: dict(vars(cell)) for name, cell in cells.items()}


def _named(row: Row) -> str:
    return f"{row.name} (published)" if row.kind == "published" else row.name


def _shown(row: Row, column: Metric) -> str:
    cell = row.cells.get(column.name)
    if cell is None:
        return DASH
    decimals = column.decimals

    def form(value: float) -> str:
        return f"{column.factor * value:,.{decimals}f}"

    text = form(cell.mean)
    if row.kind == "published":
        # As it is printed, to whatever digits.
        return f"{column.factor * cell.mean:.6g}"
    spread = cell.sd if row.kind == "arm" else cell.error
    if spread is not None:
        text += f" ± {form(spread)}"
    if cell.inner_sd is not None:
        text += f" ({form(cell.inner_sd)})"
    if cell.n_collapsed and cell.n_runs == 1 and row.kind == "model":
        text += ", collapsed"
    elif cell.n_collapsed:
        text += f", {cell.n_collapsed} of {cell.n_runs} collapsed"
    return text
