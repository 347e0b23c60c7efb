"""The scorecard of a suite: its rows and columns, what is said below, as JSON and as CSV."""

import csv
import io
from collections.abc import Mapping
from typing import Any

from sublayer.counts import count
from sublayer.study.report.scorecard_cells import card_json, reason_lines
from sublayer.study.scorecard import Cell, Row, Scorecard
from sublayer.suite.evaluate import Evaluated
from sublayer.suite.found import CHANCE, MAJORITY, WORDS, Column
from sublayer.suite.pairs import COPIED
from sublayer.suite.probing import REFERENCE
from sublayer.suite.speed import SPEED
from sublayer.suite.texts import COMPRESSED

LEGEND = (
    "± the standard error over the examples, of bits per byte over windows of the text, of BLEU by "
    "drawing lines again; in brackets the standard deviation over seeds of fine-tuning"
)
_OTHERS = {
    MAJORITY: "the most frequent label of the training rows, or the mean of their numbers",
    WORDS: "a linear model of words, trained on the same rows",
    CHANCE: "what guessing scores",
    REFERENCE: "what a model of the probes' time scored that was trained on the task",
    COMPRESSED: "the text compressed by xz",
    COPIED: "the source as its own translation",
}
"""Rows below the models, in their order, and what they are."""


def scorecard_of(evaluated: Evaluated) -> Scorecard:
    """Put what was found into a table: a row a model, then what they are held against."""
    rows = []
    columns = _columns(evaluated)
    others: dict[str, dict[str, Cell]] = {name: {} for name in _OTHERS}
    for candidate, found in zip(evaluated.work.candidates, evaluated.found, strict=True):
        cells: dict[str, Cell] = {}
        reasons: dict[str, str] = {}
        for place, each in enumerate(found):
            cells.update(each.cells)
            for column in columns[place]:
                if column.name not in each.cells:
                    reasons[column.name] = each.reason or "it was not scored on this part"
            for name, own in each.others.items():
                for column_name, cell in own.items():
                    others[name].setdefault(column_name, cell)
        rows.append(Row(candidate.name, "model", cells, reasons))
    for name, cells in others.items():
        if cells:
            rows.append(Row(name, "published" if name == REFERENCE else "baseline", cells))
    return Scorecard([each.metric() for own in columns for each in own], rows)


def _columns(evaluated: Evaluated) -> list[list[Column]]:
    """List the columns of each measure: those that a model has, or else that were expected."""
    columns = []
    for place, measure in enumerate(evaluated.work.measures):
        own: dict[str, Column] = {}
        for found in evaluated.found:
            if found[place].cells:
                own.update({column.name: column for column in found[place].columns})
        columns.append(list(own.values()) or list(measure.columns))
    return columns


def notes_of(evaluated: Evaluated) -> list[str]:
    """List what is to be said below the table: other baselines, what was left out or cut."""
    notes: dict[str, None] = {}
    first: dict[tuple[str, str], tuple[str, Cell]] = {}
    for candidate, found in zip(evaluated.work.candidates, evaluated.found, strict=True):
        for each in found:
            notes.update(dict.fromkeys(each.notes))
            labels = {column.name: column.label for column in each.columns}
            for name, own in each.others.items():
                for column, cell in own.items():
                    whose, known = first.setdefault((name, column), (candidate.name, cell))
                    if known.mean != cell.mean:
                        notes[_differs(labels[column], name, whose, candidate.name)] = None
    return list(notes)


def _differs(label: str, name: str, shown: str, other: str) -> str:
    return (
        f"{label}: {name} is that of the rows of {shown}; {other} was trained or scored on other "
        "rows, of which it is another"
    )


def describe_machine_of(machine: Mapping[str, Any]) -> str:
    """Say on which machine speed was measured."""
    where = machine.get("gpu") or f"{machine['processor']}, {count(machine['threads'], 'thread')}"
    return f"measured on {where}, PyTorch {machine['torch']}"


def result_of(evaluated: Evaluated) -> dict[str, Any]:
    """Return the scorecard as JSON."""
    card = scorecard_of(evaluated)
    described: dict[str, Any] = card_json(card)
    by_name = {each.name: each for each in evaluated.work.candidates}
    for row in described["rows"]:
        if row["kind"] == "model":
            candidate = by_name[row["name"]]
            row["run"] = str(candidate.path)
            row["model"] = candidate.kind
    return {
        "title": evaluated.work.suite.title,
        **described,
        "notes": notes_of(evaluated),
        "machine": dict(evaluated.machine),
    }


def as_csv(evaluated: Evaluated) -> str:
    """Return the scorecard as CSV: a line a cell, values in each column's own unit."""
    card = scorecard_of(evaluated)
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


def lines_below(evaluated: Evaluated, card: Scorecard) -> list[str]:
    """List the lines below the table: its rows, why dashes are dashes, notes, and how fast."""
    lines = [f"{row.name}: {_OTHERS[row.name]}" for row in card.rows if row.name in _OTHERS]
    lines += [*reason_lines(card), *notes_of(evaluated)]
    if any(column.name == "tokens_per_second" for column in card.columns):
        lines += [SPEED, f"tokens/s {describe_machine_of(evaluated.machine)}"]
    return lines
