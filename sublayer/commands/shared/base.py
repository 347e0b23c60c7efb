"""Common arguments of commands, and where results and messages go."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from sublayer.config.limits import MOST_ROWS
from sublayer.system.streams import Stream, lasting_stderr

JsonObject = Mapping[str, Any]
"""What a command found, as ``--json`` prints it."""
Render = Callable[[JsonObject], str]

RecipeArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="A recipe's name (see `sublayer recipes`), a .toml file, or a run."
    ),
]
SettingsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Settings over the recipe's, such as model.d_ff=512 (see `sublayer fields`).",
    ),
]
RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run, a checkpoint, or an imported folder.")
]
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON object as the last line; all else goes to standard error."
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", help="cpu, cuda, cuda:1 ... Default: the GPU where there is one."),
]
AverageOption = Annotated[
    int | None,
    typer.Option(
        "--average",
        min=1,
        max=10_000,
        help="Use the mean of the run's newest checkpoints, so many.",
    ),
]

BatchOption = Annotated[
    int | None,
    typer.Option(
        "--batch",
        min=1,
        max=MOST_ROWS,
        help="Windows computed at a time; it changes speed and memory only.",
    ),
]

_RESULTS: ContextVar[TextIO | None] = ContextVar("results", default=None)


def emit(result: JsonObject, as_json: bool, render: Render) -> None:
    """Print a command's result: one line of JSON, or the text that ``render`` makes of it.

    In JSON, numbers that are not finite become null, which it has, and paths become texts. Raises
    OutputLost where nothing can be printed.
    """
    if as_json:
        text = json.dumps(_plain(result), allow_nan=False)
    else:
        # No-break spaces are for pages that wrap; on a terminal they defeat searching and cutting.
        text = render(result).replace("\N{NO-BREAK SPACE}", " ")
    write_result(f"{text}\n")


def write_result(text: str) -> None:
    """Write a part of a result to standard output; raise OutputLost where that fails."""
    output = _RESULTS.get() or sys.stdout
    output.write(text)
    output.flush()
    if isinstance(output, Stream):
        output.require()


def say(message: str) -> None:
    """Print progress or a warning on standard error."""
    print(message, file=lasting_stderr(), flush=True)


@contextmanager
def only_results_on_stdout() -> Iterator[None]:
    """Redirect other output to standard error, so that standard output holds JSON alone."""
    results = sys.stdout
    token = _RESULTS.set(results)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = results
        _RESULTS.reset(token)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(content) for name, content in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value
