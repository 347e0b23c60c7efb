"""Verdicts on runs of any trainer: in words, as JSON, as a page and as tables for a paper."""

import csv
import io
import math
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.files.storage import write_file
from sublayer.judging.layout import SourceRecords
from sublayer.judging.runs import JudgingOptions
from sublayer.judging.verdict import RunsVerdict, judge_runs
from sublayer.numbers import count, format_p, format_signed
from sublayer.reporting.difference import decimals_of, finding
from sublayer.statistics.contrasts import Difference
from sublayer.tables import Sheet, as_papers

_MOST_DECIMALS = 8
_KEPT = (
    *("arm", "baseline", "verdict", "on_this_text", "mean", "low", "high", "p", "p_raw"),
    *("standard_error", "excluded", "equivalent", "detectable", "more_seeds", "n_failed"),
    "by_ranks",
)
"""Fields of a difference in ``--json``."""


class JudgedRuns(RunsVerdict):
    """A verdict as a text, as JSON and as HTML in a notebook."""

    def to_dict(self) -> dict[str, Any]:
        """Return the object of ``sublayer judge --json``."""
        runs, options = self.runs, self.asked
        look = None if self.in_loop is None else asdict(self.in_loop)
        return {
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "metric": self.metric,
            "is_lower_better": self.is_lower_better,
            "baseline": self.baseline,
            "new": options.new or None,
            "level": self.level,
            "margin": options.margin,
            "look": options.look,
            "looks": options.looks if look is None else None,
            "ledger": look and {"file": str(options.ledger), **look},
            "of_these_models": self.is_of_items,
            "n_seeds": len(runs.seeds),
            "n_items": runs.n_items or None,
            "n_documents": runs.n_documents,
            "read": list(self.said),
            "arms": [
                {
                    "name": arm,
                    "mean": self.mean_of(arm),
                    "seeds": list(runs.seeds),
                    "values": [None if math.isnan(v) else float(v) for v in values],
                    "failed": failed.tolist(),
                }
                for arm, values, failed in zip(runs.arms, runs.values, runs.failed, strict=True)
            ],
            "differences": [
                {name: getattr(difference, name) for name in _KEPT}
                | {"n_failed": list(difference.n_failed)}
                for difference in self.comparisons
            ],
        }

    def __repr__(self) -> str:
        read = [f"read: {line}" for line in self.said]
        statements = [statement(self, difference) for difference in self.comparisons]
        return "\n".join([*read, "", *statements, "", *condition_lines(self)])

    def _repr_html_(self) -> str:
        from sublayer.reporting.html import render_page

        lines = (*condition_lines(self), *self.said)
        return render_page("notebook.html.j2", sheet=differences_sheet(self), lines=lines)


def judge_sources(sources: SourceRecords, options: JudgingOptions) -> JudgedRuns:
    """Judge sources, as `judge_runs` does, for people and programs."""
    return JudgedRuns(**vars(judge_runs(sources, options)))


def statement(judged: RunsVerdict, difference: Difference) -> str:
    """Word a verdict in one line."""
    n_finished = (~judged.runs.failed).sum(1).tolist()
    predicate, detail = finding(
        difference,
        decimals=n_decimals(judged),
        unit="",
        level=confidence(judged),
        margin=judged.asked.margin,
        n_seeds=len(judged.runs.seeds),
        n_finished=dict(zip(judged.runs.arms, n_finished, strict=True)),
    )
    return f"{difference.arm} {predicate} {difference.baseline}{detail}"


def headline(judged: RunsVerdict) -> str:
    """Summarize the verdicts in a line, named if there is one."""
    if len(judged.comparisons) == 1:
        (only,) = judged.comparisons
        return statement(judged, only).partition(" (")[0].partition(";")[0]
    verdicts = [difference.verdict for difference in judged.comparisons]
    parts = [f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)]
    return f"Of {len(verdicts)} arms compared with {judged.baseline}: {', '.join(parts)}"


def confidence(judged: RunsVerdict) -> str:
    """Write the confidence of the intervals, as 95%."""
    return f"{100 * (1 - judged.level):.4g}%"


def n_decimals(judged: RunsVerdict) -> int:
    """Choose the decimals that show the narrowest interval with two digits."""
    return decimals_of(judged.comparisons, least=0, most=_MOST_DECIMALS, usual=4)


def condition_lines(judged: RunsVerdict) -> list[str]:
    """Describe the conditions of the verdicts: level of a look, fit of its champion."""
    runs, look, options = judged.runs, judged.in_loop, judged.asked
    n_compared = len(judged.comparisons)
    whose = "two models" if len(runs.arms) == 2 else f"{len(runs.arms)} models"
    parts = [
        f"{judged.metric}, {'lower' if judged.is_lower_better else 'higher'} is better",
        f"of these {whose} only (one run each; other seeds may differ)"
        if judged.is_of_items
        else f"{count(len(runs.seeds), 'seed')} of each arm, paired",
        count(runs.n_items, "item") if runs.n_items else "",
        "" if runs.n_documents is None else count(runs.n_documents, "document"),
        f"at most {100 * judged.level:.3g}% false verdicts"
        + (f" over {n_compared} comparisons together" if n_compared > 1 else ""),
        "" if options.look is None else f"look {options.look} of {options.looks}",
    ]
    lines = ["; ".join(filter(None, parts))]
    if look is None or options.ledger is None:
        return lines
    number = f"look {look.number}" + (f" of {look.planned}" if look.planned else "")
    spent = f"{look.spending:.3g} is spent"
    if look.is_repeated:
        spent = "the same runs were judged before, so nothing is spent"
    elif look.is_returned:
        verb = "is" if len(look.kept) == 1 else "are"
        spent = f"{' and '.join(look.kept)} {verb} kept, so nothing is spent"
    left = f"{look.left:.3g} of {look.error:.2g} is left"
    lines.append(f"{number} in {options.ledger.name}: level {look.level:.3g}; {spent}, {left}")
    notes = {
        "not kept": "has the runs of a candidate that was not kept",
        "former": "is not the champion: a candidate was kept since",
    }
    if look.champion_is in notes:
        lines.append(f"note: {look.champion} {notes[look.champion_is]}")
    return lines


def differences_sheet(judged: RunsVerdict) -> Sheet:
    """Return the table of differences."""
    decimals = n_decimals(judged)
    rows = [
        [
            difference.arm,
            *(
                format_signed(value, decimals)
                for value in (difference.mean, difference.low, difference.high)
            ),
            format_p(difference.p),
            difference.verdict,
        ]
        for difference in judged.comparisons
    ]
    against = f"against {judged.baseline}"
    headings = [against, "difference", f"{confidence(judged)} CI from", "to", "p", "verdict"]
    return Sheet(headings, rows, f"Differences in {judged.metric}, with confidence intervals.")


def _runs_sheet(judged: RunsVerdict) -> Sheet:
    """Return the table of every run: a row for each seed."""
    runs, decimals = judged.runs, n_decimals(judged)
    rows = []
    for seed, values, failed in zip(runs.seeds, runs.values.T, runs.failed.T, strict=True):
        pairs = zip(values, failed, strict=True)
        cells = ["failed" if is_failed else f"{value:.{decimals}f}" for value, is_failed in pairs]
        rows.append([seed, *cells])
    return Sheet(["seed", *runs.arms], rows, "Every run.")


def write_page(judged: RunsVerdict, path: Path) -> None:
    """Write the verdict as a self-contained HTML page. Raises OSError."""
    from sublayer.reporting.html import Forest, forest_filters, render_page

    runs, decimals = judged.runs, n_decimals(judged)
    baseline = runs.values[runs.arms.index(judged.baseline)]
    rows = []
    for difference in judged.comparisons:
        pairs = runs.values[runs.arms.index(difference.arm)] - baseline
        is_shown = np.isfinite(pairs) & (not judged.is_of_items)
        rows.append((difference, pairs[is_shown].tolist()))
    filters = forest_filters(decimals)
    filters["comparison"] = attrgetter("arm")
    page = render_page(
        "judged.html.j2",
        filters,
        judged=judged,
        headline=headline(judged),
        conditions=". ".join(condition_lines(judged)),
        statements=[
            (difference, statement(judged, difference)) for difference in judged.comparisons
        ],
        confidence=confidence(judged),
        forest=Forest(rows, judged.asked.margin, judged.is_lower_better),
        results={"has_verdicts": True},
        sheets={"Differences": differences_sheet(judged), "Runs": _runs_sheet(judged)},
    )
    write_file(path, page)


def write_table(judged: RunsVerdict, path: Path) -> None:
    """Write every run and the differences, as CSV, Markdown or LaTeX by the suffix.

    CSV has full precision.
    """
    if path.suffix.lower() != ".csv":
        sheets = differences_sheet(judged), _runs_sheet(judged)
        write_file(path, as_papers(path.suffix, sheets))
        return
    runs = judged.runs
    # Lists, since a metric may have another column's name.
    rows: list[list[object]] = [
        ["run", arm, "", seed, "failed" if failed[n] else value, "", "", "", ""]
        for arm, values, failed in zip(runs.arms, runs.values.tolist(), runs.failed, strict=True)
        for n, (seed, value) in enumerate(zip(runs.seeds, values, strict=True))
    ]
    rows += [
        ["difference", it.arm, it.baseline, "", it.mean, it.low, it.high, it.p, it.verdict]
        for it in judged.comparisons
    ]
    columns = ["kind", "arm", "baseline", "seed", judged.metric, "low", "high", "p", "verdict"]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    write_file(path, text.getvalue())
