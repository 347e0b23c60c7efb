"""``sublayer demo``: a whole comparison in a few minutes."""

from pathlib import Path
from typing import Annotated

import typer

from sublayer.commands.shared.base import JsonOption
from sublayer.commands.shared.comparison import show
from sublayer.system.stages import stage

EXAMPLE = "sublayer demo"


def command(
    out: Annotated[Path, typer.Option("--out", help="The study's folder.")] = Path("runs/demo"),
    as_json: JsonOption = False,
) -> None:
    """Compare tiny decoders on the prose of the running Python installation, and write
    runs/demo/report.html.

    It takes a few minutes on two cores. Run again, it finishes what is missing, or shows what there
    is.
    """
    with stage("starting PyTorch"):
        from sublayer.study.options import Options
        from sublayer.study.runner import run_study

    results, report = run_study(["demo"], [], Options(out=out))
    show(results, report, as_json)
