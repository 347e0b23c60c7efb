"""Budgets of arms in excess of their baselines', in words and in the cells of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sublayer.counts import enumerate_names
from sublayer.numbers import NO_BREAK, format_excess, format_factor, format_share
from sublayer.study.budget.excess import ArmBudget, Currency
from sublayer.study.findings.comparisons import compared_budgets
from sublayer.study.notes import COLUMNS, DOUBLE, describe_excesses
from sublayer.study.results import Results

_EQUAL = {
    "parameters": "at equal parameters",
    "flops": "at equal operations",
    "time": "at equal time",
}
_MATCHED: dict[str, Currency] = {
    "parameters": "parameters",
    "flops": "operations",
    "time": "time",
}
"""What each rule makes equal."""


@dataclass(frozen=True)
class BudgetCell:
    """An excess in percent, and whether it is beyond its tolerance."""

    text: str
    is_marked: bool


@dataclass(frozen=True)
class BudgetRow:
    """An arm's excess, a cell for each currency that is known of any arm."""

    name: str
    cells: Sequence[BudgetCell]


@dataclass(frozen=True)
class BudgetTable:
    """The excess of all arms that are compared; no rows where none is."""

    headings: Sequence[str]
    """Of the cells."""
    rows: Sequence[BudgetRow]

    @property
    def is_marked(self) -> bool:
        """Whether any cell is."""
        return any(cell.is_marked for row in self.rows for cell in row.cells)


def budget_table(budgets: Sequence[ArmBudget], baseline: str) -> BudgetTable:
    """Lay out what arms take beyond those that they are compared with, mostly ``baseline``.

    What was planned stands in brackets where it is not what came.
    """
    compared = [budget for budget in budgets if budget.against is not None]
    known = {key for each in compared for key in (*each.planned.shares, *each.realised.shares)}
    columns = [currency for currency in COLUMNS if currency in known]
    rows = []
    for each in compared:
        name = each.arm if each.against == baseline else f"{each.arm}, against {each.against}"
        rows.append(BudgetRow(name, [_cell(each, currency) for currency in columns]))
    return BudgetTable([COLUMNS[currency] for currency in columns], rows)


def describe_excess(beyond: Mapping[Currency, float]) -> str:
    """Format what an arm takes beyond another, as ``12 % more operations``; empty for nothing."""
    return enumerate_names([_beyond(currency, share) for currency, share in beyond.items()])


def describe_largest(results: Results) -> str:
    """Format by how much budgets differ at most, in one clause; empty where all are equal.

    Equal is what is within the tolerance: 0.5 %, and 3 % of time.
    """
    realised = [each.realised for each in compared_budgets(results)]
    largest = describe_excesses(realised)
    return f"budgets {largest}" if largest else ""


def describe_matching(results: Results) -> str:
    """Say what was made equal, or only matched, where it did not become equal or is not known."""
    if results.match not in _EQUAL:
        return "budgets not matched"
    currency = _MATCHED[results.match]
    realised = [each.realised for each in compared_budgets(results)]
    if all(currency in each.shares and currency not in each.beyond for each in realised):
        return _EQUAL[results.match]
    return f"matched by {currency}"


def _cell(budget: ArmBudget, currency: Currency) -> BudgetCell:
    planned, realised = budget.planned.shares, budget.realised.shares
    is_marked = currency in (budget.realised if realised else budget.planned).beyond
    before = format_share(planned.get(currency))
    if not realised:
        return BudgetCell(before, is_marked)
    came = format_share(realised.get(currency))
    if currency in planned and before != came:
        came += f" (planned{NO_BREAK}{before})"
    return BudgetCell(came, is_marked)


def _beyond(currency: Currency, share: float) -> str:
    if 1.0 + share >= DOUBLE:
        return f"{format_factor(1.0 + share)} times the {currency}"
    less = "less" if currency == "time" else "fewer"
    return f"{format_excess(share)} {'more' if share > 0 else less} {currency}"
