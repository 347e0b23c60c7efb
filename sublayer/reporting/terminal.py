"""Results as a terminal shows them: a summary, or all that the report has but its figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sublayer import numbers
from sublayer.counts import count
from sublayer.files.paths import as_typed, resolved
from sublayer.numbers import NO_BREAK
from sublayer.reporting import secondary, units, words
from sublayer.reporting.budgets import budget_table
from sublayer.reporting.scorecard import shown_card
from sublayer.reporting.units import in_display_units
from sublayer.reporting.words import (
    PUBLISHED,
    conditions,
    confidence,
    fact_lines,
    hypothesis_words,
    published_value,
    statements,
    text_line,
)
from sublayer.study.budget.excess import ArmBudget, read_budget
from sublayer.study.findings.comparisons import compared_budgets, differing_fields
from sublayer.study.results import ArmResult, Results, Scorecard
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
_MARK = "!"
_MARKED = f"{_MARK} not equal: beyond 0.5 %"
_MARKED_TIME = ", for measured time beyond 3 %"


def summarize(results: Results, report: Path) -> str:
    """Format a verdict a line, a table of the arms, the conditions, and where the report lies."""
    metric = results.metric
    better = "lower" if metric.is_lower_better else "higher"
    lines = [paragraph(f"{results.title or results.name}, in {metric.label} ({better} is better):")]
    lines.append("")
    found = statements(results)
    lines += [hanging(each.brief, "  ", "    ") for each in found[:_MOST_SHOWN]]
    hypothesis = hypothesis_words(results)
    if hypothesis is not None:
        lines.append(f"  hypothesis, stated before the runs: {hypothesis[1]}")
    lines += ["", _summary_table(results)]
    if len(found) > _MOST_SHOWN:
        lines.append(f"and {len(found) - _MOST_SHOWN} more: see --details or the report")
    lines += ["", paragraph(f"{conditions(results)}. {text_line(results)}")]
    if results.failures:
        lines.append(f"{count(len(results.failures), 'run')} failed.")
    caveats = f"{count(len(results.notes), 'caveat')}, " if results.notes else ""
    lines.append(f"{caveats}p values, costs and settings: see --details or the report")
    lines.append(f"report: {resolved(report)}")
    text_of = results.reproduction.text
    if text_of is not None and text_of.names == _BUILT_IN:
        lines.append(f"next, on your own text: {results.reproduction.command} data.path=FILE")
    return "\n".join(lines)


def _summary_table(results: Results) -> str:
    """Format the score and the cost of the first arms, a row each."""
    results = in_display_units(results)
    decimals = units.n_decimals(results)
    has_sd = any(arm.sd is not None for arm in results.arms)
    label = f"{results.metric.label} ± SD" if has_sd else results.metric.label
    rows = []
    for arm in results.arms[: _MOST_SHOWN + 1]:
        score = numbers.format_plain(arm.mean, decimals)
        if arm.sd is not None:
            score += f"{numbers.NO_BREAK}±{numbers.NO_BREAK}{arm.sd:.{decimals}f}"
        costs = arm.costs
        rows.append(
            [
                arm.name,
                score,
                str(len(arm.seeds)),
                f"{arm.parameters['total']:,}",
                numbers.format_quantity(costs.flops_per_token),
                numbers.format_duration(costs.seconds),
            ]
        )
    headings = ["arm", label, "seeds", "parameters", "FLOPs/token", "time"]
    return _table(headings, rows, right=range(1, len(headings)))


def render(results: Results, report: Path) -> str:
    """Format all that the report has but its figures: verdicts, intervals, caveats, costs."""
    results = in_display_units(results)
    lines = [paragraph(f"{conditions(results)}:"), ""]
    for statement in statements(results):
        lines.append(_beside(statement.verdict, str(statement)))
        lines += [_beside("", each) for each in statement.further]
    for failure in results.failures:
        lines.append(_beside("failed", f"{failure.arm}, seed {failure.seed}: {failure.message}"))
    found = hypothesis_words(results)
    if found is not None:
        lines += ["", paragraph(f"Hypothesis, stated before the runs: {results.hypothesis}")]
        lines.append(f"  {found[1]}")
    facts = [hanging(line, "", "  ") for line in fact_lines(results)]
    lines += ["", *facts, ""] if facts else [""]
    lines += map(noted, results.notes)
    if results.notes:
        lines.append("")
    if results.scorecard is not None:
        lines += [render_scorecard(results.scorecard), ""]
    lines += [_differences(results), ""]
    secondary = _secondary(results)
    lines += [secondary, ""] if secondary else []
    lines.append(_costs(results))
    budgets = render_budgets(compared_budgets(results), results.baseline)
    lines += ["", *budgets] if budgets else []
    if results.further:
        lines += ["", _further(results)]
    if results.scorecard is None:
        lines += ["", _same_quality(results)]
    differing = _differing(results)
    if differing:
        lines += ["", differing]
    lines += ["", f"report: {resolved(report)}"]
    return "\n".join(lines)


def _beside(verdict: str, text: str) -> str:
    """Wrap a text in a column beside a verdict, or below a long one."""
    if len(verdict) > _WIDEST_VERDICT:
        return f"  {verdict}\n{_beside('', text)}"
    return hanging(text, f"  {verdict:<{_WIDEST_VERDICT}}  ", " " * (_WIDEST_VERDICT + 4))


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    return table(headings, rows, right=right, width=terminal_width())


def _differences(results: Results) -> str:
    if not results.has_verdicts:
        return _single_differences(results)
    headings = ["difference", f"{confidence(results)} CI", "p", "verdict", "seeds", "detectable"]
    headings.insert(0, f"against {results.baseline}")
    decimals = units.n_decimals(results)
    rows = [
        [
            *words.difference_cells(results, difference),
            numbers.format_plain(difference.detectable, decimals),
        ]
        for difference in results.differences
    ]
    differences = _table(headings, rows, right=[1, 2, 3, 5, 6])
    return f"{differences}\n{paragraph(_DETECTABLE)}"


def _single_differences(results: Results) -> str:
    """Format the differences of one seed, which have no interval."""
    rows = []
    for difference in results.differences:
        name, size, _, _, verdict, _ = words.difference_cells(results, difference)
        rows.append([name, size, verdict])
    return _table([f"against {results.baseline}", "difference", "verdict"], rows, right=[1])


def _further(results: Results) -> str:
    headings = ["arm"]
    for further in results.further:
        headings += [further.metric.label, "difference"]
    rows = []
    for arm in results.arms:
        row = [arm.name]
        for further in results.further:
            value = words.further_value(arm, further)
            difference = words.further_difference(arm, further)
            row += [value, difference]
        rows.append(row)
    return _table(headings, rows, right=range(1, len(headings)))


def render_scorecard(card: Scorecard) -> str:
    """Format a table of scores, its legend and the lines below it."""
    shown = shown_card(card)
    rows = [
        [row.name, *(cell.replace(" ± ", f"{NO_BREAK}±{NO_BREAK}") for cell in row.cells)]
        for row in shown.rows
    ]
    lines = [_table(["scores", *shown.headings], rows, right=range(1, len(shown.headings) + 1))]
    lines += [paragraph(shown.legend), *(hanging(line, "", "  ") for line in shown.below)]
    return "\n".join(lines)


def _same_quality(results: Results) -> str:
    """Format the cost of the same quality, or why it is unknown."""
    lines = []
    rows = []
    for row in secondary.same_quality_rows(results):
        shares = []
        for cell in row.cells:
            # A range stays on one line where it stands below its median.
            spread = cell.spread.replace(" ", NO_BREAK)
            shares.append(f"{cell.median} ({spread})" if spread else cell.median)
        rows.append([row.arm, row.whose, *shares, row.parameters])
    if rows:
        headings = ["arm", "reaches the final value of", *secondary.COSTS.values(), "parameters"]
        lines = [_table(headings, rows, right=range(2, len(headings)))]
        label = secondary.same_quality_metric(results)
        legend = f"read off the validation curves ({label}): shares of the other arm's whole run"
        if any(f"({secondary.FROM}" in cell for row in rows for cell in row):
            legend += f"; {secondary.FROM}: not reached in every run"
        lines.append(paragraph(legend))
    for problem in secondary.same_quality_problems(results):
        lines.append(paragraph(f"cost of the same quality is unknown: {problem}"))
    return "\n".join(lines)


def _differing(results: Results) -> str:
    """Format the fields in which each arm differs from the baseline, an arm a line."""
    fields = differing_fields(results.arms)
    rows = []
    for arm in results.arms:
        texts = []
        for field, settings in fields.items():
            own, usual = settings.get(arm.name), settings.get(results.baseline)
            if own is None or usual is None or own.value == usual.value:
                continue
            origin = "" if own.origin == "own" else f" ({own.origin})"
            setting = f"no {field}"
            if own.value is not None:
                setting = f"{field} = {as_typed(own.value)}{origin}"
            texts.append(setting)
        if texts:
            text = f"{arm.name} differs from {results.baseline} by {', '.join(texts)}"
            rows.append(hanging(text, "", "  "))
    return "\n".join(rows)


def _costs(results: Results) -> str:
    headings = [
        "arm",
        results.metric.label,
        "parameters",
        "FLOPs/token",
        "steps",
        "tokens/s",
        "memory",
        "time",
    ]
    rows = [_cost_row(results, arm) for arm in results.arms]
    legend = [_MEMORY]
    if any(arm.published for arm in results.arms):
        headings.insert(2, "published")
        for row, arm in zip(rows, results.arms, strict=True):
            row.insert(2, published_value(results, arm))
        legend.insert(0, PUBLISHED)
    costs = _table(headings, rows, right=range(1, len(headings)))
    return "\n".join([costs, *map(paragraph, legend)])


def _cost_row(results: Results, arm: ArmResult) -> list[str]:
    costs = arm.costs
    return [
        arm.name,
        numbers.format_plain(arm.mean, units.n_decimals(results)),
        f"{arm.parameters['total']:,}",
        numbers.format_quantity(costs.flops_per_token),
        f"{costs.steps:,}",
        numbers.format_quantity(costs.tokens_per_s),
        numbers.format_quantity(costs.peak_memory_bytes, "B"),
        numbers.format_duration(costs.seconds),
    ]


def _secondary(results: Results) -> str:
    """Format the secondary analyses, t tests below the table, and what the verdicts rest on."""
    lines = []
    found = secondary.secondary_table(results)
    if found.rows:
        headings = [f"against {results.baseline}", *found.headings]
        cells = [[row.name, *row.cells] for row in found.rows]
        lines.append(_table(headings, cells, right=range(1, len(headings))))
        for row in found.rows:
            if row.tests:
                tests = f"{row.name}: {row.tests[0].lower()}{row.tests[1:]}"
                lines.append(hanging(tests, "  ", "    "))
        lines.append(paragraph(secondary.CAUTION))
        lines += map(paragraph, found.legend)
    lines += [hanging(line, "", "  ") for line in secondary.basis_lines(results)]
    return "\n".join(lines)


def render_budgets(budgets: Sequence[ArmBudget], baseline: str) -> list[str]:
    """Format the table and its legend; nothing where no arm is compared with another."""
    headings, rows = _cells(budgets, baseline)
    if not rows:
        return []
    shown = table(headings, rows, right=range(1, len(headings)), width=terminal_width())
    if not any(cell.endswith(_MARK) for row in rows for cell in row):
        return [shown]
    is_timed = any("time" in (*each.planned.shares, *each.realised.shares) for each in budgets)
    return [shown, paragraph(f"{_MARKED}{_MARKED_TIME if is_timed else ''}")]


def planned_cells(arms: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the headings and rows of what arms of a plan will take beyond others."""
    return _cells(read_budgets(arms), arms[0]["name"])


def read_budgets(arms: Sequence[Mapping[str, Any]]) -> list[ArmBudget]:
    """Read the budgets of arms as JSON has them."""
    return [read_budget(arm["name"], arm["excess"]) for arm in arms]


def _cells(budgets: Sequence[ArmBudget], baseline: str) -> tuple[list[str], list[list[str]]]:
    """Return the headings and a row for each arm that is compared."""
    laid_out = budget_table(budgets, baseline)
    rows = []
    for row in laid_out.rows:
        marks = [f"{NO_BREAK}{_MARK}" if cell.is_marked else "" for cell in row.cells]
        cells = [f"{cell.text}{mark}" for cell, mark in zip(row.cells, marks, strict=True)]
        rows.append([row.name, *cells])
    return [f"excess over {baseline}", *laid_out.headings], rows
