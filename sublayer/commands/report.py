"""``sublayer report``: the HTML report of a comparison or of a run, from its folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from sublayer.commands.shared import candidates
from sublayer.commands.shared.base import JsonOption, emit
from sublayer.counts import count
from sublayer.errors import ConfigError

EXAMPLE = "sublayer report runs/gpt-ffn"
DEVIATES = 4
"""The exit code where results do not follow from their plan and items."""

FolderArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|STUDY",
        help="The folder of a run or of a comparison.",
        autocompletion=candidates.runs_and_comparisons,
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="The file to write. Default: report.html in the folder."
    ),
]
TableOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--table",
        metavar="FILE",
        help="Also write every run of a comparison and the differences: .csv, .md or .tex. "
        "Repeatable.",
    ),
]
VerifyOption = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="Write nothing: check that a comparison's results follow from its sealed plan and "
        "from what each test item scored, and list what does not. Exit code 0: they follow; "
        f"{DEVIATES}: they do not, or no plan was sealed.",
    ),
]


def command(
    folder: FolderArgument,
    out: OutOption = None,
    table: TableOption = None,
    verify: VerifyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the HTML report of a comparison, or of a run, from its folder, and print its path.

    Nothing is trained. The report of an unfinished comparison shows the runs that have ended, and
    says what is missing. A file is overwritten only where it is a report of the same folder.
    """
    if not verify:
        from sublayer.reporting.files import report_again

        path = report_again(folder, out, table or [])
        emit({"report": str(path)}, as_json, lambda result: str(result["report"]))
        return
    if out is not None:
        raise ConfigError(f"--verify writes no report: leave out --out {out}")
    if table:
        raise ConfigError(f"--verify writes no table: leave out --table {table[0]}")
    from sublayer.reporting.verify import verification_to_json, verify_study

    result = verification_to_json(verify_study(folder))
    emit(result, as_json, _describe)
    if not result["follows"]:
        raise typer.Exit(DEVIATES)


def _describe(result: Mapping[str, Any]) -> str:
    """Say what follows, or what does not, a line each."""
    from sublayer.study.seal import shown_date

    deviations = result["deviations"]
    if deviations:
        lines = [f"{result['folder']}: {count(len(deviations), 'deviation')}"]
    else:
        lines = [f"{result['folder']}: the results follow from the plan and the items"]
    sealed = "not sealed"
    if result["hash"]:
        sealed = f"sealed on {shown_date(result['sealed'])}, hash {result['hash']}"
    lines.append(f"plan      {sealed}")
    lines += [f"recorded  {each}" for each in result["additions"]]
    lines.append(
        f"checked   {count(result['runs'], 'run')}, "
        f"{count(result['values'], 'score')} computed again from items"
    )
    if result["judged_by_other_code"]:
        lines.append(
            f"note      judged with sublayer {result['judged_by_other_code']}, which is not this "
            "code: what differs in results.json alone may come of that"
        )
    lines += [f"{each['kind']}: {each['where']}: {each['what']}" for each in deviations]
    return "\n".join(lines)
