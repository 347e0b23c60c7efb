"""``sublayer runs``: list what was run: what, when, how good, how long, and how to resume it."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sublayer.commands.runs.found import find_rows
from sublayer.commands.runs.rendering import render
from sublayer.commands.shared.base import JsonOption, emit

EXAMPLE = "sublayer runs"
_DEFAULT = Path("runs")


def command(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FOLDER", help="Folders to look for runs in. Default: runs."),
    ] = None,
    arms: Annotated[
        bool, typer.Option("--arms", help="Also list the single runs of comparisons.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List runs, comparisons and imported models, the newest first.

    A score is the best on the validation split during training, unless it is marked (test). Below
    what is not finished stands the command that resumes it. Nothing is written, and no model is
    loaded.
    """
    asked = folders or [_DEFAULT]
    is_default = not folders
    rows = [] if is_default and not _DEFAULT.exists() else find_rows(asked, with_arms=arms)
    where = " and ".join(map(str, asked))
    none = f"no runs in {where}; `sublayer train gpt` makes one"
    emit(
        {"runs": [asdict(row) for row in rows]},
        as_json,
        lambda _: render(rows) if rows else none,
    )
