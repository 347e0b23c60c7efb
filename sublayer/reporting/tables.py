"""Tables of a comparison: their cells as people read them, and files of them for a paper."""

import csv
import io
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from sublayer.files.storage import check_free, write_file
from sublayer.numbers import (
    DASH,
    NO_BREAK,
    format_duration,
    format_interval,
    format_p,
    format_plain,
    format_quantity,
    format_share,
    format_signed,
)
from sublayer.reporting.secondary import basis_lines, comparison, secondary_table
from sublayer.reporting.words import decimals_for, in_display_units, n_decimals
from sublayer.statistics.difference import Difference
from sublayer.study.budget.match import ArmBudget
from sublayer.study.comparisons import Secondary, secondary_analyses
from sublayer.study.notes import COLUMNS
from sublayer.study.results import ArmResult, Failure, Further, Results
from sublayer.study.study_file import DEVIATION
from sublayer.tables import FILES, Sheet, as_papers

Cells = tuple[list[str], list[list[str]]]
"""Headings, and rows below them."""
PUBLISHED = "published: reported by the study's source for its own models, texts and lengths"
_DIFFERENCE = (
    *("low", "high", "p", "verdict", "n_seeds", "n_items", "n_documents", "level"),
    *("n_comparisons", "p_paired_t", "p_welch_t"),
    *("p_run_is_better", "p_run_is_better_low", "p_run_is_better_high", "published_effect"),
)
_COSTS = ("parameters", "steps", "tokens", "note")


def difference_cells(results: Results, difference: Difference) -> list[str]:
    """Format a row of a table of differences: name, difference, interval, p, verdict, seeds.

    ``results`` are in display units.
    """
    decimals = n_decimals(results)
    return [
        comparison(results, difference),
        format_signed(difference.mean, decimals),
        format_interval(difference.low, difference.high, decimals),
        format_p(difference.p),
        difference.verdict,
        str(difference.n_seeds),
    ]


def cost_cells(arm: ArmResult) -> list[str]:
    """Format the costs of an arm: parameters, FLOPs per token, steps, tokens/s, memory, time."""
    return [
        f"{arm.parameters['total']:,}",
        format_quantity(arm.costs.flops_per_token),
        f"{arm.costs.steps:,}",
        format_quantity(arm.costs.tokens_per_s),
        format_quantity(arm.costs.peak_memory_bytes, "B"),
        format_duration(arm.costs.seconds),
    ]


def further_value(arm: ArmResult, further: Further) -> str:
    """Format an arm's mean and spread in a further displayed metric; a dash without values.

    The spread is the standard deviation over seeds; with one seed the mean stands alone.
    """
    values = list(arm.further.get(further.metric.name, {}).values())
    if not values:
        return DASH
    decimals = decimals_for(further.differences, further.metric)
    text = f"{statistics.fmean(values):.{decimals}f}"
    return text if len(values) < 2 else f"{text} ± {statistics.stdev(values):.{decimals}f}"


def further_difference(arm: ArmResult, further: Further) -> str:
    """Format an arm's difference in a further metric; empty for the baseline.

    With its interval only where the study asks for a verdict on it.
    """
    difference = next((each for each in further.differences if each.arm == arm.name), None)
    if difference is None:
        return ""
    decimals = decimals_for(further.differences, further.metric)
    mean = format_signed(difference.mean, decimals)
    if difference.low is None or difference.verdict == "no verdict":
        return mean
    return f"{mean} [{format_interval(difference.low, difference.high, decimals)}]"


def published_value(results: Results, arm: ArmResult) -> str:
    """Format the published scores of an arm; a dash for none.

    Scores in other metrics than the deciding one are named, as ``28.9 BLEU``.
    """
    labels = {each.metric.name: f" {each.metric.label}" for each in results.further}
    texts: list[str] = []
    for name, value in arm.published.items():
        if name.endswith(f":{DEVIATION}"):
            continue
        deviation = arm.published.get(f"{name}:{DEVIATION}")
        text = f"{value:g}" if deviation is None else f"{value:g} (SD {deviation:g})"
        if name == results.metric.name:
            texts.insert(0, text)
        else:
            texts.append(text + labels.get(name, f" {name}"))
    return "; ".join(texts) or DASH


def budget_table(budgets: Sequence[ArmBudget], baseline: str, mark: str) -> Cells:
    """Lay out the excess of arms over their comparison partners, mostly ``baseline``.

    The planned excess is in brackets where another was realised. ``mark`` ends cells beyond their
    tolerance. No rows where no arm is compared.
    """
    compared = [budget for budget in budgets if budget.against is not None]
    known = {key for each in compared for key in (*each.planned.shares, *each.realised.shares)}
    columns = {currency: name for currency, name in COLUMNS.items() if currency in known}
    rows = []
    for each in compared:
        row = [each.arm if each.against == baseline else f"{each.arm}, against {each.against}"]
        planned, realised = each.planned.shares, each.realised.shares
        for currency in columns:
            before, text = format_share(planned.get(currency)), format_share(realised.get(currency))
            if not realised:
                text = before
            elif currency in planned and before != text:
                text += f" (planned{NO_BREAK}{before})"
            is_marked = currency in (each.realised if realised else each.planned).beyond
            row.append(f"{text}{mark}" if is_marked else text)
        rows.append(row)
    return [f"excess over {baseline}", *columns.values()], rows


def check_table_files(paths: Sequence[Path]) -> None:
    """Raise ConfigError where a table cannot be written, by its suffix or its place."""
    for path in paths:
        check_free(path, "--table", FILES)


def write_tables(results: Results, path: Path) -> None:
    """Write every run and the differences as CSV, Markdown or LaTeX, by the path's suffix.

    CSV has numbers in the metrics' own units, to the last digit; the others as people see them.
    Raises OSError.
    """
    if path.suffix.lower() == ".csv":
        write_file(path, _csv(results))
        return
    shown = in_display_units(results)
    direction = "lower" if shown.metric.is_lower_better else "higher"
    scored_on = shown.scored_on or f"the {shown.split} split"
    adjusted = ""
    if shown.n_comparisons > 1:
        adjusted = f", adjusted for all {shown.n_comparisons} comparisons"
    of_differences = (
        f"Differences in {shown.metric.difference}, with 95% confidence intervals and p "
        f"values{adjusted}; the columns from the t tests on are for one comparison alone, not "
        "adjusted."
    )
    every_run = f"Every run: {shown.metric.label} on {scored_on}, {direction} is better."
    sheets = [
        Sheet(*_runs(shown), every_run),
        Sheet(*_differences(shown), " ".join([of_differences, *basis_lines(shown)])),
    ]
    write_file(path, as_papers(path.suffix, sheets))


def _csv(results: Results) -> str:
    """Lay out runs and differences as rows of one table, each row with its kind."""
    metrics = [results.metric.name, *(each.metric.name for each in results.further)]
    columns = ["kind", "arm", "baseline", "seed", *metrics, *_DIFFERENCE, *_COSTS]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for arm in results.arms:
        writer.writerows(_run_rows(results, arm, metrics))
    families = [(results.differences, secondary_analyses(results))]
    families += [(each.differences, ()) for each in results.further]
    for metric, (differences, analyses) in zip(metrics, families, strict=True):
        for number, each in enumerate(differences):
            known = {name: value for name, value in vars(each).items() if name in columns}
            row = {**known, "kind": "difference", metric: each.mean}
            row["n_comparisons"] = results.n_comparisons
            if analyses:
                row |= _secondary_values(analyses[number])
            writer.writerow({name: "" if cell is None else cell for name, cell in row.items()})
    return text.getvalue()


def _run_rows(
    results: Results, arm: ArmResult, metrics: Sequence[str]
) -> Iterator[dict[str, object]]:
    """Yield a row for each seed of an arm; scores of failed runs are NaN."""
    scores = dict(zip(arm.seeds, arm.values, strict=True))
    failures = {failure.seed: failure for failure in reversed(_failures(results, arm))}
    for seed in sorted({*scores, *failures}):
        row: dict[str, object] = {
            "kind": "run",
            "arm": arm.name,
            "seed": seed,
            "parameters": arm.parameters["total"],
            "steps": arm.costs.steps,
            "tokens": "" if arm.costs.tokens is None else round(arm.costs.tokens),
        }
        if seed in scores:
            row |= {name: own[seed] for name, own in arm.further.items() if seed in own}
            row[results.metric.name] = scores[seed]
        else:
            row |= {results.metric.name: "nan", "note": failures[seed].message}
        yield {
            name: cell for name, cell in row.items() if name not in arm.further or name in metrics
        }


def _failures(results: Results, arm: ArmResult) -> list[Failure]:
    """Return an arm's failed runs, those of its stages among them."""
    return [
        failure for failure in results.failures if f"{failure.arm}, ".startswith(f"{arm.name}, ")
    ]


def _secondary_values(found: Secondary) -> dict[str, object]:
    better = found.superiority
    return {
        "p_paired_t": found.paired_t and found.paired_t.p,
        "p_welch_t": found.welch_t and found.welch_t.p,
        "published_effect": found.published and found.published.effect,
        "p_run_is_better": better and better.estimate,
        "p_run_is_better_low": better and better.low,
        "p_run_is_better_high": better and better.high,
    }


def _runs(results: Results) -> Cells:
    """Return headings and rows of every run: a row for each seed, then means and SDs."""
    decimals = n_decimals(results)
    columns = []
    for arm in results.arms:
        failed = dict.fromkeys((each.seed for each in _failures(results, arm)), "failed")
        scores = zip(arm.seeds, arm.values, strict=True)
        columns.append(failed | {seed: f"{value:.{decimals}f}" for seed, value in scores})
    rows = [
        [str(seed), *(column.get(seed, DASH) for column in columns)]
        for seed in sorted({seed for column in columns for seed in column})
    ]
    rows.append(["mean", *(format_plain(arm.mean, decimals) for arm in results.arms)])
    rows.append(["SD", *(format_plain(arm.sd, decimals) for arm in results.arms)])
    return ["seed", *(arm.name for arm in results.arms)], rows


def _differences(results: Results) -> Cells:
    """Return headings and rows of the differences, with their secondary analyses."""
    secondary = secondary_table(results)
    beside = {row.name: row.cells for row in secondary.rows}
    headings = [f"against {results.baseline}", "difference", "95% CI", "p", "verdict", "seeds"]
    headings += ["paired t, p", "Welch's t, p", *secondary.headings]
    rows = []
    for each, found in zip(results.differences, secondary_analyses(results), strict=True):
        cells = difference_cells(results, each)
        tests = [format_p(test.p if test else None) for test in (found.paired_t, found.welch_t)]
        further = beside.get(cells[0], [DASH] * len(secondary.headings))
        rows.append([*cells, *tests, *further])
    return headings, rows
