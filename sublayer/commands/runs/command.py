"""``sublayer runs``: list what was run: what, when, how good, how long, and how to resume it."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sublayer.commands.runs.found import find_rows
from sublayer.commands.runs.rendering import render
from sublayer.commands.runs.row import Row
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
    rows = list_rows(folders or [], with_arms=arms)
    emit(
        {"runs": [asdict(row) for row in rows]},
        as_json,
        lambda _: render_rows(rows, folders or []),
    )


def list_rows(folders: Sequence[Path], *, with_arms: bool) -> list[Row]:
    """Return a row for each run below folders, below ``runs`` where none is given."""
    if not folders and not _DEFAULT.exists():
        return []
    return find_rows(folders or [_DEFAULT], with_arms=with_arms)


def render_rows(rows: Sequence[Row], folders: Sequence[Path]) -> str:
    """Format rows, or a line where there are none."""
    if rows:
        return render(rows)
    where = " and ".join(map(str, folders or [_DEFAULT]))
    return f"no runs in {where}; `sublayer train gpt` makes one"
