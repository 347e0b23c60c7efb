"""How it is printed what arms take beyond those that they are compared with."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sublayer.commands.shared.base import JsonObject
from sublayer.commands.shared.paragraphs import paragraph
from sublayer.system.terminal import terminal_width
from sublayer.tables import table

if TYPE_CHECKING:
    from sublayer.study.budget.excess import ArmBudget

_MARK = "!"
_MARKED = f"{_MARK} not equal: beyond 0.5 %"
_MARKED_TIME = ", for measured time beyond 3 %"


def render_budgets(budgets: Sequence["ArmBudget"], baseline: str) -> list[str]:
    """Format the table and its legend; nothing where no arm is compared with another."""
    headings, rows = _cells(budgets, baseline)
    if not rows:
        return []
    shown = table(headings, rows, right=range(1, len(headings)), width=terminal_width())
    if not any(cell.endswith(_MARK) for row in rows for cell in row):
        return [shown]
    is_timed = any("time" in (*each.planned.shares, *each.realised.shares) for each in budgets)
    return [shown, paragraph(f"{_MARKED}{_MARKED_TIME if is_timed else ''}")]


def planned_cells(arms: Sequence[JsonObject]) -> tuple[list[str], list[list[str]]]:
    """Return the headings and rows of what arms of a plan will take beyond others."""
    return _cells(read_budgets(arms), arms[0]["name"])


def read_budgets(arms: Sequence[JsonObject]) -> list["ArmBudget"]:
    """Read the budgets of arms as JSON has them."""
    from sublayer.study.budget.excess import read_budget

    return [read_budget(arm["name"], arm["excess"]) for arm in arms]


def _cells(budgets: Sequence["ArmBudget"], baseline: str) -> tuple[list[str], list[list[str]]]:
    """Return the headings and a row for each arm that is compared."""
    from sublayer.numbers import NO_BREAK
    from sublayer.study.budget.words import budget_table

    laid_out = budget_table(budgets, baseline)
    rows = []
    for row in laid_out.rows:
        marks = [f"{NO_BREAK}{_MARK}" if cell.is_marked else "" for cell in row.cells]
        cells = [f"{cell.text}{mark}" for cell, mark in zip(row.cells, marks, strict=True)]
        rows.append([row.name, *cells])
    return [f"excess over {baseline}", *laid_out.headings], rows
