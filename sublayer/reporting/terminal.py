"""Results as a terminal shows them: a summary, or all that the report has but its figures."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sublayer.counts import count
from sublayer.files.paths import as_typed, resolved
from sublayer.numbers import NO_BREAK, format_duration, format_plain, format_quantity
from sublayer.reporting import secondary, tables
from sublayer.reporting.scorecard import shown_card
from sublayer.reporting.words import (
    conditions,
    confidence,
    fact_lines,
    hypothesis_words,
    in_display_units,
    n_decimals,
    statements,
    text_line,
)
from sublayer.study.budget.match import ArmBudget, read_budget
from sublayer.study.comparisons import compared_budgets, differing_fields
from sublayer.study.results import Results, Scorecard
from sublayer.system.terminal import hanging, noted, paragraph, terminal_width
from sublayer.tables import table

_DETECTABLE = "detectable: the true difference that these seeds detect four times in five"
_WIDEST_VERDICT = len("cannot tell")
_MEMORY = (
    "memory: the peak of a run less what its process held before; on a CPU it includes libraries "
    "loaded during the run, mostly in a process's first run, such as that of the first arm"
)
_MOST_SHOWN = 8
"""Comparisons of a summary."""
_BUILT_IN = ("python",)
"""The text of a recipe that names none."""
_MARK = f"{NO_BREAK}!"
_MARKED = "! not equal: beyond 0.5%"


def summarize(results: Results, report: Path) -> str:
    """Format a verdict a line, a table of the arms, the conditions, and where the report lies."""
    metric = results.metric
    better = "lower" if metric.is_lower_better else "higher"
    title = f"{results.title or results.name}, in {metric.label} ({better} is better):"
    found = statements(results)
    lines = [paragraph(title), ""]
    lines += [hanging(each.brief, "  ", "    ") for each in found[:_MOST_SHOWN]]
    if hypothesis := hypothesis_words(results):
        lines.append(f"  hypothesis, stated before the runs: {hypothesis[1]}")
    lines += ["", _summary_table(in_display_units(results))]
    if len(found) > _MOST_SHOWN:
        lines.append(f"and {len(found) - _MOST_SHOWN} more: see --details or the report")
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


def _summary_table(results: Results) -> str:
    """Format the score and the cost of the first arms, a row each."""
    decimals = n_decimals(results)
    has_sd = any(arm.sd is not None for arm in results.arms)
    label = f"{results.metric.label} ± SD" if has_sd else results.metric.label
    rows = []
    for arm in results.arms[: _MOST_SHOWN + 1]:
        sd = "" if arm.sd is None else f"{NO_BREAK}±{NO_BREAK}{arm.sd:.{decimals}f}"
        score = f"{format_plain(arm.mean, decimals)}{sd}"
        size = f"{arm.parameters['total']:,}", format_quantity(arm.costs.flops_per_token)
        seconds = format_duration(arm.costs.seconds)
        rows.append([arm.name, score, str(len(arm.seeds)), *size, seconds])
    return _table(["arm", label, "seeds", "parameters", "FLOPs/token", "time"], rows)


def render(results: Results, report: Path) -> str:
    """Format all that the report has but its figures: verdicts, intervals, caveats, costs."""
    results = in_display_units(results)
    lines = [paragraph(f"{conditions(results)}:"), ""]
    for statement in statements(results):
        lines.append(_beside(statement.verdict, str(statement)))
        lines += [_beside("", each) for each in statement.further]
    for failure in results.failures:
        lines.append(_beside("failed", f"{failure.arm}, seed {failure.seed}: {failure.message}"))
    if hypothesis := hypothesis_words(results):
        lines += ["", paragraph(f"Hypothesis, stated before the runs: {results.hypothesis}")]
        lines.append(f"  {hypothesis[1]}")
    budgets = render_budgets(compared_budgets(results), results.baseline)
    parts = [
        [hanging(line, "", "  ") for line in fact_lines(results)],
        [noted(note) for note in results.notes],
        [] if results.scorecard is None else [render_scorecard(results.scorecard)],
        [_differences(results)],
        list(_secondary(results)),
        [_costs(results)],
        budgets,
        [_further(results)] if results.further else [],
        list(_same_quality(results)) if results.scorecard is None else [],
        list(_differing(results)),
        [f"report: {resolved(report)}"],
    ]
    for part in filter(None, parts):
        lines += ["", *part]
    return "\n".join(lines)


def _beside(verdict: str, text: str) -> str:
    """Wrap a text in a column beside a verdict, or below a long one."""
    if len(verdict) > _WIDEST_VERDICT:
        return f"  {verdict}\n{_beside('', text)}"
    return hanging(text, f"  {verdict:<{_WIDEST_VERDICT}}  ", " " * (_WIDEST_VERDICT + 4))


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int = 0) -> str:
    """Format a table to the width of the terminal, all columns but two to the right.

    They are the first and that at ``left``.
    """
    right = set(range(1, len(headings))) - {left}
    return table(headings, rows, right=right, width=terminal_width())


def _differences(results: Results) -> str:
    decimals = n_decimals(results)
    against = f"against {results.baseline}"
    rows = [tables.difference_cells(results, difference) for difference in results.differences]
    if not results.has_verdicts:  # one seed, so that differences have no interval
        shown = [[name, size, verdict] for name, size, _, _, verdict, _ in rows]
        return _table([against, "difference", "verdict"], shown, left=2)
    headings = [against, "difference", f"{confidence(results)} CI", "p", "verdict", "seeds"]
    for row, each in zip(rows, results.differences, strict=True):
        row.append(format_plain(each.detectable, decimals))
    return f"{_table([*headings, 'detectable'], rows, left=4)}\n{paragraph(_DETECTABLE)}"


def _further(results: Results) -> str:
    headings = ["arm"]
    for further in results.further:
        headings += [further.metric.label, "difference"]
    rows = []
    for arm in results.arms:
        row = [arm.name]
        for further in results.further:
            row += [tables.further_value(arm, further), tables.further_difference(arm, further)]
        rows.append(row)
    return _table(headings, rows)


def render_scorecard(card: Scorecard) -> str:
    """Format a table of scores, its legend and the lines below it."""
    shown = shown_card(card)
    rows = [
        [row.name, *(cell.replace(" ± ", f"{NO_BREAK}±{NO_BREAK}") for cell in row.cells)]
        for row in shown.rows
    ]
    below = [hanging(line, "", "  ") for line in shown.below]
    return "\n".join([_table(["scores", *shown.headings], rows), paragraph(shown.legend), *below])


def _same_quality(results: Results) -> Iterator[str]:
    """Yield the cost of the same quality, or why it is unknown."""
    rows = []
    for row in secondary.same_quality_rows(results):
        # A range stays on one line where it stands below its median.
        cells = [
            f"{median} ({spread.replace(' ', NO_BREAK)})" if spread else median
            for median, spread in row.cells
        ]
        rows.append([row.arm, row.whose, *cells, row.parameters])
    if rows:
        headings = ["arm", "reaches the final value of", *secondary.COSTS.values(), "parameters"]
        yield _table(headings, rows, left=1)
        label = secondary.same_quality_metric(results)
        legend = f"read off the validation curves ({label}): shares of the other arm's whole run"
        if any(f"({secondary.FROM}" in cell for row in rows for cell in row):
            legend += f"; {secondary.FROM}: not reached in every run"
        yield paragraph(legend)
    for problem in secondary.same_quality_problems(results):
        yield paragraph(f"cost of the same quality is unknown: {problem}")


def _differing(results: Results) -> Iterator[str]:
    """Yield the fields in which each arm differs from the baseline, an arm a line."""
    fields = differing_fields(results.arms)
    for arm in results.arms:
        texts = []
        for field, settings in fields.items():
            own, usual = settings.get(arm.name), settings.get(results.baseline)
            if own is None or usual is None or own.value == usual.value:
                continue
            origin = "" if own.origin == "own" else f" ({own.origin})"
            setting = f"{field} = {as_typed(own.value)}{origin}" if own.value is not None else ""
            texts.append(setting or f"no {field}")
        if texts:
            text = f"{arm.name} differs from {results.baseline} by {', '.join(texts)}"
            yield hanging(text, "", "  ")


def _costs(results: Results) -> str:
    headings = ["arm", results.metric.label]
    headings += ["parameters", "FLOPs/token", "steps", "tokens/s", "memory", "time"]
    decimals = n_decimals(results)
    rows = [
        [arm.name, format_plain(arm.mean, decimals), *tables.cost_cells(arm)]
        for arm in results.arms
    ]
    legend = [_MEMORY]
    if any(arm.published for arm in results.arms):
        headings.insert(2, "published")
        for row, arm in zip(rows, results.arms, strict=True):
            row.insert(2, tables.published_value(results, arm))
        legend.insert(0, tables.PUBLISHED)
    return "\n".join([_table(headings, rows), *map(paragraph, legend)])


def _secondary(results: Results) -> Iterator[str]:
    """Yield the secondary analyses, t tests below the table, and the basis of the verdicts."""
    found = secondary.secondary_table(results)
    if found.rows:
        headings = [f"against {results.baseline}", *found.headings]
        yield _table(headings, [[row.name, *row.cells] for row in found.rows])
        for row in found.rows:
            if row.tests:
                yield hanging(f"{row.name}: {row.tests[0].lower()}{row.tests[1:]}", "  ", "    ")
        yield paragraph(secondary.CAUTION)
        yield from map(paragraph, found.legend)
    for line in secondary.basis_lines(results):
        yield hanging(line, "", "  ")


def render_budgets(budgets: Sequence[ArmBudget], baseline: str) -> list[str]:
    """Format the table and its legend; nothing where no arm is compared with another."""
    headings, rows = tables.budget_table(budgets, baseline, _MARK)
    if not rows:
        return []
    shown = _table(headings, rows)
    if not any(cell.endswith(_MARK) for row in rows for cell in row):
        return [shown]
    is_timed = any(
        "time" in (*budget.planned.shares, *budget.realised.shares) for budget in budgets
    )
    beyond = ", for measured time beyond 3%" if is_timed else ""
    return [shown, paragraph(f"{_MARKED}{beyond}")]


def planned_cells(arms: Sequence[Mapping[str, Any]]) -> tables.Cells:
    """Return the headings and rows of what arms of a plan will take beyond others."""
    return tables.budget_table(read_budgets(arms), arms[0]["name"], _MARK)


def read_budgets(arms: Sequence[Mapping[str, Any]]) -> list[ArmBudget]:
    """Read the budgets of arms as JSON has them."""
    return [read_budget(arm["name"], arm["excess"]) for arm in arms]
