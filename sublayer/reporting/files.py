"""The files of a comparison: its report and ``results.json``, after its runs or from its folder."""

from collections.abc import Sequence
from pathlib import Path

from sublayer.config.layering.sources import RUN_RECIPE
from sublayer.errors import ConfigError, TrainingError
from sublayer.files.paths import resolved
from sublayer.files.storage import write_file, write_json
from sublayer.reporting.export import check_table_files, write_tables
from sublayer.reporting.html import render_report, write_report
from sublayer.reporting.results_json import results_to_json
from sublayer.reporting.run_page import render_run
from sublayer.study.definition import Overrides
from sublayer.study.finished_runs import RUNS, compare_runs, read_paths
from sublayer.study.options import Options
from sublayer.study.plan_file import PLAN
from sublayer.study.read_results import results_of_folder
from sublayer.study.results import REPORT, RESULTS, Results
from sublayer.study.runner import run_study
from sublayer.system.stages import stage

_HEADING = '<h1 id="verdict">'
"""What a comparison's report has, whichever command wrote it."""


def report_study(
    sources: Sequence[str], overrides: Overrides, options: Options
) -> tuple[Results, Path]:
    """Run a study, or what is missing of it, and write its report; return results and report.

    Raises what ``run_study`` does, and TrainingError, the report written, where no arm is left with
    two seeds to compare, or with the one that was planned.
    """
    results, folder = run_study(sources, overrides, options)
    report = write_results(results, folder)
    _check_compared(results, report)
    return results, report


def write_results(results: Results, folder: Path) -> Path:
    """Write the report and ``results.json`` into a folder, and return the path of the report."""
    report = folder / REPORT
    with stage("writing the report"):
        write_report(results, report)
        write_json(folder / RESULTS, results_to_json(results, report))
    return report


def report_again(folder: Path, out: Path | None = None, tables: Sequence[Path] = ()) -> Path:
    """Write the report of what is in ``folder``, and ``tables``; return the report's absolute path.

    A comparison's report replaces the report in its folder. Raises ConfigError where the folder
    holds neither a run nor a comparison, where the file is no report of this folder, and where a
    table is there already or of a run, and
    CheckpointError where what is in it is damaged.
    """
    target = out or folder / REPORT
    mark = f"<!-- sublayer report of {_escaped(str(resolved(folder)))} -->"
    is_own = out is None and (folder / PLAN).is_file()
    _check_free(target, mark, is_own=is_own or (out is None and (folder / RUNS).is_file()))
    check_table_files(tables)
    results = None
    if (folder / PLAN).is_file():
        results = results_of_folder(folder)
    elif (folder / RUNS).is_file():
        # What was scored is kept in the folder, so that nothing is computed again.
        results, _ = compare_runs(read_paths(folder), folder)
        write_results(results, folder)
    if results is not None:
        page = render_report(results)
        for path in tables:
            write_tables(results, path)
    elif tables:
        raise ConfigError(f"--table is for a comparison, and {folder} holds none: leave it out")
    elif (folder / RUN_RECIPE).is_file():
        page = render_run(folder)
    else:
        raise ConfigError(f"{folder} holds neither a run nor a comparison: see sublayer runs")
    write_file(target, f"{page.rstrip()}\n{mark}\n")
    return resolved(target)


def _check_compared(results: Results, report: Path) -> None:
    """Raise TrainingError where so much failed that nothing is compared with the baseline."""
    differences = results.differences
    if results.has_verdicts:
        # Ranks tell something where not all runs failed.
        has_values = any(arm.values for arm in results.arms)
        is_compared = has_values and any(
            each.low is not None or each.by_ranks for each in differences
        )
        needed = "two seeds that finished, as the baseline has,"
    else:
        is_compared = any(difference.mean is not None for difference in differences)
        needed = "a seed that finished beside the baseline's"
    if not is_compared:
        raise TrainingError(f"no arm has {needed}: see {report}")


def _check_free(target: Path, mark: str, *, is_own: bool) -> None:
    if not target.exists():
        return
    lines = target.read_bytes().decode("utf-8", "replace").splitlines() if target.is_file() else []
    is_report = is_own and any(line.startswith(_HEADING) for line in lines)
    if lines[-1:] != [mark] and not is_report:
        raise ConfigError(f"{target} is there and is no report of this folder: give another --out")


def _escaped(text: str) -> str:
    # Two hyphens would end the comment early.
    return text.replace("--", "-&#45;").replace(">", "&gt;")
