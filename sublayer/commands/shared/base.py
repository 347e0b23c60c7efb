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

from sublayer.commands.shared import candidates
from sublayer.errors import ConfigError
from sublayer.system.launch import is_first_launched, n_launched
from sublayer.system.stages import note
from sublayer.system.terminal import Stream

JsonObject = Mapping[str, Any]
"""What a command found, as ``--json`` prints it."""
Render = Callable[[JsonObject], str]

SettingsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Settings over the recipe's, such as model.d_ff=512 (see `sublayer fields`).",
        autocompletion=candidates.settings,
    ),
]
RunArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="A run, a checkpoint, or the folder of an imported model.",
        autocompletion=candidates.runs,
    ),
]
RunsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN",
        help="A run, a checkpoint, or the folder of an imported model; several fine-tuned runs are "
        "an ensemble, whose answers are averaged; with `evaluate --suite` any models.",
        autocompletion=candidates.runs,
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the result as one JSON object, the last line; all else goes to standard error.",
    ),
]
AverageOption = Annotated[
    int | None,
    typer.Option(
        "--average",
        min=1,
        max=10_000,
        metavar="N",
        help="Average the weights of the run's N newest checkpoints.",
    ),
]


_RESULTS: ContextVar[TextIO | None] = ContextVar("results", default=None)


def emit(result: JsonObject, as_json: bool, render: Render) -> None:
    """Print a command's result: one line of JSON, or the text that ``render`` makes of it.

    In JSON, numbers that are not finite become null, which it has, and paths become texts. Raises
    OutputLost where nothing can be printed.
    """
    plain = (
        json.dumps(as_json_values(result), allow_nan=False)
        if as_json
        else searchable(render(result))
    )
    write_result(f"{plain}\n")


def write_result(text: str) -> None:
    """Write a part of a result to standard output; raise OutputLost where that fails."""
    output = _RESULTS.get() or sys.stdout
    output.write(text)
    output.flush()
    if isinstance(output, Stream):
        output.require()


def say(message: str) -> None:
    """Print progress or a warning on standard error."""
    note(message)


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


def searchable(text: str) -> str:
    """Return a text with ordinary spaces for no-break ones."""
    # No-break spaces are for pages that wrap; on a terminal they defeat searching and cutting.
    return text.replace("\N{NO-BREAK SPACE}", " ")


def as_json_values(value: Any) -> Any:
    """Return a value as JSON holds it: paths as texts, None for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {str(name): as_json_values(content) for name, content in value.items()}
    if isinstance(value, list | tuple):
        return [as_json_values(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


def has_work(name: str) -> bool:
    """Return whether this process does a command, of several that were started together.

    That is the first, where the work is not divided, and it says so. Raises ConfigError for
    commands that start processes themselves.
    """
    if n_launched() == 1:
        return True
    if name in ("compare", "demo"):
        raise ConfigError(f"{name} starts its runs itself: start it without a launcher")
    if is_first_launched():
        say(f"{name} is not divided: the first of {n_launched()} processes does it")
    return is_first_launched()
