"""``sublayer runs``: runs and comparisons below folders, and how to resume them."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sublayer.api.run import list_runs
from sublayer.cli.build import client_of, print_result
from sublayer.commands.shared.base import JsonOption

EXAMPLE = "sublayer runs"

FoldersArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FOLDER", help="Folders to look for runs in. Default: runs."),
]


@client_of(list_runs)
def command(
    options: dict[str, Any], folders: FoldersArgument = None, as_json: JsonOption = False
) -> None:
    """List runs, comparisons and imported models, the newest first.

    A score is the best on the validation split during training, unless it is marked (test). Below
    what is not finished stands the command that resumes it. Nothing is written, and no model is
    loaded.
    """
    print_result(list_runs(*(folders or ()), **options), as_json)
