"""How the results of a comparison are printed: a summary, or all that the report has."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sublayer.commands.shared.base import emit
from sublayer.commands.shared.budgets import render_budgets
from sublayer.commands.shared.paragraphs import hanging, noted, paragraph
from sublayer.counts import count
from sublayer.files.paths import as_typed, resolved
from sublayer.system.terminal import terminal_width
from sublayer.tables import table

if TYPE_CHECKING:
    from sublayer.statistics.difference import Difference
    from sublayer.study.results import ArmResult, Results
    from sublayer.study.scorecard import Scorecard

_DIFFERENCE_HEADINGS = (
    "difference",
    "95% CI",
    "p",
    "verdict",
    "more seeds",
    "detectable",
)
_DETECTABLE = "detectable: the true difference that these seeds would find four times in five"
_WIDEST_VERDICT = len("cannot tell")
_SHARES = ("at steps", "FLOPs", "time", "parameters")
_MEMORY = (
    "memory: peak of a run, beyond what its process held before; on a CPU also what the program "
    "loads meanwhile, mostly in a process's first run, such as that of the first arm"
)

DetailsOption = Annotated[
    bool,
    typer.Option(
        "--details",
        help="Print what the report has, too: intervals, notes, costs, what arms differ by.",
    ),
]
_MOST_LINES = 15
"""Of a summary."""
_BUILT_IN = ("python",)
"""The text of a recipe that names none."""


def show(results: "Results", report: Path, *, as_json: bool, details: bool = False) -> None:
    """Print a study's results, as JSON or for people; ``report`` is where its report stands."""
    from sublayer.study.results_json import results_to_json

    form = render if details else summarize
    emit(results_to_json(results, report), as_json, lambda _: form(results, report))


def summarize(results: "Results", report: Path) -> str:
    """Format a verdict a line, what they rest on, the report, and what to run next."""
    from sublayer.study.report.budget_words import describe_largest
    from sublayer.study.report.words import conditions, hypothesis_words, statements, text_line

    metric = results.metric
    better = "lower" if metric.is_lower_better else "higher"
    first = f"{results.title or results.name}, in {metric.label} ({better} is better):"
    beginning = [*paragraph(first).splitlines(), ""]
    rests = "; ".join(filter(None, [conditions(results), describe_largest(results)]))
    end = ["", *paragraph(f"{rests}. {text_line(results)}").splitlines()]
    hypothesis = hypothesis_words(results)
    if hypothesis is not None:
        end.append(f"Hypothesis, written before the runs: {hypothesis[1]}.")
    if results.failures:
        end.append(f"{count(len(results.failures), 'run')} failed.")
    notes = f"{count(len(results.notes), 'note')} on its limits, all " if results.notes else ""
    end.append(f"{notes}figures and costs: in the report, or by --details")
    end.append(f"report: {resolved(report)}")
    text_of = results.reproduction.text
    if text_of is not None and text_of.names == _BUILT_IN:
        end.append(f"next, on a text of yours: {results.reproduction.command} data.path=FILE")
    verdicts = [hanging(each.brief, "  ", "    ").splitlines() for each in statements(results)]
    return "\n".join([*beginning, *_fitting(verdicts, _MOST_LINES - len(beginning + end)), *end])


def _fitting(verdicts: Sequence[Sequence[str]], n_lines: int) -> list[str]:
    """Return as many verdicts as fit into lines, and how many are left out."""
    shown = [line for verdict in verdicts for line in verdict]
    n_shown = len(verdicts)
    while len(shown) > n_lines and n_shown:
        n_shown -= 1
        left = [f"  and {len(verdicts) - n_shown} more: in the report, or by --details"]
        shown = [line for verdict in verdicts[:n_shown] for line in verdict] + left
    return shown


def render(results: "Results", report: Path) -> str:
    """Format the verdicts, conditions and caveats, a table of quality and cost, and the report."""
    from sublayer.study.findings.budgets import compared_budgets
    from sublayer.study.report.budget_words import describe_largest
    from sublayer.study.report.display_units import in_display_units
    from sublayer.study.report.words import conditions, hypothesis_words, spread_lines, statements

    results = in_display_units(results)
    largest = describe_largest(results)
    told = "; ".join(filter(None, [conditions(results), largest]))
    lines = [paragraph(f"{told}:"), ""]
    for statement in statements(results):
        lines.append(_beside(statement.verdict, str(statement)))
    for failure in results.failures:
        lines.append(_beside("failed", f"{failure.arm}, seed {failure.seed}: {failure.message}"))
    found = hypothesis_words(results)
    if found is not None:
        lines += ["", paragraph(f"Hypothesis, written before the runs: {results.hypothesis}")]
        lines.append(f"  {found[1]}")
    lines.append("")
    lines += [hanging(line, "", "  ") for line in spread_lines(results)]
    lines.append("")
    lines += map(noted, results.notes)
    if results.notes:
        lines.append("")
    if results.scorecard is not None:
        lines += [render_scorecard(results.scorecard), ""]
    lines += [_differences(results), "", _costs(results)]
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
    """Wrap a text in a column beside a verdict."""
    return hanging(text, f"  {verdict:<{_WIDEST_VERDICT}}  ", " " * (_WIDEST_VERDICT + 4))


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    return table(headings, rows, right=right, width=terminal_width())


def _differences(results: "Results") -> str:
    if not results.has_verdicts:
        return _single_differences(results)
    headings = [f"against {results.baseline}", *_DIFFERENCE_HEADINGS]
    rows = [_difference_row(results, difference) for difference in results.differences]
    differences = _table(headings, rows, right=[1, 2, 3, 5, 6])
    return f"{differences}\n{paragraph(_DETECTABLE)}"


def _single_differences(results: "Results") -> str:
    """Format the differences of one seed, which have no interval."""
    from sublayer.study.report import number_format, words

    decimals = number_format.n_decimals(results)
    rows = []
    for difference in results.differences:
        name = words.comparison(results, difference)
        signed = number_format.format_signed(difference.mean, decimals)
        rows.append([name, signed, difference.verdict])
    return _table([f"against {results.baseline}", "difference", "verdict"], rows, right=[1])


def _difference_row(results: "Results", difference: "Difference") -> list[str]:
    from sublayer.study.report import number_format, words

    decimals = number_format.n_decimals(results)
    detectable = number_format.DASH
    if difference.detectable is not None:
        detectable = f"{difference.detectable:.{decimals}f}"
    return [
        words.comparison(results, difference),
        number_format.format_signed(difference.mean, decimals),
        number_format.format_interval(difference.low, difference.high, decimals),
        number_format.format_p(difference.p),
        difference.verdict,
        words.more_seeds(difference),
        detectable,
    ]


def _further(results: "Results") -> str:
    from sublayer.study.report import words

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


def render_scorecard(card: "Scorecard", legend: str | None = None) -> str:
    """Format a table of scores, with what its numbers are: means over seeds, unless told."""
    from sublayer.study.report.number_format import NO_BREAK
    from sublayer.study.report.scorecard_cells import LEGEND, headings, shown_rows

    rows = [
        [row.name, *(cell.replace(" ± ", f"{NO_BREAK}±{NO_BREAK}") for cell in row.cells)]
        for row in shown_rows(card)
    ]
    shown = _table(["scores", *headings(card)], rows, right=range(1, len(headings(card)) + 1))
    return f"{shown}\n{paragraph(LEGEND if legend is None else legend)}"


def _same_quality(results: "Results") -> str:
    """Format what the same quality costs, or why that cannot be said."""
    from sublayer.study.report import same_quality_words
    from sublayer.study.report.number_format import NO_BREAK

    lines = []
    rows = []
    for row in same_quality_words.rows(results):
        shares = []
        for cell in row.cells:
            # A range stays on one line where it stands below its median.
            spread = cell.spread.replace(" ", NO_BREAK)
            shares.append(f"{cell.median} ({spread})" if spread else cell.median)
        rows.append([row.arm, row.whose, *shares, row.parameters])
    if rows:
        headings = ["arm", "reaches the final quality of", *_SHARES]
        lines = [_table(headings, rows, right=range(2, len(headings)))]
        label = same_quality_words.metric_label(results)
        legend = (
            f"read off the validation curves of {label}; fractions are of that other's whole run"
        )
        if any(same_quality_words.NEVER in cell for row in rows for cell in row):
            legend += f"; {same_quality_words.NEVER}: not within a run"
        lines.append(paragraph(legend))
    for problem in same_quality_words.problems(results):
        lines.append(paragraph(f"at what cost the same quality is reached is not said: {problem}"))
    return "\n".join(lines)


def _differing(results: "Results") -> str:
    """Format the fields in which each arm differs from the baseline, an arm a line."""
    from sublayer.study.findings.differing_fields import differing_fields

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


def _costs(results: "Results") -> str:
    from sublayer.study.report.filters import PUBLISHED, published_value

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


def _cost_row(results: "Results", arm: "ArmResult") -> list[str]:
    from sublayer.study.report import number_format

    mean = number_format.DASH
    if arm.mean is not None:
        decimals = number_format.n_decimals(results)
        mean = f"{arm.mean:.{decimals}f}"
    costs = arm.costs
    return [
        arm.name,
        mean,
        f"{arm.parameters['total']:,}",
        number_format.format_quantity(costs.flops_per_token),
        f"{costs.steps:,}",
        number_format.format_quantity(costs.tokens_per_s),
        number_format.format_quantity(costs.peak_memory_bytes, "B"),
        number_format.format_duration(costs.seconds),
    ]
