"""Tables of a comparison as files: every run, and the differences, ready for a paper."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from sublayer.errors import ConfigError
from sublayer.files.storage import write_file
from sublayer.numbers import DASH, format_p, format_plain
from sublayer.reporting.secondary import basis_lines, secondary_table
from sublayer.reporting.units import in_display_units, n_decimals
from sublayer.reporting.words import difference_cells
from sublayer.study.findings.comparisons import Secondary, secondary_analyses
from sublayer.study.results import ArmResult, Failure, Results
from sublayer.tables import as_latex, as_markdown

_INTERVAL = ("low", "high", "p", "verdict")
_BASIS = ("n_seeds", "n_items", "n_documents", "level", "n_comparisons", "p_paired_t", "p_welch_t")
_SECONDARY = ("p_run_is_better", "p_run_is_better_low", "p_run_is_better_high", "published_effect")
_COSTS = ("parameters", "steps", "tokens", "note")


def write_tables(results: Results, path: Path) -> None:
    """Write every run and the differences as CSV, Markdown or LaTeX, by the path's suffix.

    CSV has numbers in the metrics' own units, to the last digit; the others as people see them.
    Raises ConfigError for another suffix, and OSError.
    """
    suffix = _suffix(path)
    if suffix == ".csv":
        write_file(path, _csv(results))
        return
    shown = in_display_units(results)
    form = as_markdown if suffix == ".md" else as_latex
    texts = [
        form(_caption(shown), *_runs(shown)),
        form(_differences_caption(shown), *_differences(shown)),
    ]
    write_file(path, "\n\n".join(texts) + "\n")


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".md", ".tex"):
        raise ConfigError(f"{path} is no table: give a name that ends in .csv, .md or .tex")
    return suffix


def _csv(results: Results) -> str:
    """Lay out runs and differences as rows of one table, each row with its kind."""
    metrics = [results.metric.name, *(each.metric.name for each in results.further)]
    columns = ["kind", "arm", "baseline", "seed", *metrics]
    columns += [*_INTERVAL, *_BASIS, *_SECONDARY, *_COSTS]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for arm in results.arms:
        writer.writerows(_run_rows(results, arm))
    families = [(results.metric.name, results.differences, secondary_analyses(results))]
    families += [(each.metric.name, each.differences, ()) for each in results.further]
    for metric, differences, analyses in families:
        for number, each in enumerate(differences):
            row: dict[str, object] = {
                "kind": "difference",
                "arm": each.arm,
                "baseline": each.baseline,
                metric: each.mean,
                "low": each.low,
                "high": each.high,
                "p": each.p,
                "verdict": each.verdict,
                "n_seeds": each.n_seeds,
                "n_items": each.n_items,
                "n_documents": each.n_documents,
                "level": each.level,
                "n_comparisons": results.n_comparisons,
                "note": each.note,
            }
            if analyses:
                row |= _secondary_cells(analyses[number])
            writer.writerow({name: "" if cell is None else cell for name, cell in row.items()})
    return text.getvalue()


def _run_rows(results: Results, arm: ArmResult) -> list[dict[str, object]]:
    usual: dict[str, object] = {
        "kind": "run",
        "arm": arm.name,
        "parameters": arm.parameters["total"],
        "steps": arm.costs.steps,
        "tokens": "" if arm.costs.tokens is None else round(arm.costs.tokens),
    }
    rows: dict[int, dict[str, object]] = {}
    for seed, value in zip(arm.seeds, arm.values, strict=True):
        further = {name: own[seed] for name, own in arm.further.items() if seed in own}
        shown = {each.metric.name for each in results.further}
        further = {name: each for name, each in further.items() if name in shown}
        rows[seed] = {**usual, "seed": seed, results.metric.name: value, **further}
    for failure in _failures(results, arm):
        cells = {"seed": failure.seed, results.metric.name: "nan", "note": failure.message}
        rows.setdefault(failure.seed, {**usual, **cells})
    return [rows[seed] for seed in sorted(rows)]


def _failures(results: Results, arm: ArmResult) -> list[Failure]:
    """Return an arm's failed runs, those of its stages among them."""
    return [
        failure
        for failure in results.failures
        if failure.arm == arm.name or failure.arm.startswith(f"{arm.name}, ")
    ]


def _secondary_cells(found: Secondary) -> dict[str, object]:
    cells: dict[str, object] = {
        "p_paired_t": found.paired_t and found.paired_t.p,
        "p_welch_t": found.welch_t and found.welch_t.p,
        "published_effect": found.published and found.published.effect,
    }
    if found.superiority is not None:
        cells["p_run_is_better"] = found.superiority.estimate
        cells["p_run_is_better_low"] = found.superiority.low
        cells["p_run_is_better_high"] = found.superiority.high
    return cells


def _runs(results: Results) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of every run: a row for each seed, then means and SDs."""
    decimals = n_decimals(results)
    failed = {
        (arm.name, failure.seed) for arm in results.arms for failure in _failures(results, arm)
    }
    by_seed = [dict(zip(arm.seeds, arm.values, strict=True)) for arm in results.arms]
    seeds = sorted({seed for own in by_seed for seed in own} | {seed for _, seed in failed})
    rows = []
    for seed in seeds:
        cells = []
        for arm, own in zip(results.arms, by_seed, strict=True):
            absent = "failed" if (arm.name, seed) in failed else DASH
            cells.append(f"{own[seed]:.{decimals}f}" if seed in own else absent)
        rows.append([str(seed), *cells])
    for name, values in (
        ("mean", [arm.mean for arm in results.arms]),
        ("SD", [arm.sd for arm in results.arms]),
    ):
        rows.append([name, *(format_plain(value, decimals) for value in values)])
    return ["seed", *(arm.name for arm in results.arms)], rows


def _differences(results: Results) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the differences, with their secondary analyses."""
    secondary = secondary_table(results)
    beside = {row.name: row.cells for row in secondary.rows}
    analyses = secondary_analyses(results)
    headings = [f"against {results.baseline}", "difference", "95% CI", "p", "verdict", "seeds"]
    headings += ["paired t, p", "Welch's t, p", *secondary.headings]
    rows = []
    for each, found in zip(results.differences, analyses, strict=True):
        cells = difference_cells(results, each)
        rows.append(
            [
                *cells,
                format_p(found.paired_t.p if found.paired_t else None),
                format_p(found.welch_t.p if found.welch_t else None),
                *beside.get(cells[0], [DASH] * len(secondary.headings)),
            ]
        )
    return headings, rows


def _caption(results: Results) -> str:
    direction = "lower" if results.metric.is_lower_better else "higher"
    scored_on = results.scored_on or f"the {results.split} split"
    return f"Every run: {results.metric.label} on {scored_on}, {direction} is better."


def _differences_caption(results: Results) -> str:
    adjusted = ""
    if results.n_comparisons > 1:
        adjusted = f", adjusted for all {results.n_comparisons} comparisons"
    first = (
        f"Differences in {results.metric.difference}, with 95% confidence intervals and p "
        f"values{adjusted}; the columns from the t tests on are for one comparison alone, not "
        "adjusted."
    )
    return " ".join([first, *basis_lines(results)])


def check_table_files(paths: Sequence[Path]) -> None:
    """Raise ConfigError where a table cannot be written: its suffix, or what is there already."""
    for path in paths:
        _suffix(path)
        if path.exists() or path.is_symlink():
            raise ConfigError(f"{path} is there already: move it, or give --table another name")
        if not path.absolute().parent.is_dir():
            raise ConfigError(f"--table {path}: there is no folder {path.parent}: make it first")
