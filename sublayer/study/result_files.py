"""The files of a comparison's results: the report, ``results.json``, what each item scored."""

from collections.abc import Sequence
from pathlib import Path

from sublayer.config.objectives.base import ObjectiveTable
from sublayer.objective.families import family_of
from sublayer.study.items.file_header import STUDY_ITEMS, RunItems
from sublayer.study.items.writing import write_study_items
from sublayer.study.report.html import write_report
from sublayer.study.results import REPORT, RESULTS, Results
from sublayer.study.results_json import results_to_json, write_json
from sublayer.system.stages import stage


def write_results(
    folder: Path,
    results: Results,
    objective: ObjectiveTable,
    items: Sequence[RunItems],
    without_items: Sequence[str],
) -> Path:
    """Write a comparison's results into its folder and return the path of its report.

    ``objective`` is that of all arms. ``without_items`` names the runs that kept no items.
    """
    report = write_chain_results(folder, results)
    if items:
        tables = family_of(objective).tables()
        write_study_items(folder / STUDY_ITEMS, results.name, items, tables, missing=without_items)
    return report


def write_chain_results(folder: Path, results: Results) -> Path:
    """Write the report and ``results.json`` alone, and return the path of the report."""
    report = folder / REPORT
    with stage("writing the report"):
        write_report(results, report)
        write_json(folder / RESULTS, results_to_json(results, report))
    return report
