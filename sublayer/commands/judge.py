"""``sublayer judge``: which arm is better, of runs of any trainer, and how sure that is."""

from pathlib import Path
from typing import Annotated

import typer

from sublayer.commands.shared.base import JsonOption, emit, say
from sublayer.errors import SublayerError

MOST_LOOKS = 1_000_000
EXAMPLE = "sublayer judge scores/base.csv scores/new.csv"

SourcesArgument = Annotated[
    list[Path],
    typer.Argument(metavar="SOURCE", help="Tables or folders of runs; the first is the baseline."),
]


def command(
    sources: SourcesArgument,
    arm: Annotated[
        str | None,
        typer.Option("--arm", metavar="COLUMN", help="The column of arms; or columns, or files."),
    ] = None,
    seed: Annotated[
        str | None,
        typer.Option("--seed", metavar="COLUMN", help="The column of seeds; or columns, or rows."),
    ] = None,
    item: Annotated[
        str | None,
        typer.Option("--item", metavar="COLUMN", help="The column of items; or columns, or rows."),
    ] = None,
    document: Annotated[
        str | None,
        typer.Option("--document", metavar="COLUMN", help="The column of items' documents."),
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", metavar="COLUMN", help="The column of the score.")
    ] = None,
    step: Annotated[
        str | None, typer.Option("--step", metavar="COLUMN", help="The column of training steps.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="STEP",
            help="The step whose values count, or last: each run's own. Default: the last, where "
            "all runs have it.",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="NAME", help="The task of lm-evaluation-harness's samples."),
    ] = None,
    filtered: Annotated[
        str | None,
        typer.Option("--filter", metavar="NAME", help="The filter of the samples' answers."),
    ] = None,
    names: Annotated[
        str | None,
        typer.Option(
            "--names",
            metavar="PATTERN",
            help="How files, folders or columns are named, as '{arm}-{seed}'.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="ARM", help="The arm to judge against. Default: first."),
    ] = None,
    new: Annotated[
        str | None,
        typer.Option("--new", metavar="ARM", help="The arm whose verdict is the exit code."),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            "--margin",
            min=1e-9,
            max=1e9,
            metavar="X",
            help="Differences smaller than this do not matter, in the unit of the score.",
        ),
    ] = None,
    lower_is_better: Annotated[
        bool | None,
        typer.Option(
            "--lower-is-better/--higher-is-better", help="Which direction of the score is good."
        ),
    ] = None,
    look: Annotated[
        int | None,
        typer.Option(
            "--look",
            min=1,
            max=MOST_LOOKS,
            metavar="N",
            help="Which of --looks planned looks this is.",
        ),
    ] = None,
    looks: Annotated[
        int | None,
        typer.Option(
            "--looks", min=1, max=MOST_LOOKS, metavar="N", help="Looks that were planned in all."
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            "--ledger",
            metavar="FILE",
            help="The file that counts a loop's looks, so that at most 5% of loops keep anything "
            "that is no better; --looks: how many are planned.",
        ),
    ] = None,
    nan_is_failed: Annotated[
        bool,
        typer.Option("--nan-is-failed", help="Count runs with NaN as failed: worse than all."),
    ] = False,
    common: Annotated[
        bool,
        typer.Option("--common", help="Leave out seeds and items that some run lacks."),
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also write the verdict as a page of HTML."),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--table", metavar="FILE", help="Also write runs and differences: .csv, .md or .tex."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge runs of any trainer: which arm is better than the baseline, with intervals.

    Reads CSV, TSV, JSON lines and Parquet, and says how it understood their columns. Exit codes: 0
    better, 10 no difference that matters, 11 cannot tell, 12 worse, 2 a mistake; of several arms
    that of --new, else 0 where any is better and 12 where all are worse.
    """
    from sublayer.judging.layout import Asked
    from sublayer.judging.runs import Rules
    from sublayer.judging.sources import read_paths
    from sublayer.judging.verdict import Question
    from sublayer.reporting.judged import (
        TABLES,
        check_free,
        judge_understood,
        write_page,
        write_table,
    )
    from sublayer.reporting.judged import as_json as as_object

    asked = Asked(
        arm=arm or "",
        seed=seed or "",
        item=item or "",
        document=document or "",
        value=value or "",
        step=step or "",
        names=names or "",
        baseline=baseline or "",
        new=new or "",
        task=task or "",
        filter=filtered or "",
    )
    check_free(page, "--html", (".html", ".htm"))
    check_free(table, "--table", TABLES)
    understood = read_paths(sources, asked)
    try:
        judged = judge_understood(
            understood,
            Rules(at or "", nan_is_failed=nan_is_failed, common=common),
            Question(baseline or "", new or "", margin, look, looks, ledger),
            lower_is_better,
        )
    except SublayerError:
        for line in understood.said:  # which the verdict would have begun with
            say(f"read: {line}")
        raise
    if page is not None:
        write_page(judged, page)
    if table is not None:
        write_table(judged, table)
    emit(as_object(judged), as_json, lambda _: str(judged))
    if judged.exit_code:
        raise typer.Exit(judged.exit_code)
