"""How the results of a comparison are printed, and the option that asks for all of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sublayer.commands.shared.base import emit

if TYPE_CHECKING:
    from sublayer.study.results import Results

DetailsOption = Annotated[
    bool,
    typer.Option(
        "--details",
        help="Print what the report has, too: intervals, notes, costs, what arms differ by.",
    ),
]


def show(results: "Results", report: Path, *, as_json: bool, details: bool = False) -> None:
    """Print a study's results, as JSON or for people; ``report`` is where its report stands."""
    from sublayer.reporting.files import results_to_json
    from sublayer.reporting.terminal import render, summarize

    form = render if details else summarize
    emit(results_to_json(results, report), as_json, lambda _: form(results, report))
