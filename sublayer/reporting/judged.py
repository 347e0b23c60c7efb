"""Verdicts on runs of any trainer: in words, as JSON, as a page and as tables for a paper."""

import csv
import io
import math
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.counts import count
from sublayer.files.storage import write_file
from sublayer.judging.layout import Understood, with_direction
from sublayer.judging.runs import Rules, assemble
from sublayer.judging.verdict import Question, RunsVerdict, judge_runs
from sublayer.numbers import format_p, format_signed
from sublayer.reporting.difference import finding, narrowest_interval
from sublayer.statistics.difference import Difference
from sublayer.tables import as_latex, as_markdown

_MOST_DECIMALS = 8
_Cells = tuple[list[str], list[list[str]]]
"""Headings, and rows below them."""


class JudgedRuns(RunsVerdict):
    """A verdict as a text, as JSON and as a notebook shows it."""

    def to_dict(self) -> dict[str, Any]:
        """Return what ``sublayer judge --json`` prints."""
        return as_json(self)

    def __repr__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        return notebook_html(self)


def judge_understood(
    understood: Understood, rules: Rules, question: Question, lower_is_better: bool | None
) -> JudgedRuns:
    """Judge what sources hold; raise the errors of each step, before anything is judged."""
    directed = with_direction(understood, lower_is_better)
    assert directed.is_lower_better is not None, "the direction is settled"
    direction = "lower" if directed.is_lower_better else "higher"
    found = judge_runs(
        assemble(directed.records, rules),
        question,
        metric=directed.metric,
        is_lower_better=directed.is_lower_better,
        said=(*directed.said, f"{direction} is better, {directed.why}"),
    )
    return JudgedRuns(**vars(found))


def text_of(judged: RunsVerdict) -> str:
    """Lay out a verdict for a terminal: how sources were read, the verdicts, their conditions."""
    lines = [f"read: {line}" for line in judged.said]
    lines += ["", *(statement(judged, difference) for difference in judged.comparisons), ""]
    lines.append(conditions(judged))
    lines += loop_lines(judged)
    return "\n".join(lines)


def statement(judged: RunsVerdict, each: Difference) -> str:
    """Word a verdict in one line."""
    n_finished = (~judged.runs.failed).sum(1).tolist()
    predicate, detail = finding(
        each,
        decimals=n_decimals(judged),
        unit="",
        level=confidence(judged),
        margin=judged.margin,
        n_seeds=len(judged.runs.seeds),
        n_finished=dict(zip(judged.runs.arms, n_finished, strict=True)),
    )
    return f"{each.arm} {predicate} {each.baseline}{detail}"


def headline(judged: RunsVerdict) -> str:
    """Summarize the verdicts in a line, by name where there is one."""
    if len(judged.comparisons) == 1:
        (only,) = judged.comparisons
        return statement(judged, only).partition(" (")[0].partition(";")[0]
    counts = {difference.verdict: 0 for difference in judged.comparisons}
    for difference in judged.comparisons:
        counts[difference.verdict] += 1
    parts = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
    return f"Of {len(judged.comparisons)} arms compared with {judged.baseline}: {parts}"


def confidence(judged: RunsVerdict) -> str:
    """Write the confidence of the intervals, as 95%."""
    return f"{100 * (1 - judged.level):.4g}%"


def conditions(judged: RunsVerdict) -> str:
    """Describe the conditions of the verdicts in one line."""
    runs = judged.runs
    parts = [f"{judged.metric}, {'lower' if judged.is_lower_better else 'higher'} is better"]
    if judged.is_of_items:
        whose = "two models" if len(runs.arms) == 2 else f"{len(runs.arms)} models"
        parts.append(f"of these {whose} only (one run each; other seeds may differ)")
    else:
        parts.append(f"{count(len(runs.seeds), 'seed')} of each arm, paired")
    if runs.n_items:
        parts.append(count(runs.n_items, "item"))
    if runs.n_documents is not None:
        parts.append(count(runs.n_documents, "document"))
    level = f"at most {100 * judged.level:.3g}% false verdicts"
    if len(judged.comparisons) > 1:
        level += f" over {len(judged.comparisons)} comparisons together"
    parts.append(level)
    if judged.look is not None:
        parts.append(f"look {judged.look} of {judged.looks}")
    return "; ".join(parts)


def loop_lines(judged: RunsVerdict) -> list[str]:
    """Describe the spending of a look of a loop, and how its champion fits the ledger."""
    look = judged.in_loop
    if look is None or judged.ledger is None:
        return []
    number = f"look {look.number}" + (f" of {look.planned}" if look.planned else "")
    text = f"{number} in {judged.ledger.name}: level {look.level:.3g}"
    if look.is_repeated:
        text += "; the same runs were judged before, so nothing is spent"
    elif look.is_returned:
        kept = " and ".join(look.kept)
        text += f"; {kept} {'is' if len(look.kept) == 1 else 'are'} kept, so nothing is spent"
    else:
        text += f"; {look.spending:.3g} is spent"
    lines = [f"{text}, {look.left:.3g} of {look.error:.2g} is left"]
    if look.champion_is == "not kept":
        lines.append(f"note: {look.champion} has the runs of a candidate that was not kept")
    elif look.champion_is == "former":
        lines.append(f"note: {look.champion} is not the champion: a candidate was kept since")
    return lines


def as_json(judged: RunsVerdict) -> dict[str, Any]:
    """Return the verdict as ``--json`` prints it."""
    runs = judged.runs
    return {
        "verdict": judged.verdict,
        "exit_code": judged.exit_code,
        "metric": judged.metric,
        "is_lower_better": judged.is_lower_better,
        "baseline": judged.baseline,
        "new": judged.new or None,
        "level": judged.level,
        "margin": judged.margin,
        "look": judged.look,
        "looks": judged.looks,
        "ledger": ledger_json(judged),
        "of_these_models": judged.is_of_items,
        "n_seeds": len(runs.seeds),
        "n_items": runs.n_items or None,
        "n_documents": runs.n_documents,
        "read": list(judged.said),
        "arms": [
            {
                "name": arm,
                "mean": judged.mean_of(arm),
                "seeds": list(runs.seeds),
                "values": [None if math.isnan(v) else float(v) for v in runs.values[place]],
                "failed": [bool(each) for each in runs.failed[place]],
            }
            for place, arm in enumerate(runs.arms)
        ],
        "differences": [_difference_json(difference) for difference in judged.comparisons],
    }


def _difference_json(each: Difference) -> dict[str, Any]:
    names = (
        *("arm", "baseline", "verdict", "on_this_text", "mean", "low", "high", "p", "p_raw"),
        *("standard_error", "excluded", "equivalent", "detectable", "more_seeds"),
    )
    found = {name: getattr(each, name) for name in names}
    return {**found, "n_failed": list(each.n_failed), "by_ranks": each.by_ranks}


def ledger_json(judged: RunsVerdict) -> dict[str, Any] | None:
    """Return what ``--json`` says of a look of a loop; None: the runs are of none."""
    if judged.in_loop is None:
        return None
    return {"file": str(judged.ledger), **asdict(judged.in_loop)}


def difference_rows(judged: RunsVerdict) -> _Cells:
    """Return the headings and the rows of a table of differences."""
    decimals = n_decimals(judged)
    rows = []
    for difference in judged.comparisons:
        ends = [
            format_signed(value, decimals)
            for value in (difference.mean, difference.low, difference.high)
        ]
        rows.append([difference.arm, *ends, format_p(difference.p), difference.verdict])
    against = f"against {judged.baseline}"
    return [against, "difference", f"{confidence(judged)} CI from", "to", "p", "verdict"], rows


def notebook_html(judged: RunsVerdict) -> str:
    """Show a verdict in a notebook, in its own colours."""
    from sublayer.reporting.html import render_page

    headings, rows = difference_rows(judged)
    lines = (conditions(judged), *loop_lines(judged), *judged.said)
    return render_page("notebook.html.j2", headings=headings, rows=rows, lines=lines)


def n_decimals(judged: RunsVerdict) -> int:
    """Choose the decimals that show the narrowest interval with two figures."""
    narrowest = narrowest_interval(judged.comparisons)
    if narrowest is None:
        return 4
    return min(_MOST_DECIMALS, max(0, 1 - math.floor(math.log10(narrowest))))


def write_page(judged: RunsVerdict, path: Path) -> None:
    """Write the verdict as a page of HTML that needs nothing else. Raises OSError."""
    from sublayer.reporting.html import Forest, forest_filters, render_page

    rows = [(difference, _pairs(judged, difference.arm)) for difference in judged.comparisons]
    filters = forest_filters(n_decimals(judged))
    filters["comparison"] = attrgetter("arm")
    page = render_page(
        "judged.html.j2",
        filters,
        judged=judged,
        headline=headline(judged),
        conditions=". ".join([conditions(judged), *loop_lines(judged)]),
        statements=[
            (difference, statement(judged, difference)) for difference in judged.comparisons
        ],
        confidence=confidence(judged),
        forest=Forest(rows, judged.margin, judged.is_lower_better),
        results={"has_verdicts": True},
        tables={"Differences": difference_rows(judged), "Runs": _run_rows(judged)},
    )
    write_file(path, page)


def write_table(judged: RunsVerdict, path: Path) -> None:
    """Write every run and the differences, as CSV, Markdown or LaTeX by the suffix."""
    if path.suffix.lower() == ".csv":
        write_file(path, _csv(judged))
        return
    form = as_markdown if path.suffix.lower() == ".md" else as_latex
    differences = f"Differences in {judged.metric}, with confidence intervals."
    texts = [form(differences, *difference_rows(judged)), form("Every run.", *_run_rows(judged))]
    write_file(path, "\n\n".join(texts) + "\n")


def _pairs(judged: RunsVerdict, arm: str) -> list[float]:
    """Return the differences of the seeds of an arm and the baseline; none of single runs."""
    if judged.is_of_items:
        return []
    runs = judged.runs
    found = runs.values[runs.arms.index(arm)] - runs.values[runs.arms.index(judged.baseline)]
    return [float(each) for each in found if np.isfinite(each)]


def _run_rows(judged: RunsVerdict) -> _Cells:
    """Return headings and rows of every run: a row for each seed."""
    runs = judged.runs
    decimals = n_decimals(judged)
    rows = []
    for name, values, failed in zip(runs.seeds, runs.values.T, runs.failed.T, strict=True):
        pairs = zip(values, failed, strict=True)
        cells = ["failed" if is_failed else f"{value:.{decimals}f}" for value, is_failed in pairs]
        rows.append([name, *cells])
    return ["seed", *runs.arms], rows


def _csv(judged: RunsVerdict) -> str:
    """Lay out runs and differences as rows of one table, the numbers as they are."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["kind", "arm", "baseline", "seed", judged.metric, "low", "high", "p", "verdict"]
    )
    runs = judged.runs
    for arm, values, failed in zip(runs.arms, runs.values.tolist(), runs.failed, strict=True):
        for seed, value, is_failed in zip(runs.seeds, values, failed, strict=True):
            shown = "failed" if is_failed else repr(value)
            writer.writerow(["run", arm, "", seed, shown, "", "", "", ""])
    for difference in judged.comparisons:
        numbers = [
            "" if n is None else repr(n)
            for n in (difference.mean, difference.low, difference.high, difference.p)
        ]
        writer.writerow(
            ["difference", difference.arm, difference.baseline, "", *numbers, difference.verdict]
        )
    return text.getvalue()
