"""Tables of a study and of scorecards, defined once for the terminal, the page and papers."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sublayer.errors import ConfigError
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
    plus_minus,
)
from sublayer.reporting.words import (
    basis_lines,
    confidence,
    decimals_for,
    in_display_units,
    n_decimals,
    percent,
)
from sublayer.statistics.contrasts import DECIDED, Difference
from sublayer.study.budget import ArmBudget
from sublayer.study.comparisons import (
    COLUMNS,
    SameQuality,
    Secondary,
    final_losses,
    same_quality,
    secondary_analyses,
)
from sublayer.study.results import ArmResult, Failure, Results, Scorecard
from sublayer.study.study_file import DEVIATION
from sublayer.tables import FILES, Sheet, as_csv, as_papers

MARK = f"{NO_BREAK}!"
"""End of a cell beyond its tolerance."""
BRIEF = ("arm", "score", "seeds", "parameters", "FLOPs/token", "time")
"""Columns of the table of arms in a summary."""
_MEMORY = (
    "Memory: the peak of a run beyond the memory that its process held before; on a CPU it "
    "includes libraries loaded during the run, mostly in a process's first run, such as the "
    "first arm's"
)
_PUBLISHED = "Published: reported by the study's source for its own models, texts and lengths"
_DECIDED = f"{NO_BREAK}*"
_COSTS = {"steps": "steps", "flops": "FLOPs", "seconds": "time"}
"""Costs read off the curves, with their headings."""
_FROM = "from"
"""First word of a range over runs, if some did not reach the quality."""
_SECONDARY = {
    "P(a run is better)": (
        "P(a run is better): the probability that one run of the arm beats one run of its "
        "comparison partner, for normally distributed runs with other seeds, with its 95% CI"
    ),
    "pairs of runs won": "",
    "steps at equal quality": (
        "Steps at equal quality: steps to the other arm's final validation value, as a share of "
        "that arm's steps; geometric mean over seeds with its 95% CI"
    ),
    "published effect": "",
}
"""Columns of secondary analyses, with their descriptions."""
_CAUTION = "None of these decides: each is for one comparison only, not adjusted for the others"


def comparison(results: Results, difference: Difference) -> str:
    """Name a comparison by its arm, and by its baseline if that is not the first arm.

    A contrast of more than two arms has no baseline.
    """
    if difference.baseline in ("", results.baseline):
        return difference.arm
    return f"{difference.arm}, against {difference.baseline}"


def _score(results: Results, arm: ArmResult) -> str:
    decimals = n_decimals(results)
    mean = format_plain(arm.mean, decimals)
    return mean if arm.sd is None else plus_minus(mean, f"{arm.sd:.{decimals}f}")


def _published(results: Results, arm: ArmResult) -> str:
    """Write published scores, with the names of metrics other than the deciding one."""
    labels = {further.metric.name: f" {further.metric.label}" for further in results.further}
    labels[results.metric.name] = ""
    texts: list[str] = []
    for name in sorted(arm.published, key=lambda name: name != results.metric.name):
        if not name.endswith(f":{DEVIATION}"):
            deviation = arm.published.get(f"{name}:{DEVIATION}")
            spread = "" if deviation is None else f" (SD {deviation:g})"
            texts.append(f"{arm.published[name]:g}{spread}{labels.get(name, f' {name}')}")
    return "; ".join(texts) or DASH


def _seeds(results: Results, arm: ArmResult) -> str:
    n_failed = sum(failure.arm == arm.name for failure in results.failures)
    return f"{len(arm.seeds)}\n{n_failed} failed" if n_failed else str(len(arm.seeds))


_ARMS: Mapping[str, Callable[[Results, ArmResult], str]] = {
    "arm": lambda _, arm: arm.name,
    "mean": lambda results, arm: format_plain(arm.mean, n_decimals(results)),
    "score": _score,
    "seeds": _seeds,
    "published": _published,
    "parameters": lambda _, arm: f"{arm.parameters['total']:,}",
    "FLOPs/token": lambda _, arm: format_quantity(arm.costs.flops_per_token),
    "steps": lambda _, arm: f"{arm.costs.steps:,}",
    "tokens/s": lambda _, arm: format_quantity(arm.costs.tokens_per_s),
    "memory": lambda _, arm: format_quantity(arm.costs.peak_memory_bytes, "B"),
    "time": lambda _, arm: format_duration(arm.costs.seconds),
}
"""The columns of the table of arms; the column of published scores is left out if empty."""

DETAILED = tuple(name for name in _ARMS if name not in ("score", "seeds"))
"""Columns of the table of arms next to a table of differences, which has seeds and spreads."""
WHOLE = tuple(name for name in _ARMS if name != "mean")


def arms_sheet(results: Results, columns: Iterable[str] = WHOLE) -> Sheet:
    """Return the table of the arms: score, size and costs."""
    has_published = any(arm.published for arm in results.arms)
    shown = [name for name in columns if name != "published" or has_published]
    label = results.metric.label
    spread = " ± SD" if any(arm.sd is not None for arm in results.arms) else ""
    labels = {"mean": label, "score": f"{label}{spread}"}
    legend = [_PUBLISHED] * has_published + [_MEMORY] * ("memory" in shown)
    return Sheet(
        [labels.get(name, name) for name in shown],
        [[_ARMS[name](results, arm) for name in shown] for arm in results.arms],
        legend=legend,
    )


@dataclass(frozen=True)
class _Compared:
    """A comparison, with its secondary analyses."""

    difference: Difference
    analysis: Secondary
    decimals: int
    reached: SameQuality | None
    """Steps at equal quality; None if unknown."""

    def probability(self) -> str:
        """Write a probability with two decimals, never as 0 or 1, and its interval if it shows."""
        better = self.analysis.superiority
        shares = []
        for value in () if better is None else (better.estimate, better.low, better.high):
            if value is None:
                break
            text = f"<{NO_BREAK}0.01" if value < 0.01 else f"{value:.2f}"
            shares.append(f">{NO_BREAK}0.99" if value > 0.99 else text)
        estimate, *ends = shares or [DASH]
        has_interval = len(ends) == 2 and {*shares} != {estimate}
        return f"{estimate} ({' to '.join(ends)})" if has_interval else estimate

    def won(self) -> str:
        """Write the number of pairs of runs won, of all."""
        better = self.analysis.superiority
        return DASH if better is None else f"{better.share * better.n_pairs:g} of {better.n_pairs}"

    def steps(self) -> str:
        """Write the share of steps up to equal quality, and its interval if known."""
        quality = self.reached
        if quality is None:
            return DASH
        summary, n_runs = quality.summary("steps"), len(quality.seeds)
        if quality.n_reached < n_runs:
            some = f"reached in {quality.n_reached} of {n_runs} runs"
            return f"{quality.arm}: {some if quality.n_reached else 'not reached'}"
        assert summary.median is not None, "all runs reached it"
        if any(seed.is_at_first for seed in quality.seeds):
            return f"{quality.arm}: at most {percent(summary.median)}"
        if summary.ratio is None:
            return f"{quality.arm}: {percent(summary.median)}"
        ends = _range(summary.ratio.low, summary.ratio.high, percent)
        return f"{quality.arm}: {percent(summary.ratio.mean)} ({ends})"

    def published_effect(self) -> str:
        """Write the published effect, and whether it and 0 are inside the interval."""
        published = self.analysis.published
        if published is None:
            return DASH
        text = format_signed(published.effect, self.decimals)
        if published.is_inside is None:
            return text
        effect, zero = (
            "inside" if is_inside else "outside"
            for is_inside in (published.is_inside, published.is_zero_inside)
        )
        return f"{text}: {effect} the interval, {'as 0 is' if effect == zero else f'0 {zero}'}"


def _part(name: str) -> Callable[[_Compared], str]:
    return lambda it: format_plain(getattr(it.difference.parts, name, None), it.decimals + 1)


def _range(low: float, high: float, form: Callable[[float], str]) -> str:
    return f"{form(low).removesuffix('%')} to {form(high)}".replace(" ", NO_BREAK)


_COMPARISONS: Mapping[str, Callable[[_Compared], str]] = {
    "difference": lambda it: format_signed(it.difference.mean, it.decimals),
    "CI": lambda it: format_interval(it.difference.low, it.difference.high, it.decimals),
    "p": lambda it: format_p(it.difference.p),
    "verdict": lambda it: it.difference.verdict,
    "seeds": lambda it: str(it.difference.n_seeds),
    "standard error": lambda it: format_plain(it.difference.standard_error, it.decimals + 1),
    "from seeds": _part("seeds"),
    "from test items": _part("items"),
    "from tuning": lambda it: (
        _part("tuning")(it) if getattr(it.difference.parts, "tuning", 0) else DASH
    ),
    "detectable": lambda it: format_plain(it.difference.detectable, it.decimals),
    "paired t, p": lambda it: format_p(getattr(it.analysis.paired_t, "p", None)),
    "Welch's t, p": lambda it: format_p(getattr(it.analysis.welch_t, "p", None)),
    "P(a run is better)": _Compared.probability,
    "pairs of runs won": _Compared.won,
    "steps at equal quality": _Compared.steps,
    "published effect": _Compared.published_effect,
}
"""The columns of tables of comparisons; empty ones are left out."""
_OF_DIFFERENCES = (*("difference", "CI", "p", "verdict", "seeds"), "detectable")
ERRORS = (
    *("p", "verdict", "seeds", "standard error", "from seeds", "from test items"),
    *("from tuning", "detectable"),
)
"""Columns of the table of standard errors and their parts."""
_OF_PAPERS = (*_OF_DIFFERENCES[:-1], "paired t, p", "Welch's t, p", *_SECONDARY)


def comparisons_sheet(
    results: Results, columns: Iterable[str], *, are_judged: bool = False
) -> Sheet:
    """Return columns of the comparisons, of the judged ones only, with the t tests below."""
    reached = {
        (quality.arm, quality.whose): quality
        for quality in same_quality(results)
        if not quality.problem
    }
    compared = []
    for difference, analysis in zip(results.differences, secondary_analyses(results), strict=True):
        pair = analysis.arm, analysis.baseline
        match = reached.get(pair) or reached.get(pair[::-1])
        if analysis.superiority is not None or not are_judged:
            compared.append(_Compared(difference, analysis, n_decimals(results), match))
    cells = {name: [_COMPARISONS[name](it) for it in compared] for name in columns}
    cells = {name: column for name, column in cells.items() if set(column) - {DASH}}
    names = [comparison(results, it.difference) for it in compared]
    headings = [f"{confidence(results)} CI" if name == "CI" else name for name in cells]
    legend = []
    if are_judged and compared:
        for name, it in zip(names, compared, strict=True):
            tests = []
            for test_name, test in (
                ("paired t test", it.analysis.paired_t),
                ("Welch's test", it.analysis.welch_t),
            ):
                if test is not None:
                    p = format_p(test.p)
                    equation = f"p {p}" if p.startswith("<") else f"p = {p}"
                    interval = format_interval(test.low, test.high, it.decimals)
                    equation = equation.replace(" ", NO_BREAK)
                    tests.append(f"{test_name} {equation} (95% CI {interval})")
            if tests:
                legend.append(f"{name}: {'; '.join(tests)}")
        legend += [_CAUTION, *filter(None, (_SECONDARY.get(name) for name in cells))]
    return Sheet(
        [f"against {results.baseline}", *headings],
        list(zip(names, *cells.values(), strict=True)),
        legend=legend,
        texts=[0, *(n for n, name in enumerate(cells, 1) if name == "verdict")],
    )


def differences_sheet(results: Results) -> Sheet:
    """Return the table of the differences."""
    columns = _OF_DIFFERENCES if results.has_verdicts else ("difference", "verdict")
    sheet = comparisons_sheet(results, columns)
    note = "Detectable: the true difference that these seeds detect four times in five"
    return replace(sheet, legend=[note]) if "detectable" in sheet.headings else sheet


def secondary_sheet(results: Results) -> Sheet:
    """Return the secondary analyses of each comparison of two arms with a verdict."""
    return comparisons_sheet(results, _SECONDARY, are_judged=True)


def further_sheet(results: Results) -> Sheet:
    """Return the arms' values in the further metrics, with their differences.

    A difference has its interval only if the study asks for a verdict on it.
    """
    headings = ["arm"]
    rows = [[arm.name] for arm in results.arms]
    for further in results.further:
        headings += [further.metric.label, "difference"]
        decimals = decimals_for(further.differences, further.metric)
        differences = {difference.arm: difference for difference in reversed(further.differences)}
        for arm, row in zip(results.arms, rows, strict=True):
            values = list(arm.further.get(further.metric.name, {}).values())
            mean = f"{statistics.fmean(values):.{decimals}f}" if values else DASH
            if len(values) > 1:
                mean = plus_minus(mean, f"{statistics.stdev(values):.{decimals}f}")
            effect = differences.get(arm.name)
            text = "" if effect is None else format_signed(effect.mean, decimals)
            if effect is not None and effect.low is not None and effect.verdict != "no verdict":
                text += f" [{format_interval(effect.low, effect.high, decimals)}]"
                text += _DECIDED * (effect.verdict in DECIDED)
            row += [mean, text]
    has_decided = any(cell.endswith(_DECIDED) for row in rows for cell in row)
    return Sheet(headings, rows, legend=["* decided"] * has_decided)


def quality_sheet(results: Results) -> Sheet:
    """Return the cost of the same quality: a row for each comparison with curves."""
    rows, labels = [], []
    problems: dict[str, list[str]] = {}
    pairs = [difference for difference in results.differences if difference.baseline]
    for quality in same_quality(results):
        if quality.problem:
            problems.setdefault(quality.problem, []).append(quality.arm)
            continue
        labels.append(quality.metric.label)
        parameters = DASH if quality.parameters is None else _whole_percent(quality.parameters)
        rows.append(
            [quality.arm, quality.whose, *(_quality(quality, cost) for cost in _COSTS), parameters]
        )
    legend = []
    if rows:
        read = " and ".join(dict.fromkeys(labels))
        legend.append(
            f"Read off the validation curves ({read}), linear between evaluations: shares of the "
            "other arm's whole run, medians over seeds; a run planned with that length would "
            "have another learning rate schedule, and may end elsewhere"
        )
    if any(f"\n{_FROM}" in cell for row in rows for cell in row):
        legend.append(f"{_FROM.capitalize()}: not reached in every run")
    for problem, names in problems.items():
        whose = "" if len(names) == len(pairs) else f"{', '.join(names)}: "
        legend.append(f"Cost of the same quality is unknown: {whose}{problem}")
    headings = ["arm", "reaches the final value of", *_COSTS.values(), "parameters"]
    return Sheet(headings, rows, legend=legend, texts=(0, 1))


def _quality(quality: SameQuality, cost: str) -> str:
    """Write the median over seeds, and below it the range."""
    summary, n_seeds = quality.summary(cost), len(quality.seeds)
    if summary.median is None:
        return f"{quality.n_reached} of {n_seeds} runs" if quality.n_reached else "not reached"
    assert summary.low is not None, "where half of the runs reached it, the first did"
    at_most = "at most " if any(seed.is_at_first for seed in quality.seeds) else ""
    text = f"{at_most}{_whole_percent(summary.median)}"
    low = _whole_percent(summary.low)
    if n_seeds > 1 and summary.high is None:
        return f"{text}\n{_FROM}{NO_BREAK}{low}"
    if n_seeds > 1 and summary.high is not None and low != _whole_percent(summary.high):
        return f"{text}\n{_range(summary.low, summary.high, _whole_percent)}"
    return text


def _whole_percent(share: float) -> str:
    """Write a share in whole percent, or with a decimal below ten."""
    return f"{100 * share:.{1 if 100 * share < 9.95 else 0}f}%"


def budget_sheet(budgets: Sequence[ArmBudget], baseline: str) -> Sheet:
    """Return the excess of arms over their comparison partners, mostly ``baseline``.

    The planned excess is in brackets if the realised one differs; ``MARK`` ends cells beyond their
    tolerance. No rows without a compared arm.
    """
    compared = [budget for budget in budgets if budget.against is not None]
    currencies = {
        key for budget in compared for key in (*budget.planned.shares, *budget.realised.shares)
    }
    columns = {currency: name for currency, name in COLUMNS.items() if currency in currencies}
    rows = []
    for pair in compared:
        row = [pair.arm if pair.against == baseline else f"{pair.arm}, against {pair.against}"]
        planned, realised = pair.planned.shares, pair.realised.shares
        for currency in columns:
            before, text = format_share(planned.get(currency)), format_share(realised.get(currency))
            if not realised:
                text = before
            elif currency in planned and before != text:
                text += f" (planned{NO_BREAK}{before})"
            is_marked = currency in (pair.realised if realised else pair.planned).beyond
            row.append(f"{text}{MARK}" if is_marked else text)
        rows.append(row)
    legend = []
    if any(cell.endswith(MARK) for row in rows for cell in row):
        timed = ", for measured time beyond 3%" if "time" in currencies else ""
        legend.append(f"! not equal: beyond 0.5%{timed}")
    return Sheet([f"excess over {baseline}", *columns.values()], rows, legend=legend)


def losses_sheet(results: Results) -> Sheet:
    """Return the losses at the end of training; no rows unless an arm has both."""
    losses = {arm.name: final_losses(arm, results.metric) for arm in results.arms}
    rows = [
        [name, format_plain(training, 3), format_plain(validation, 3), format_signed(gap, 3)]
        for name, (training, validation, gap) in losses.items()
    ]
    has_any = any(gap is not None for _, _, gap in losses.values())
    return Sheet(["arm", "training loss", "validation loss", "gap"], rows if has_any else [])


def check_table_files(paths: Sequence[Path]) -> None:
    """Raise ConfigError for a table that cannot be written, by its suffix or its path."""
    for number, path in enumerate(paths):
        check_free(path, "--table", FILES)
        if path in paths[:number]:
            raise ConfigError(f"--table {path} is given twice: name each file once")


def write_tables(results: Results, path: Path) -> None:
    """Write every run and the differences as CSV, Markdown or LaTeX, by the path's suffix.

    CSV has numbers in the metrics' units, at full precision; the others in display format. Raises
    OSError.
    """
    if path.suffix.lower() == ".csv":
        write_file(path, _csv(results))
        return
    shown = in_display_units(results)
    direction = "lower" if shown.metric.is_lower_better else "higher"
    scored_on = shown.scored_on or f"the {shown.split} split"
    n = shown.n_comparisons
    adjusted = f", adjusted for all {n} comparisons" if n > 1 else ""
    every_run = f"Every run: {shown.metric.label} on {scored_on}, {direction} is better."
    of_differences = (
        f"Differences in {shown.metric.difference}, with {confidence(shown)} confidence intervals "
        f"and p values{adjusted}; the columns from the t tests on are for one comparison alone, "
        "not adjusted."
    )
    # A row for each seed, then means and SDs.
    decimals = n_decimals(shown)
    columns = []
    for arm in shown.arms:
        failed = dict.fromkeys((failure.seed for failure in _failures(shown, arm)), "failed")
        scores = zip(arm.seeds, arm.values, strict=True)
        columns.append(failed | {seed: f"{value:.{decimals}f}" for seed, value in scores})
    seeds = sorted({seed for column in columns for seed in column})
    rows = [[str(seed), *(column.get(seed, DASH) for column in columns)] for seed in seeds]
    for label, name in (("mean", "mean"), ("SD", "sd")):
        rows.append([label, *(format_plain(getattr(arm, name), decimals) for arm in shown.arms)])
    headings = ["seed", *(arm.name for arm in shown.arms)]
    sheets = [
        Sheet(headings, rows, every_run),
        replace(
            comparisons_sheet(shown, _OF_PAPERS),
            caption=" ".join([of_differences, *basis_lines(shown)]),
        ),
    ]
    write_file(path, as_papers(path.suffix, sheets))


def _failures(results: Results, arm: ArmResult) -> list[Failure]:
    """Return an arm's failed runs, including runs of its stages."""
    return [
        failure for failure in results.failures if f"{failure.arm}, ".startswith(f"{arm.name}, ")
    ]


_OF_A_DIFFERENCE = (
    *("low", "high", "p", "verdict", "n_seeds", "n_items", "n_documents", "level"),
    *("n_comparisons", "p_paired_t", "p_welch_t"),
    *("p_run_is_better", "p_run_is_better_low", "p_run_is_better_high", "published_effect"),
)


def _csv(results: Results) -> str:
    """Lay out runs and differences as rows of one table, each with its kind."""
    metrics = [results.metric.name, *(further.metric.name for further in results.further)]
    rows: list[dict[str, Any]] = []
    for arm in results.arms:
        scores: dict[int, Any] = dict(zip(arm.seeds, arm.values, strict=True))
        failures = {failure.seed: failure.message for failure in _failures(results, arm)[::-1]}
        for seed in sorted({*scores, *failures}):
            row = {
                "kind": "run",
                "arm": arm.name,
                "seed": seed,
                "parameters": arm.parameters["total"],
                "steps": arm.costs.steps,
                "tokens": None if arm.costs.tokens is None else round(arm.costs.tokens),
            }
            if seed in scores:
                row |= {
                    name: by_seed[seed] for name, by_seed in arm.further.items() if seed in by_seed
                }
            else:
                row["note"] = failures[seed]
            rows.append({**row, metrics[0]: scores.get(seed, "nan")})
    families = [results.differences, *(further.differences for further in results.further)]
    analyses = secondary_analyses(results)
    for metric, differences in zip(metrics, families, strict=True):
        for number, difference in enumerate(differences):
            row = {**vars(difference), "kind": "difference", metric: difference.mean}
            row["n_comparisons"] = results.n_comparisons
            if differences is results.differences:
                analysis = analyses[number]
                better = analysis.superiority
                row |= {
                    "p_paired_t": analysis.paired_t and analysis.paired_t.p,
                    "p_welch_t": analysis.welch_t and analysis.welch_t.p,
                    "published_effect": analysis.published and analysis.published.effect,
                    "p_run_is_better": better and better.estimate,
                    "p_run_is_better_low": better and better.low,
                    "p_run_is_better_high": better and better.high,
                }
            rows.append(row)
    costs = ("parameters", "steps", "tokens", "note")
    return as_csv(["kind", "arm", "baseline", "seed", *metrics, *_OF_A_DIFFERENCE, *costs], rows)


_OF_ARMS = (
    "Mean ± standard deviation over seeds (of nested fine-tunings: over the means of the "
    "pre-trainings, and in brackets over the fine-tunings of one pre-training); of baselines ± the "
    "standard error over examples, about the same in all rows of a column"
)
_OF_MODELS = (
    "± the standard error over the examples, of bits per byte over windows of the text, of BLEU "
    "by resampling lines; in brackets the standard deviation over seeds of fine-tuning"
)


def card_sheet(card: Scorecard) -> Sheet:
    """Return a scorecard: its rows, their descriptions, the reason for each dash, its notes."""
    columns = card.shown_columns()
    labels = {column.name: column.label for column in card.columns}
    rows = []
    below = [f"{row.name}: {row.description}" for row in card.rows if row.description]
    for row in card.rows:
        cells = [f"{row.name} (published)" if row.kind == "published" else row.name]
        for column in columns:
            cell = row.cells.get(column.name)
            if cell is None:
                cells.append(DASH)
                continue
            mean, error, inner = (
                "" if value is None else f"{column.factor * value:,.{column.decimals}f}"
                for value in (
                    cell.mean,
                    cell.sd if row.kind == "arm" else cell.error,
                    cell.inner_sd,
                )
            )
            text = plus_minus(mean, error) if error else mean
            text += f" ({inner})" if inner else ""
            if cell.n_collapsed and cell.n_runs == 1 and row.kind == "model":
                text += ", collapsed"
            elif cell.n_collapsed:
                text += f", {cell.n_collapsed} of {cell.n_runs} collapsed"
            # A published score as printed, with its digits.
            is_published = row.kind == "published"
            cells.append(f"{column.factor * cell.mean:.6g}" if is_published else text)
        rows.append(cells)
        by_reason: dict[str, list[str]] = {}
        for name, reason in row.reasons.items():
            by_reason.setdefault(reason, []).append(labels[name])
        for reason, without in by_reason.items():
            below.append(f"{DASH} {row.name}, {', '.join(without)}: {reason}")
    has_models = any(row.kind == "model" for row in card.rows)
    legend = [_OF_MODELS if has_models else _OF_ARMS, *below, *card.notes]
    return Sheet(["scores", *(column.label for column in columns)], rows, legend=legend)


def card_json(card: Scorecard) -> dict[str, Any]:
    """Return a scorecard as JSON, scores in each column's unit."""
    names = ("name", "label", "is_lower_better", "factor")
    return {
        "columns": [
            {name: getattr(column, name) for name in names} for column in card.shown_columns()
        ],
        "rows": [
            {
                "name": row.name,
                "kind": row.kind,
                "cells": {name: dict(vars(cell)) for name, cell in row.cells.items()},
                **({"reasons": dict(row.reasons)} if row.kind == "model" else {}),
            }
            for row in card.rows
        ],
    }


def card_csv(card: Scorecard) -> str:
    """Return a scorecard as CSV: a line per cell, values in each column's unit."""
    rows: list[dict[str, object]] = []
    for row in card.rows:
        for column in card.shown_columns():
            cell, reason = row.cells.get(column.name), row.reasons.get(column.name, "")
            values: dict[str, object] = {"reason": reason}
            if cell is not None:
                values = {"value": cell.mean, "standard_error": cell.error}
                values |= {"seed_sd": cell.inner_sd, "seeds": cell.n_runs}
            if cell is not None or reason:
                rows.append({"row": row.name, "kind": row.kind, "column": column.name, **values})
    columns = ("row", "kind", "column", "value", "standard_error", "seed_sd", "seeds", "reason")
    return as_csv(columns, rows)
