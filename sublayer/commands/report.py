"""``sublayer report``: the HTML report of a comparison or of a run, from its folder."""

from pathlib import Path
from typing import Annotated

import typer

from sublayer.commands.shared import candidates
from sublayer.commands.shared.base import JsonOption, emit

EXAMPLE = "sublayer report runs/gpt-ffn"

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


def command(folder: FolderArgument, out: OutOption = None, as_json: JsonOption = False) -> None:
    """Write the HTML report of a comparison, or of a run, from its folder, and print its path.

    Nothing is trained. The report of an unfinished comparison shows the runs that have ended, and
    says what is missing. A file is overwritten only where it is a report of the same folder.
    """
    from sublayer.study.again import report_again

    path = report_again(folder, out)
    emit({"report": str(path)}, as_json, lambda result: str(result["report"]))
