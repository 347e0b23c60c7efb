"""``sublayer report``: the HTML report of a comparison or of a run, from its folder."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from sublayer.api.run import report
from sublayer.cli.build import Json, client_of, emit
from sublayer.errors import ConfigError
from sublayer.options import Option

EXAMPLE = "sublayer report runs/gpt-ffn"
DEVIATES = 4
"""The exit code where results do not follow from their plan and items."""

Verify = Annotated[
    bool,
    Option(
        "Write nothing: check that a comparison's results follow from its sealed plan and "
        "from what each test item scored, and list what does not. Exit code 0: they follow; "
        f"{DEVIATES}: they do not, or no plan was sealed.",
    ),
]


@client_of(report)
def command(options: dict[str, Any], verify: Verify = False, as_json: Json = False) -> None:
    """Write the HTML report of a comparison, or of a run, from its folder, and print its path.

    Nothing is trained. The report of an unfinished comparison shows the runs that have ended, and
    names the missing ones. A file is overwritten only where it is a report of the same folder.
    """
    if not verify:
        path = str(report(**options))
        emit({"report": path}, as_json, lambda _: path)
        return
    if "out" in options:
        raise ConfigError(f"--verify writes no report: leave out --out {options['out']}")
    if "tables" in options:
        raise ConfigError(f"--verify writes no table: leave out --table {options['tables'][0]}")
    from sublayer.reporting.verify import render_verification, verify_study

    result = asdict(verify_study(Path(options["folder"])))
    emit(result, as_json, render_verification)
    if not result["follows"]:
        raise typer.Exit(DEVIATES)
