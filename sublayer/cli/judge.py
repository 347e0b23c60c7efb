"""``sublayer judge``: which arm is better, of runs of any trainer, and how sure that is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sublayer.api.comparing import judge
from sublayer.cli.build import Json, client_of, print_result
from sublayer.options import Argument, Option

EXAMPLE = "sublayer judge scores/base.csv scores/new.csv"

Sources = Annotated[
    Sequence[Path],
    Argument("Tables or folders of runs; the first is the baseline.", metavar="SOURCE"),
]
Page = Annotated[
    Path | None,
    Option("Also write the verdict as a page of HTML.", flag="--html", metavar="FILE"),
]
Table = Annotated[
    Path | None,
    Option("Also write runs and differences: .csv, .md or .tex.", metavar="FILE"),
]


@client_of(judge)
def command(
    options: dict[str, Any],
    sources: Sources,
    page: Page = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """Judge runs of any trainer: which arm is better than the baseline, with intervals.

    Reads CSV, TSV, JSON lines and Parquet, and says how it understood their columns. Exit codes: 0
    better, 10 no difference that matters, 11 cannot tell, 12 worse, 2 a mistake; of several arms
    that of --new, else 0 where any is better and 12 where all are worse.
    """
    from sublayer.files.storage import check_free
    from sublayer.reporting.judged import write_page, write_table
    from sublayer.tables import FILES

    check_free(page, "--html", (".html", ".htm"))
    check_free(table, "--table", FILES)
    judged = judge(*sources, **options)
    if page is not None:
        write_page(judged, page)
    if table is not None:
        write_table(judged, table)
    print_result(judged, as_json)
    if judged.exit_code:
        raise typer.Exit(judged.exit_code)
