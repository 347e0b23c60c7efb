"""``sublayer judge``: which arm is better, of runs of any trainer, and how sure that is."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sublayer.api.comparing import judge
from sublayer.cli.build import client_of, print_result
from sublayer.commands.shared.base import JsonOption

EXAMPLE = "sublayer judge scores/base.csv scores/new.csv"

SourcesArgument = Annotated[
    list[Path],
    typer.Argument(metavar="SOURCE", help="Tables or folders of runs; the first is the baseline."),
]
PageOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write the verdict as a page of HTML."),
]
TableOption = Annotated[
    Path | None,
    typer.Option(
        "--table", metavar="FILE", help="Also write runs and differences: .csv, .md or .tex."
    ),
]


@client_of(judge)
def command(
    options: dict[str, Any],
    sources: SourcesArgument,
    page: PageOption = None,
    table: TableOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge runs of any trainer: which arm is better than the baseline, with intervals.

    Reads CSV, TSV, JSON lines and Parquet, and says how it understood their columns. Exit codes: 0
    better, 10 no difference that matters, 11 cannot tell, 12 worse, 2 a mistake; of several arms
    that of --new, else 0 where any is better and 12 where all are worse.
    """
    from sublayer.reporting.judged import TABLES, check_free, write_page, write_table

    check_free(page, "--html", (".html", ".htm"))
    check_free(table, "--table", TABLES)
    judged = judge(*sources, **options)
    if page is not None:
        write_page(judged, page)
    if table is not None:
        write_table(judged, table)
    print_result(judged, as_json)
    if judged.exit_code:
        raise typer.Exit(judged.exit_code)
