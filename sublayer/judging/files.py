"""Files of a verdict: the page, in the report's style, and tables for a paper."""

import csv
import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.errors import ConfigError
from sublayer.files.storage import write_file
from sublayer.judging import words
from sublayer.judging.verdict import RunsVerdict

TABLES = (".csv", ".md", ".tex")
_LATEX = str.maketrans(
    {each: f"\\{each}" for each in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
    | {words.MINUS: "$-$", words.DASH: "--"}
)


def check_free(path: Path | None, option: str, suffixes: tuple[str, ...]) -> None:
    """Raise ConfigError where a file is there already, or is called by another suffix."""
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise ConfigError(f"{option} {path} has to end in {' or '.join(suffixes)}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{option} {path}: there is no folder {path.parent}: make it first")
    if os.path.lexists(path):
        raise ConfigError(f"{path} is there already: move it, or name another file")


def write_page(judged: RunsVerdict, path: Path) -> None:
    """Write the verdict as a page of HTML that needs nothing else. Raises OSError."""
    write_file(path, render_page(judged))


def render_page(judged: RunsVerdict) -> str:
    """Render the verdict as HTML; equal verdicts give equal text."""
    from markupsafe import Markup

    from sublayer.plot import palette
    from sublayer.study.report.forest import lay_out_forest
    from sublayer.study.report.html import page_file, page_templates

    environment = page_templates()
    decimals = words.n_decimals(judged)
    environment.filters["slug"] = lambda verdict: verdict.replace(" ", "-")
    environment.filters["comparison"] = lambda each: each.arm
    environment.filters["signed"] = lambda value: words.signed(value, decimals)
    environment.filters["interval"] = lambda each: words.interval(each, decimals)
    style = page_file(environment, "page.css")
    forest = lay_out_forest(
        judged.comparisons,
        [_pairs(judged, each.arm) for each in judged.comparisons],
        margin=judged.margin,
        is_lower_better=judged.is_lower_better,
    )
    template = environment.get_template("judged.html.j2")
    return template.render(
        judged=judged,
        headline=words.headline(judged),
        conditions=". ".join([words.conditions(judged), *words.loop_lines(judged)]),
        statements=[(each, words.statement(judged, each)) for each in judged.comparisons],
        confidence=words.confidence(judged),
        forest=forest,
        results={"has_verdicts": True},
        tables=_tables(judged),
        css=Markup(palette() + style),
    )


def write_table(judged: RunsVerdict, path: Path) -> None:
    """Write every run and the differences, as CSV, Markdown or LaTeX by the suffix."""
    if path.suffix.lower() == ".csv":
        text = _csv(judged)
    elif path.suffix.lower() == ".md":
        text = "\n\n".join(map(_markdown, _tables(judged))) + "\n"
    else:
        text = "\n\n".join(map(_latex, _tables(judged))) + "\n"
    write_file(path, text)


def _pairs(judged: RunsVerdict, arm: str) -> list[float]:
    """Return the differences of the seeds of an arm and the baseline; none of single runs."""
    if judged.is_of_items:
        return []
    runs = judged.runs
    found = runs.values[runs.arms.index(arm)] - runs.values[runs.arms.index(judged.baseline)]
    return [float(each) for each in found if np.isfinite(each)]


def _tables(judged: RunsVerdict) -> list[dict[str, Any]]:
    headings, rows = words.difference_rows(judged)
    runs = judged.runs
    decimals = words.n_decimals(judged)
    values = []
    for seed, name in enumerate(runs.seeds):
        cells = [
            "failed" if runs.failed[arm, seed] else f"{runs.values[arm, seed]:.{decimals}f}"
            for arm in range(len(runs.arms))
        ]
        values.append([name, *cells])
    return [
        {"title": "Differences", "headings": headings, "rows": rows},
        {"title": "Runs", "headings": ["seed", *runs.arms], "rows": values},
    ]


def _csv(judged: RunsVerdict) -> str:
    """Lay out runs and differences as rows of one table, the numbers as they are."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ["kind", "arm", "baseline", "seed", judged.metric, "low", "high", "p", "verdict"]
    writer.writerow(columns)
    runs = judged.runs
    for a, arm in enumerate(runs.arms):
        for s, seed in enumerate(runs.seeds):
            value = "failed" if runs.failed[a, s] else repr(float(runs.values[a, s]))
            writer.writerow(["run", arm, "", seed, value, "", "", "", ""])
    for each in judged.comparisons:
        numbers = ["" if n is None else repr(n) for n in (each.mean, each.low, each.high, each.p)]
        writer.writerow(["difference", each.arm, each.baseline, "", *numbers, each.verdict])
    return text.getvalue()


def _markdown(table: dict[str, Any]) -> str:
    headings, *rows = (
        [cell.replace("|", "\\|") for cell in row] for row in (table["headings"], *table["rows"])
    )
    rule = ["---", *["---:"] * (len(headings) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (headings, rule, *rows))


def _latex(table: dict[str, Any]) -> str:
    headings, *rows = (
        " & ".join(cell.translate(_LATEX) for cell in row) + r" \\"
        for row in (table["headings"], *table["rows"])
    )
    columns = "l" + "r" * (len(table["headings"]) - 1)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\hline", headings, r"\hline", *rows, r"\hline"]
    return "\n".join([*lines, r"\end{tabular}"])
