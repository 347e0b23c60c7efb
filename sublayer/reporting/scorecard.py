"""A scorecard for people and programs: a table of its cells, as JSON and as CSV.

Shared by reports, ``compare`` and ``evaluate --suite``.
"""

from typing import Any

from sublayer.numbers import DASH, plus_minus
from sublayer.study.results import Scorecard
from sublayer.tables import Sheet, as_csv

_OF_ARMS = (
    "Mean ± standard deviation over seeds (of nested fine-tunings: over the means of the "
    "pre-trainings, and in brackets over the fine-tunings of one pre-training); of baselines ± the "
    "standard error over examples, about the same in all rows of a column"
)
_OF_MODELS = (
    "± the standard error over the examples, of bits per byte over windows of the text, of BLEU by "
    "drawing lines again; in brackets the standard deviation over seeds of fine-tuning"
)


def card_sheet(card: Scorecard) -> Sheet:
    """Return a scorecard: its rows, their descriptions, the reason for each dash, its notes."""
    columns = card.shown_columns()
    labels = {column.name: column.label for column in card.columns}
    rows = []
    below = [f"{row.name}: {row.description}" for row in card.rows if row.description]
    for row in card.rows:
        cells = [f"{row.name} (published)" if row.kind == "published" else row.name]
        for column in columns:
            cell = row.cells.get(column.name)
            if cell is None:
                cells.append(DASH)
                continue
            mean, error, inner = (
                "" if value is None else f"{column.factor * value:,.{column.decimals}f}"
                for value in (
                    cell.mean,
                    cell.sd if row.kind == "arm" else cell.error,
                    cell.inner_sd,
                )
            )
            text = plus_minus(mean, error) if error else mean
            text += f" ({inner})" if inner else ""
            if cell.n_collapsed and cell.n_runs == 1 and row.kind == "model":
                text += ", collapsed"
            elif cell.n_collapsed:
                text += f", {cell.n_collapsed} of {cell.n_runs} collapsed"
            # A published score as printed, with its digits.
            is_published = row.kind == "published"
            cells.append(f"{column.factor * cell.mean:.6g}" if is_published else text)
        rows.append(cells)
        by_reason: dict[str, list[str]] = {}
        for name, reason in row.reasons.items():
            by_reason.setdefault(reason, []).append(labels[name])
        for reason, without in by_reason.items():
            below.append(f"{DASH} {row.name}, {', '.join(without)}: {reason}")
    has_models = any(row.kind == "model" for row in card.rows)
    legend = [_OF_MODELS if has_models else _OF_ARMS, *below, *card.notes]
    return Sheet(["scores", *(column.label for column in columns)], rows, legend=legend)


def card_json(card: Scorecard) -> dict[str, Any]:
    """Return a scorecard as JSON, scores in each column's unit."""
    names = ("name", "label", "is_lower_better", "factor")
    return {
        "columns": [
            {name: getattr(column, name) for name in names} for column in card.shown_columns()
        ],
        "rows": [
            {
                "name": row.name,
                "kind": row.kind,
                "cells": {name: dict(vars(cell)) for name, cell in row.cells.items()},
                **({"reasons": dict(row.reasons)} if row.kind == "model" else {}),
            }
            for row in card.rows
        ],
    }


def card_csv(card: Scorecard) -> str:
    """Return a scorecard as CSV: a line per cell, values in each column's unit."""
    rows: list[dict[str, object]] = []
    for row in card.rows:
        for column in card.shown_columns():
            cell, reason = row.cells.get(column.name), row.reasons.get(column.name, "")
            known: dict[str, object] = {"reason": reason}
            if cell is not None:
                known = {"value": cell.mean, "standard_error": cell.error}
                known |= {"seed_sd": cell.inner_sd, "seeds": cell.n_runs}
            if cell is not None or reason:
                rows.append({"row": row.name, "kind": row.kind, "column": column.name, **known})
    columns = ("row", "kind", "column", "value", "standard_error", "seed_sd", "seeds", "reason")
    return as_csv(columns, rows)
