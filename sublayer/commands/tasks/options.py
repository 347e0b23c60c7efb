"""Options of ``sublayer tasks`` alone."""

from pathlib import Path
from typing import Annotated

import typer

from sublayer.commands.shared import candidates

_LARGEST_ROW = 10**9

AskedArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="DIR|NAME",
        help="A folder, to see what it has of each task; or a task. Without it, all are "
        "listed, with what the cache has.",
        autocompletion=candidates.tasks,
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="The folder of the task's files. Default: the cache."
    ),
]
ShowOption = Annotated[
    bool,
    typer.Option(
        "--show",
        help="Show an example as models read it, token by token, in each format. Without "
        "--data, names stand for its texts.",
    ),
]
RowOption = Annotated[
    int,
    typer.Option(
        "--row",
        min=0,
        max=_LARGEST_ROW,
        metavar="N",
        help="The example to show, from 0, of the first split that is there.",
    ),
]
TokenizerOption = Annotated[
    Path | None,
    typer.Option(
        "--tokenizer",
        metavar="RUN",
        help="Whose tokens to show: a run, a model's folder, or a tokenizer's file or folder. "
        "Default: words.",
        autocompletion=candidates.runs,
    ),
]
