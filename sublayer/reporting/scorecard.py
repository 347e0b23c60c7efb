"""A scorecard for people and programs: cells in words, as JSON and as CSV.

Reports, ``compare`` and ``evaluate --suite`` show it in the same way.
"""

import csv
import io
from dataclasses import dataclass
from typing import Any

from sublayer.numbers import DASH
from sublayer.objective.metric import Metric
from sublayer.study.results import Row, Scorecard

_OF_ARMS = (
    "mean ± standard deviation over seeds (of nested fine-tunings: over the means of the "
    "pre-trainings, and in brackets over the fine-tunings of one pre-training); of baselines ± the "
    "standard error over examples, about the same in all rows of a column"
)
_OF_MODELS = (
    "± the standard error over the examples, of bits per byte over windows of the text, of BLEU by "
    "drawing lines again; in brackets the standard deviation over seeds of fine-tuning"
)


@dataclass(frozen=True)
class ShownRow:
    """A row for people, a text for each column."""

    name: str
    kind: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class ShownCard:
    """A scorecard for people: columns with a score, the legend, and the lines below."""

    headings: list[str]
    rows: list[ShownRow]
    legend: str
    below: list[str]


def shown_card(card: Scorecard) -> ShownCard:
    """Format a scorecard: its rows, their descriptions, the reason for each dash, its notes."""
    columns = card.shown_columns()
    rows = []
    below = [f"{row.name}: {row.description}" for row in card.rows if row.description]
    labels = {column.name: column.label for column in card.columns}
    for row in card.rows:
        name = f"{row.name} (published)" if row.kind == "published" else row.name
        rows.append(ShownRow(name, row.kind, tuple(_shown(row, column) for column in columns)))
        by_reason: dict[str, list[str]] = {}
        for column_name, reason in row.reasons.items():
            by_reason.setdefault(reason, []).append(labels[column_name])
        for reason, without in by_reason.items():
            below.append(f"{DASH} {row.name}, {', '.join(without)}: {reason}")
    has_models = any(row.kind == "model" for row in card.rows)
    return ShownCard(
        headings=[column.label for column in columns],
        rows=rows,
        legend=_OF_MODELS if has_models else _OF_ARMS,
        below=[*below, *card.notes],
    )


def card_json(card: Scorecard) -> dict[str, Any]:
    """Return a scorecard as JSON, scores in each column's own unit."""
    rows = []
    for row in card.rows:
        cells = {name: dict(vars(cell)) for name, cell in row.cells.items()}
        described: dict[str, Any] = {"name": row.name, "kind": row.kind, "cells": cells}
        if row.kind == "model":
            described["reasons"] = dict(row.reasons)
        rows.append(described)
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
        "rows": rows,
    }


def card_csv(card: Scorecard) -> str:
    """Return a scorecard as CSV: a line a cell, values in each column's own unit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["row", "kind", "column", "value", "standard_error", "seed_sd", "seeds", "reason"]
    )
    for row in card.rows:
        for column in card.shown_columns():
            cell = row.cells.get(column.name)
            reason = row.reasons.get(column.name, "")
            if cell is not None:
                values = [cell.mean, cell.error, cell.inner_sd, cell.n_runs]
                writer.writerow([row.name, row.kind, column.name, *values, ""])
            elif reason:
                writer.writerow([row.name, row.kind, column.name, "", "", "", "", reason])
    return text.getvalue()


def _shown(row: Row, column: Metric) -> str:
    cell = row.cells.get(column.name)
    if cell is None:
        return DASH

    def form(value: float) -> str:
        return f"{column.factor * value:,.{column.decimals}f}"

    if row.kind == "published":
        # As it is printed, to whatever digits.
        return f"{column.factor * cell.mean:.6g}"
    text = form(cell.mean)
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
