"""Budgets of arms in excess of their baselines', in words and in the cells of a table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sublayer.numbers import NO_BREAK, format_share
from sublayer.study.budget.excess import TIME_TOLERANCE, ArmBudget, Currency, Excess
from sublayer.study.findings.comparisons import compared_budgets
from sublayer.study.results import Results

COLUMNS: dict[Currency, str] = {
    "parameters": "parameters",
    "operations": "operations",
    "time": "training time",
}
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
_DOUBLE = 2.0
"""From so many times on a factor is told, and no percentage."""


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
    return _joined([_beyond(currency, share) for currency, share in beyond.items()])


def describe_largest(results: Results) -> str:
    """Format by how much budgets differ at most, in one clause; empty where all are equal.

    Equal is what is within the tolerance: 0.5 %, and 3 % of time.
    """
    realised = [each.realised for each in compared_budgets(results)]
    largest = _largest(realised)
    return f"budgets {largest}" if largest else ""


def describe_planned(budgets: Sequence[ArmBudget]) -> str:
    """Format by how much the planned budgets of arms differ at most, without what differs."""
    return _largest([each.planned for each in budgets]) or "equal to half a percent"


def describe_matching(results: Results) -> str:
    """Say what was made equal, or only matched, where it did not become equal or is not known."""
    if results.match not in _EQUAL:
        return "budgets not matched"
    currency = _MATCHED[results.match]
    realised = [each.realised for each in compared_budgets(results)]
    if all(currency in each.shares and currency not in each.beyond for each in realised):
        return _EQUAL[results.match]
    return f"matched by {currency}"


def time_caveats(results: Results) -> list[str]:
    """Say which arms were matched by time and did not train for equal time; nothing where all did.

    It is measured before the runs, and of the runs.
    """
    longer = []
    for each in compared_budgets(results):
        share = each.realised.beyond.get("time")
        if share is not None and each.against is not None:
            than = "longer" if share > 0 else "shorter"
            longer.append(f"{each.arm} {_percent(share)} {than} than {each.against}")
    if not longer:
        return []
    return [
        "Time was matched by step times measured before the runs, but the runs took different "
        f"times: {', '.join(longer)} (medians over seeds; up to {100 * TIME_TOLERANCE:.0f}"
        f"{NO_BREAK}% counts as clock noise). These verdicts are not at equal time."
    ]


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


def _largest(excesses: Sequence[Excess]) -> str:
    parts = []
    for currency, name in COLUMNS.items():
        largest = max((each.beyond.get(currency, 0.0) for each in excesses), key=_times, default=0)
        if largest:
            parts.append(f"{_size(largest)} in {name}")
    if not parts:
        return ""
    up_to = "up to " if len(excesses) > 1 else ""
    return f"differ by {up_to}{_joined(parts)}"


def _beyond(currency: Currency, share: float) -> str:
    if 1.0 + share >= _DOUBLE:
        return f"{_factor(1.0 + share)} times the {currency}"
    less = "less" if currency == "time" else "fewer"
    return f"{_percent(share)} {'more' if share > 0 else less} {currency}"


def _times(share: float) -> float:
    """Return how many times as much the one takes that takes more."""
    factor = 1.0 + share
    return max(factor, 1.0 / factor) if factor > 0.0 else math.inf


def _size(share: float) -> str:
    factor = _times(share)
    return f"a factor of {_factor(factor)}" if factor >= _DOUBLE else _percent(share)


def _factor(factor: float) -> str:
    return f"{factor:.1f}" if factor < 9.95 else f"{factor:,.0f}"


def _percent(share: float) -> str:
    percent = 100 * abs(share)
    # 99.97 % less is not 100 % less.
    if 99.0 < percent < 100.0:
        percent = math.floor(10 * percent) / 10
    decimals = 0 if 9.95 <= percent <= 99.0 else 1
    return f"{percent:.{decimals}f}{NO_BREAK}%"


def _joined(parts: Sequence[str]) -> str:
    *others, last = parts or [""]
    return f"{', '.join(others)} and {last}" if others else last
