"""Results for a terminal: a summary, or the report without its figures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sublayer.counts import count
from sublayer.files.paths import as_typed, resolved
from sublayer.reporting import tables
from sublayer.reporting.scorecard import card_sheet
from sublayer.reporting.secondary import basis_lines
from sublayer.reporting.words import (
    conditions,
    fact_lines,
    hypothesis_words,
    in_display_units,
    statements,
    text_line,
)
from sublayer.study.budget.match import read_budget
from sublayer.study.comparisons import compared_budgets, differing_fields
from sublayer.study.results import Results, Scorecard
from sublayer.system.terminal import hanging, noted, paragraph, terminal_width
from sublayer.tables import Sheet

_WIDEST_VERDICT = len("cannot tell")
_MOST_SHOWN = 8
"""Comparisons shown in a summary."""
_BUILT_IN = ("python",)
"""The text of a recipe that names none."""


def summarize(results: Results, report: Path) -> str:
    """Format verdicts a line each, a table of the arms, the conditions, and the report's path."""
    metric = results.metric
    better = "lower" if metric.is_lower_better else "higher"
    title = f"{results.title or results.name}, in {metric.label} ({better} is better):"
    verdicts = statements(results)
    lines = [paragraph(title), ""]
    lines += [hanging(statement.brief, "  ", "    ") for statement in verdicts[:_MOST_SHOWN]]
    if hypothesis := hypothesis_words(results):
        lines.append(f"  hypothesis, stated before the runs: {hypothesis[1]}")
    arms = tables.arms_sheet(in_display_units(results), tables.BRIEF)
    lines += ["", replace(arms, rows=arms.rows[: _MOST_SHOWN + 1]).fitted(terminal_width())]
    if len(verdicts) > _MOST_SHOWN:
        lines.append(f"and {len(verdicts) - _MOST_SHOWN} more: see --details or the report")
    lines += ["", paragraph(f"{conditions(results)}. {text_line(results)}")]
    if results.failures:
        lines.append(f"{count(len(results.failures), 'run')} failed.")
    caveats = f"{count(len(results.notes), 'caveat')}, " if results.notes else ""
    lines.append(f"{caveats}p values, costs and settings: see --details or the report")
    lines.append(f"report: {resolved(report)}")
    text = results.reproduction.text
    if text is not None and text.names == _BUILT_IN:
        lines.append(f"next, on your own text: {results.reproduction.command} data.path=FILE")
    return "\n".join(lines)


def render(results: Results, report: Path) -> str:
    """Format the report without its figures: verdicts, intervals, caveats, costs."""
    results = in_display_units(results)
    lines = [paragraph(f"{conditions(results)}:"), ""]
    for statement in statements(results):
        lines.append(_beside(statement.verdict, str(statement)))
        lines += [_beside("", sentence) for sentence in statement.further]
    for failure in results.failures:
        lines.append(_beside("failed", f"{failure.arm}, seed {failure.seed}: {failure.message}"))
    if hypothesis := hypothesis_words(results):
        lines += ["", paragraph(f"Hypothesis, stated before the runs: {results.hypothesis}")]
        lines.append(f"  {hypothesis[1]}")
    card = results.scorecard
    basis = [hanging(line, "", "  ") for line in basis_lines(results)]
    parts = [
        [hanging(line, "", "  ") for line in fact_lines(results)],
        [noted(note) for note in results.notes],
        [] if card is None else shown(card_sheet(card)),
        shown(tables.differences_sheet(results)),
        [*shown(tables.secondary_sheet(results)), *basis],
        shown(tables.arms_sheet(results, tables.DETAILED)),
        shown(tables.budget_sheet(compared_budgets(results), results.baseline)),
        shown(tables.further_sheet(results)) if results.further else [],
        shown(tables.quality_sheet(results)) if card is None else [],
        list(_differing(results)),
        [f"report: {resolved(report)}"],
    ]
    for part in filter(None, parts):
        lines += ["", *part]
    return "\n".join(lines)


def _beside(verdict: str, text: str) -> str:
    """Wrap a text in a column next to a verdict, or below a long one."""
    if len(verdict) > _WIDEST_VERDICT:
        return f"  {verdict}\n{_beside('', text)}"
    return hanging(text, f"  {verdict:<{_WIDEST_VERDICT}}  ", " " * (_WIDEST_VERDICT + 4))


def shown(sheet: Sheet) -> list[str]:
    """Format a table with rows, and the lines below it, to the width of the terminal."""
    below = [hanging(line, "", "  ") for line in sheet.legend]
    return [sheet.fitted(terminal_width()), *below] if sheet.rows else below


def render_scorecard(card: Scorecard) -> str:
    """Format a table of scores, its legend and the lines below it."""
    return "\n".join(shown(card_sheet(card)))


def planned_sheet(arms: Sequence[Mapping[str, Any]]) -> Sheet:
    """Return the planned excess of arms over others, from JSON."""
    budgets = [read_budget(arm["name"], arm["excess"]) for arm in arms]
    return tables.budget_sheet(budgets, arms[0]["name"])


def _differing(results: Results) -> Iterator[str]:
    """Yield the fields in which each arm differs from the baseline, an arm per line."""
    fields = differing_fields(results.arms)
    for arm in results.arms:
        texts = []
        for field, settings in fields.items():
            chosen, usual = settings.get(arm.name), settings.get(results.baseline)
            if chosen is None or usual is None or chosen.value == usual.value:
                continue
            origin = "" if chosen.origin == "own" else f" ({chosen.origin})"
            setting = (
                f"{field} = {as_typed(chosen.value)}{origin}" if chosen.value is not None else ""
            )
            texts.append(setting or f"no {field}")
        if texts:
            text = f"{arm.name} differs from {results.baseline} by {', '.join(texts)}"
            yield hanging(text, "", "  ")
